"""Keys on both databases: which secrets are valid, when they stop being valid, and what is stored of them."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from holdfast.auth.keys import KeyRepository, StoredKey
from holdfast.auth.principal import Scope
from holdfast.clock import Moment, micros
from holdfast.errors import BadRequest, UnknownKey
from tests.contract.test_migrations import statements
from tests.support.stores import open_test_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

HOUR = timedelta(hours=1)


@pytest.fixture
def keys(store: SqlStore) -> KeyRepository:
    return KeyRepository(store.database)


@pytest.fixture
def elsewhere(database_url: str, clock: FakeClock, store: SqlStore) -> Iterator[KeyRepository]:
    """Return the same keys as another process reads them."""
    other = open_test_store(database_url, clock)
    yield KeyRepository(other.database)
    other.close()


def opened(keys: KeyRepository, secret: str | bytes) -> int | None:
    key = keys.verify(secret)
    return key.id if key else None


def test_a_secret_is_long_random_and_valid(keys: KeyRepository) -> None:
    key, secret = keys.create("laptop", Scope.WRITE, bases=[3, 1, 3])
    assert re.fullmatch(r"hf_[A-Za-z0-9_-]{43}", secret)
    assert secret[3:11] == key.prefix
    assert keys.verify(secret) == keys.verify(secret.encode()) == key
    assert key.caller.bases == frozenset({1, 3})
    assert (key.caller.scope, key.caller.key_id, key.caller.name) == (Scope.WRITE, key.id, "laptop")
    assert keys.create("laptop", Scope.WRITE)[1] != secret


def test_the_database_keeps_a_digest_and_not_the_secret(keys: KeyRepository, store: SqlStore) -> None:
    _, secret = keys.create("laptop", Scope.READ)
    with store.database.engine.connect() as connection:
        (row,) = connection.execute(text("SELECT * FROM access_keys")).all()
    assert hashlib.sha256(secret.encode()).hexdigest() in row
    assert not any(secret[12:] in str(cell) for cell in row)


def test_an_invalid_secret_is_rejected_without_an_error(keys: KeyRepository) -> None:
    _, secret = keys.create("laptop", Scope.ADMIN)
    wrong = [
        "", "hf_", "ключ", "Bearer ключ", secret[:-1], secret + "A", secret[:-1] + "ä", "\udcff" * 46,
        "hf_\0" + "a" * 42,
        secret.removeprefix("hf_"), secret.upper(), f" {secret}", f"{secret}\n", "hf_" + "a" * 43, "hf_" + "a" * 10**6,
    ]  # fmt: skip
    last = "A" if secret[-1] != "A" else "B"
    for one in [*wrong, secret[:-1] + last, secret[:12] + "-" * 34]:
        assert keys.verify(one) is None
        assert keys.verify(one.encode("utf-8", "surrogatepass")) is None
    assert keys.verify(b"\xff\xfe" * 23) is None


def test_the_visible_prefix_alone_is_not_a_valid_secret(keys: KeyRepository) -> None:
    key, secret = keys.create("laptop", Scope.READ)
    other = "hf_" + key.prefix + "x" * 35
    assert other != secret
    assert keys.verify(other) is None


def test_a_revoked_key_is_invalid_for_the_next_request_in_every_process(
    keys: KeyRepository, elsewhere: KeyRepository
) -> None:
    key, secret = keys.create("laptop", Scope.READ)
    assert opened(keys, secret) == opened(elsewhere, secret) == key.id
    revoked = elsewhere.revoke(key.id)
    assert revoked.revoked_at is not None
    assert opened(keys, secret) is opened(elsewhere, secret) is None


def test_revoking_twice_keeps_the_first_time(keys: KeyRepository, clock: FakeClock) -> None:
    key, _ = keys.create("laptop", Scope.READ)
    first = keys.revoke(key.id)
    clock.advance(HOUR)
    assert keys.revoke(key.id) == first
    with pytest.raises(UnknownKey):
        keys.revoke(key.id + 1)


def test_a_key_expires_by_the_clock_of_the_database(keys: KeyRepository, clock: FakeClock) -> None:
    _, secret = keys.create("guest", Scope.READ, expires_at=Moment(clock.now() + micros(HOUR)))
    clock.advance(HOUR - timedelta(microseconds=1))
    assert keys.verify(secret)
    clock.advance(timedelta(microseconds=1))
    assert keys.verify(secret) is None


def test_expired_and_revoked_keys_are_listed_too(keys: KeyRepository, clock: FakeClock) -> None:
    first, _ = keys.create("first", Scope.READ, expires_at=clock.now())
    second, _ = keys.create("second", Scope.ADMIN, bases=[7])
    keys.revoke(second.id)
    assert [key.name for key in keys.list_all()] == ["first", "second"]
    assert keys.get(first.id) == first
    with pytest.raises(UnknownKey):
        keys.get(second.id + 1)


def test_any_created_stays_true_after_the_only_key_is_revoked(keys: KeyRepository) -> None:
    assert not keys.any_created()
    key, _ = keys.create("only", Scope.ADMIN)
    keys.revoke(key.id)
    assert keys.any_created()


@pytest.mark.parametrize("name", ["", "  ", "x" * 201])
def test_a_key_needs_a_name(keys: KeyRepository, name: str) -> None:
    with pytest.raises(BadRequest):
        keys.create(name, Scope.READ)


def test_a_key_with_an_empty_list_of_bases_is_refused(keys: KeyRepository) -> None:
    with pytest.raises(BadRequest):
        keys.create("nothing", Scope.READ, bases=[])
    assert keys.list_all() == []


class TestLastUse:
    def test_is_not_written_by_requests(self, keys: KeyRepository, clock: FakeClock) -> None:
        key, secret = keys.create("laptop", Scope.READ)
        with statements() as seen:
            for _ in range(3):
                keys.verify(secret)
        assert not [sql for sql in seen if "UPDATE" in sql.upper() or "INSERT" in sql.upper()]
        assert keys.get(key.id).used_at is None
        assert keys.flush_uses() == 1
        assert keys.get(key.id).used_at == clock.now()
        assert keys.flush_uses() == 0

    def test_is_written_at_most_once_a_minute(
        self, keys: KeyRepository, elsewhere: KeyRepository, clock: FakeClock
    ) -> None:
        key, secret = keys.create("laptop", Scope.READ)
        first = clock.now()
        use(keys, secret)
        clock.advance(timedelta(seconds=59))
        assert use(keys, secret) == 0, "nothing is gathered for it"
        assert keys.get(key.id).used_at == first
        clock.advance(timedelta(seconds=1))
        keys.verify(secret)
        clock.advance(timedelta(seconds=1))
        elsewhere.verify(secret)
        keys.flush_uses()
        second = keys.get(key.id).used_at
        elsewhere.flush_uses()
        assert keys.get(key.id).used_at == second == first + micros(timedelta(minutes=1))

    def test_of_many_keys_is_written_together(self, keys: KeyRepository) -> None:
        made = [keys.create(f"key {number}", Scope.READ) for number in range(20)]
        for _, secret in made:
            keys.verify(secret)
        assert keys.flush_uses() == 20
        assert all(key.used_at for key in keys.list_all())

    def test_of_a_revoked_key_is_not_recorded(self, keys: KeyRepository) -> None:
        key, secret = keys.create("laptop", Scope.READ)
        keys.revoke(key.id)
        assert use(keys, secret) == 0


def use(keys: KeyRepository, secret: str) -> int:
    keys.verify(secret)
    return keys.flush_uses()


def test_the_repr_of_a_key_contains_no_secret(keys: KeyRepository) -> None:
    key, secret = keys.create("laptop", Scope.READ)
    assert isinstance(key, StoredKey)
    assert secret[11:] not in repr(key)
    assert hashlib.sha256(secret.encode()).hexdigest() not in repr(key)
