"""Stores for tests, on a SQLite file or on a separate database of the PostgreSQL server that the tests start."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, text

from holdfast.engine.admission import Request
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.rules import Rules
from holdfast.engine.states import Operation
from holdfast.engine.store.factory import open_store

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.engine.store.sql_store import SqlStore

CONTENT = SlotSpec("content")
VECTOR = SlotSpec("vector", "content")
GRAPH = SlotSpec("graph", "content")
DOCUMENT = (CONTENT, VECTOR, GRAPH)
ONE = (SlotSpec("cards"),)


def open_test_store(url: str, clock: Clock, rules: Rules | None = None, **more: Any) -> SqlStore:
    """Open a store whose database uses this clock and whose job ids are predictable."""
    numbers = itertools.count(1)
    store = open_store(url, rules=rules or Rules(), clock=clock, **{"ids": lambda: f"job-{next(numbers)}", **more})
    if store.database.engine.dialect.name == "postgresql":
        follow_clock(store, clock)
    return store


def follow_clock(store: SqlStore, clock: Clock) -> None:
    """Make PostgreSQL use this clock: each transaction first sets the current time in the database."""
    with store.database.engine.begin() as connection:
        connection.execute(
            text(
                "CREATE OR REPLACE FUNCTION holdfast_now() RETURNS bigint LANGUAGE sql STABLE AS "
                "$$ SELECT current_setting('holdfast.now')::bigint $$"
            )
        )

    @event.listens_for(store.database.engine, "begin")
    def _tell_time(connection: Any) -> None:
        connection.exec_driver_sql(f"SELECT set_config('holdfast.now', '{clock.now()}', false)")


def request(owner: str = "doc", operation: Operation = Operation.INDEX, **more: Any) -> Request:
    """Return a request for an owner in the base `shelf`, with three slots unless `more` names others."""
    creates = operation in (Operation.INDEX, Operation.FORCE, Operation.CHANGE)
    return Request(
        **{
            "base": "shelf",
            "owner": owner,
            "operation": operation,
            "slots": DOCUMENT if creates else (),
            **more,
        }
    )
