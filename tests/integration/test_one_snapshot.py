"""Reads within one shared transaction see one snapshot, and other threads are not blocked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.db.database import Database
    from tests.support.clock import FakeClock


@pytest.fixture
def database(database_url: str, clock: FakeClock) -> Iterator[Database]:
    store = open_test_store(database_url, clock)
    store.database.write(lambda tx: tx.run_sql("CREATE TABLE seen (number bigint)"), durable=False)
    yield store.database
    store.database.write(lambda tx: tx.run_sql("DROP TABLE seen"), durable=False)
    store.close()


def count(database: Database) -> int:
    with database.reading() as tx:
        found: int = tx.run_sql("SELECT count(*) FROM seen")[0][0]
        return found


def add(database: Database) -> None:
    database.write(lambda tx: tx.run_sql("INSERT INTO seen VALUES (1)"), durable=False)


def test_reads_within_a_shared_transaction_see_its_snapshot(database: Database) -> None:
    with database.shared_reading() as tx:
        assert tx.run_sql("SELECT count(*) FROM seen") == [(0,)]
        add(database)
        assert count(database) == 0
        with database.shared_reading():
            assert count(database) == 0
        assert count(database) == 0
    assert count(database) == 1
    with database.reading() as another:
        assert another is not tx


def test_other_threads_are_not_blocked(database: Database) -> None:
    with database.shared_reading() as tx, ThreadPoolExecutor(1) as other:
        tx.run_sql("SELECT count(*) FROM seen")
        other.submit(add, database).result()
        assert other.submit(count, database).result() == 1
        assert count(database) == 0


def test_an_error_ends_the_shared_transaction(database: Database) -> None:
    with pytest.raises(LookupError), database.shared_reading():
        raise LookupError
    add(database)
    assert count(database) == 1
