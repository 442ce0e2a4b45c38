"""Counts the work of read operations, which is the same on a busy and on an idle machine."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from tests.support.explain import Explained, ExplainingDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.db.database import Database

STEP = 100  # instructions of SQLite between two calls of the counter


@contextmanager
def counting_reads(database: Database) -> Iterator[Callable[[Callable[[], object]], float]]:
    """Return a function that runs an operation and returns its cost.

    On PostgreSQL the cost is the number of rows that its scans read, on SQLite the number of instructions of the
    virtual machine.
    """
    count = _count_rows if database.engine.dialect.name == "postgresql" else _count_instructions
    with count(database) as measure:
        yield measure


@contextmanager
def _count_rows(database: Database) -> Iterator[Callable[[Callable[[], object]], float]]:
    plain = database.dialect
    database.dialect = explaining = ExplainingDialect(plain)

    def measure(operation: Callable[[], object]) -> float:
        explaining.explained = explained = Explained()
        operation()
        explaining.explained = None
        return explained.rows

    try:
        yield measure
    finally:
        database.dialect = plain


@contextmanager
def _count_instructions(database: Database) -> Iterator[Callable[[Callable[[], object]], float]]:
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def watch(driver: Any, *_: Any) -> None:
        driver.set_progress_handler(step, STEP)

    def release(driver: Any, *_: Any) -> None:
        driver.set_progress_handler(None, STEP)

    def measure(operation: Callable[[], object]) -> float:
        nonlocal steps
        steps = 0
        operation()
        return steps * STEP

    event.listen(database.engine, "checkout", watch)
    event.listen(database.engine, "checkin", release)
    try:
        yield measure
    finally:
        event.remove(database.engine, "checkout", watch)
        event.remove(database.engine, "checkin", release)
