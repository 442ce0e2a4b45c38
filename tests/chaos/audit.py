"""Reads the contents of all stores at the end of a run, through the API, with SQL, and from the disk or the bucket."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg

from tests.chaos.system import WEBHOOK_TYPES
from tests.chaos.texts import find_marks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.system import System

Json = dict[str, Any]
ALL = 500
WORD_SEGMENTS = ("_data", "_idx")  # FTS5 keeps deleted words in segments until it merges them, see docs/documents.md
COLLECTED_SECONDS = 120.0  # an expired record of a file is handled within this time
AT_REST = "('ready', 'failed', 'cancelled')"


class Tables:
    """Reads the database directly. It knows the names of few columns, and scans all tables for marks."""

    def __init__(self, system: System) -> None:
        self._system = system

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        if self._system.dsn:
            with psycopg.connect(self._system.dsn) as postgres:
                return postgres.execute(statement.encode()).fetchall()
        with closing(sqlite3.connect(self._system.home / "holdfast.db", timeout=30)) as database:
            return database.execute(statement).fetchall()

    def names(self) -> list[str]:
        if self._system.dsn:
            where = "information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
            return [name for (name,) in self.query(f"SELECT table_name FROM {where}")]  # noqa: S608
        listed = self.query("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
        return [name for (name,) in listed if not name.endswith(WORD_SEGMENTS)]

    def write(self, path: Path) -> None:
        """Write all rows of all tables, for an engineer who examines a failed run."""
        with path.open("w") as file:
            for name in self.names():
                for row in self.query(f'SELECT * FROM "{name}"'):  # noqa: S608 - a name that the database has told
                    file.write(json.dumps([name, *row], default=repr) + "\n")

    def marks(self) -> dict[str, list[str]]:
        """Return the marks that each table contains, in any column."""
        found: dict[str, set[str]] = {}
        for name in self.names():
            for row in self.query(f'SELECT * FROM "{name}"'):  # noqa: S608 - a name that the database has told
                marks = {str(mark) for cell in row if isinstance(cell, str) for mark in find_marks(cell)}
                if marks:
                    found.setdefault(name, set()).update(marks)
        return {name: sorted(marks) for name, marks in found.items()}


def read_documents(system: System) -> list[Json]:
    found = []
    for base in system.request("GET", "/bases"):
        place = f"/bases/{base['name']}/documents"
        listed = system.request("GET", place, params={"page_size": ALL})["items"]
        found += [_document(one) | (_contents(system, place, one) if one["sha256"] else NOTHING) for one in listed]
    return found


NOTHING: Json = {"chunks": [], "text": [], "original": []}


def _document(one: Json) -> Json:
    fields = ("id", "base", "name", "kind", "status", "generation", "built", "sha256", "parent", "why")
    return {name: one[name] for name in fields}


def _contents(system: System, place: str, one: Json) -> Json:
    document = f"{place}/{one['id']}"
    chunks = system.request("GET", f"{document}/chunks", params={"limit": ALL})["items"]
    return {
        "chunks": [mark for chunk in chunks for mark in _marks(chunk["text"])],
        "text": _marks(system.request("GET", f"{document}/text")["text"]),
        "original": _marks(system.download(f"{document}/original").decode()),
    }


def _marks(text: str) -> list[str]:
    return [str(mark) for mark in find_marks(text)]


def read_events(system: System, topics: Sequence[str] = ()) -> list[Json]:
    """Return the whole log, or only the events of some topics."""
    found: list[Json] = []
    cursor = "0-0"
    while page := system.request("GET", "/events/after", params={"cursor": cursor, "limit": ALL, "topic": topics}):
        if not page["items"]:
            return found
        found += [
            {"id": one["id"], "name": one["type"], "document": one["document"], "job": one["job"]}
            for one in page["items"]
        ]
        cursor = page["next_cursor"] or found[-1]["id"]
    return found


def read_jobs(tables: Tables) -> list[Json]:
    columns = ("id", "base", "owner", "operation", "outcome", "open", "created_at", "finished_at")
    rows = tables.query(f"SELECT {', '.join(columns)} FROM jobs ORDER BY created_at")  # noqa: S608
    return [dict(zip(columns, row, strict=True)) for row in rows]


def read_stores(system: System, tables: Tables) -> Json:
    """Return what must be equal at rest: files and rows, and everything that no document needs."""
    records = tables.query("SELECT id, due_at FROM library_files")
    late = (time.time() - COLLECTED_SECONDS) * 1_000_000
    pending = tuple(id_ for id_, due_at in records if due_at > late)  # uploads that the garbage collector may not touch
    return {
        "files": [name for name in system.stored_files() if not name.endswith(pending)],
        "blobs": sorted(blob for (blob,) in tables.query("SELECT blob FROM library_items WHERE blob IS NOT NULL")),
        "file_records": [id_ for id_, due_at in records if due_at <= late],
        "rows": tables.marks(),
        "doctor": system.request("POST", "/doctor", params={"deep": True}),
        "active_slots": [
            list(row)
            for row in tables.query(
                f"SELECT id, owner_id, kind, state, attempts, error_code FROM slots WHERE state NOT IN {AT_REST}"  # noqa: S608
            )
        ],
    }


def read_everything(system: System) -> Json:
    tables = Tables(system)
    stores = read_stores(system, tables)
    return {
        **stores,
        "documents": read_documents(system),
        "jobs": read_jobs(tables),
        "events": read_events(system),
        "webhook_types": WEBHOOK_TYPES,
    }
