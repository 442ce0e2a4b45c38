"""The store refuses invalid requests, addresses and files with a clear error, and changes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import inspect, text

from holdfast.clock import SystemClock
from holdfast.db import ConnectionOptions
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.rules import Rules
from holdfast.engine.slot import Fault, SlotId
from holdfast.engine.states import Operation
from holdfast.engine.store.base import Failure
from holdfast.engine.store.factory import open_database, open_store
from holdfast.errors import (
    BadRequest,
    BadSettings,
    StoreBusy,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
    UnknownJob,
    UnknownOwner,
    UnknownSlot,
)
from tests.contract.steps import ask, beat, everything, ring_of, states, take
from tests.support.stores import ONE, open_test_store, request
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.engine.store.sql_store import SqlStore
    from tests.support.clock import FakeClock

O = Operation  # noqa: E741 - short names keep the tables readable


def open_plainly(url: str) -> SqlStore:
    return open_store(url, rules=Rules(), clock=SystemClock())


@pytest.mark.parametrize(
    ("wrong", "code", "sentence"),
    [
        ({"base": ""}, "request_unnamed", "The request names no base or no owner. Name both."),
        ({"owner": ""}, "request_unnamed", "The request names no base or no owner. Name both."),
        ({"priority": -1}, "priority_out_of_range", "The priority is -1. Choose a number from 0 (first) to 9 (last)."),
        ({"priority": 10}, "priority_out_of_range", "The priority is 10. Choose a number from 0 (first) to 9 (last)."),
        ({"slots": (SlotSpec("a"), SlotSpec("a"))}, "slot_kind_repeated", "The request lists the slot 'a' twice."),
        ({"slots": (SlotSpec("a", "b"),)}, "slot_dependency_missing", "The slot 'a' needs the slot 'b', which"),
        ({"slots": (SlotSpec("a", "b"), SlotSpec("b", "a"))}, "slot_dependency_cycle", "slots 'a, b' form a cycle"),
        ({"slots": (SlotSpec("a", ""),)}, "slot_dependency_missing", "The slot 'a' needs the slot '', which"),
        ({"operation": O.RENEW}, "kinds_missing", "The operation 'renew' needs the kinds of the slots"),
        ({"operation": O.DROP}, "kinds_missing", "The operation 'drop' needs the kinds of the slots"),
        ({"kinds": ("a",)}, "kinds_unexpected", "but the operation 'index' applies to all slots"),
        ({"operation": O.RENEW, "kinds": ("x", "y")}, "renewed_slot_not_listed", "The request renews 'x, y', but"),
    ],
    ids=str,
)
def test_an_invalid_request_is_refused(store: SqlStore, wrong: dict[str, Any], code: str, sentence: str) -> None:
    before = everything(store)
    with pytest.raises(BadRequest, match=re.escape(sentence)) as refused:
        ask(store, **wrong)
    assert refused.value.subcode == code
    assert everything(store) == before


@pytest.mark.parametrize(
    ("wrong", "code", "field"),
    [
        pytest.param({"slots": (SlotSpec(""),)}, "slot_kind_empty", None, id="a kind without a name"),
        pytest.param({"owner": "a\0b"}, "nul_character", "owner", id="an owner with a zero byte"),
        pytest.param({"base": "a\0b"}, "nul_character", "base", id="a base with a zero byte"),
        pytest.param({"slots": (SlotSpec("a\0b"),)}, "nul_character", "slots", id="a kind with a zero byte"),
        pytest.param({"requester": "a\0b"}, "nul_character", "requester", id="a requester with a zero byte"),
        pytest.param({"payload": "a\0b"}, "nul_character", "payload", id="a payload with a zero byte"),
        pytest.param({"owner": "caf\udce9"}, "lone_surrogate", "owner", id="a file name that is not text"),
        pytest.param({"cost": float("nan")}, "cost_not_finite", None, id="a cost that is no number"),
        pytest.param({"cost": float("inf")}, "cost_not_finite", None, id="a cost without end"),
    ],
)
def test_a_request_with_values_that_no_database_can_store_is_refused(
    store: SqlStore, wrong: dict[str, Any], code: str, field: str | None
) -> None:
    before = everything(store)
    with pytest.raises(BadRequest) as refused:
        ask(store, **wrong)
    assert (refused.value.subcode, refused.value.params.get("field")) == (code, field)
    str(refused.value).encode()
    assert everything(store) == before


@pytest.mark.parametrize(
    "name", ["a" * 10_000, "Straße/日本語/🙂", "'; DROP TABLE slots; --", '{"json": [1]}', "%s :rows"]
)
def test_a_name_may_be_any_text(store: SqlStore, name: str) -> None:
    assert ask(store, name, base=name, slots=(SlotSpec(name),), requester=name).accepted
    slot = store.slot(name, name, name)
    (ticket,) = store.claim([ring_of(slot)], name)
    assert (ticket.key.base, ticket.key.owner, ticket.key.kind) == (name, name, name)
    assert store.slot(name, name, name).holder == name


def test_a_progress_report_with_invalid_text_still_renews_the_lease(store: SqlStore, clock: FakeClock) -> None:
    ask(store, slots=ONE)
    ticket = take(store, "cards")
    for stage in ("reading caf\udce9.txt", "reading a\0b.txt"):
        store.extend([beat(ticket, stage=stage, done=1)])
        assert store.slot("shelf", "doc", "cards").progress.stage.startswith("reading ")


def test_invalid_characters_in_an_error_are_replaced(store: SqlStore) -> None:
    ask(store, slots=ONE)
    fault = Fault("unexpected", {"message": "caf\udce9 a\0b"})
    store.fail([Failure(ticket=take(store, "cards"), fault=fault)])
    assert store.slot("shelf", "doc", "cards").error == Fault("unexpected", {"message": "caf? a\ufffdb"})


def test_an_unknown_owner_slot_or_job_raises_its_own_error(store: SqlStore) -> None:
    ask(store, slots=ONE)
    with pytest.raises(UnknownOwner):
        store.owner("shelf", "nobody")
    with pytest.raises(UnknownSlot):
        store.slot("shelf", "doc", "graph")
    with pytest.raises(UnknownJob):
        store.job("")


@pytest.mark.parametrize(
    "wrong",
    [
        {"generation": 0},
        {"generation": 2},
        {"generation": -1},
        {"generation": 2**40},
        {"generation": 2**70},
        {"slot": SlotId(0)},
        {"slot": SlotId(2**70)},
        {"owner": 2**40},
    ],
    ids=str,
)
def test_a_ring_for_an_unknown_slot_owner_or_generation_claims_nothing(store: SqlStore, wrong: dict[str, Any]) -> None:
    ask(store, slots=ONE)
    before = everything(store)
    assert store.claim([ring_of(store.slot("shelf", "doc", "cards"), **wrong)], "ann") == []
    assert everything(store) == before


@pytest.mark.parametrize("url", ["", "holdfast.db", "://", "sqlite", "postgresql"])
def test_an_invalid_database_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(BadSettings) as refused:
        open_plainly(url)
    assert refused.value.subcode == "database_address_invalid"
    assert str(refused.value) == (
        f"HOLDFAST_DATABASE is '{url}', which is not the address of a database. Write sqlite:///path/to/holdfast.db or "
        "postgresql+psycopg://user@host/database."
    )


@pytest.mark.parametrize("url", ["me:secret@db/one", "postgresql://me:secret@db:secret/one"])
def test_the_error_for_an_invalid_address_does_not_show_its_password(url: str) -> None:
    with pytest.raises(BadSettings, match="is not the address of a database") as refused:
        open_plainly(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(("url", "backend"), [("mysql://host/db", "mysql"), ("redis://host/0", "redis")])
def test_an_unsupported_database_is_refused_and_named(url: str, backend: str) -> None:
    with pytest.raises(BadSettings, match=f"names a '{backend}' database, but .* only SQLite and PostgreSQL"):
        open_plainly(url)


@pytest.mark.parametrize("driver", ["psycopg2", "unheard_of"])
def test_a_driver_that_is_not_installed_is_refused(driver: str) -> None:
    with pytest.raises(BadSettings, match=f"The database driver 'postgresql\\+{driver}' is not installed"):
        open_plainly(f"postgresql+{driver}://localhost/db")


def test_an_unreachable_server_is_reported_as_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match=r"PostgreSQL refused or lost the connection \(.*port 1 failed"):
        open_plainly("postgresql+psycopg://nobody@127.0.0.1:1/nowhere?connect_timeout=2")


def test_a_missing_folder_is_reported_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "holdfast.db"
    with pytest.raises(StoreUnavailable) as refused:
        open_plainly(f"sqlite:///{path}")
    assert refused.value.subcode == "database_not_opened"
    assert str(refused.value) == (
        f"The database '{path}' cannot be opened (No such file or directory). Check that its folder exists and is "
        "writable."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_refused_as_a_database(tmp_path: Path) -> None:
    (folder := tmp_path / "data").mkdir()
    with pytest.raises(StoreUnavailable, match="data' cannot be opened, because it is a folder"):
        open_plainly(f"sqlite:///{folder}")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_pipe_is_refused_as_a_database(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "holdfast.db")
    with pytest.raises(StoreUnavailable, match="cannot be opened, because it is not a regular file"):
        open_plainly(f"sqlite:///{pipe}")


def test_a_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    content = b"Dear diary, today I was mistaken for a database.\n" * 100
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"The file '{path}' is not a SQLite database"):
        open_plainly(f"sqlite:///{path}")
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["holdfast.db"]


def test_a_damaged_database_is_reported_as_damaged_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    open_plainly(f"sqlite:///{path}").close()
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xaa" * 3996  # the list of tables, which follows the file header
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"The database file '{path}' is damaged"):
        open_plainly(f"sqlite:///{path}")
    assert path.read_bytes() == content


def test_a_database_of_a_newer_version_is_refused_and_unchanged(database_url: str, clock: FakeClock) -> None:
    store = open_test_store(database_url, clock)
    ask(store)
    with store.database.engine.begin() as connection:
        connection.execute(text("UPDATE holdfast_version SET version_num = '9999'"))
        connection.execute(text("ALTER TABLE slots ADD COLUMN colour TEXT"))
        connection.execute(text("CREATE TABLE colours (name TEXT)"))
    before = everything(store), inspect(store.database.engine).get_table_names()
    with pytest.raises(StoreTooNew, match=r"to schema 9999\. This version knows schemas up to \d{4}\."):
        open_plainly(database_url)
    assert (everything(store), inspect(store.database.engine).get_table_names()) == before
    columns = [column["name"] for column in inspect(store.database.engine).get_columns("slots")]
    assert "colour" in columns
    store.close()


# Drops all capabilities, so that file modes apply even to root. Then tries to write.
TRY_TO_WRITE = """
import ctypes, sys
from holdfast.engine.admission import Request
from holdfast.clock import SystemClock
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.rules import Rules
from holdfast.engine.states import Operation
from holdfast.engine.store.factory import open_store

header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(header, nothing) == 0
try:
    store = open_store(sys.argv[1], rules=Rules(), clock=SystemClock())
    store.admit([Request(base="shelf", owner="new", operation=Operation.INDEX, slots=(SlotSpec("cards"),))])
except Exception as error:
    print(type(error).__name__, error, sep=": ")
else:
    print("written")
"""


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "expected"),
    [
        (0o644, 0o755, "written"),
        (0o444, 0o755, "StoreReadOnly: The database '.*' is not writable"),
        (0o644, 0o555, "Store(ReadOnly|Unavailable): The database '.*' (is not writable|cannot be opened)"),
        (0o444, 0o555, "Store(ReadOnly|Unavailable): The database '.*' (is not writable|cannot be opened)"),
        (0o000, 0o755, "StoreUnavailable: The database '.*' cannot be opened"),
    ],
    ids=lambda value: oct(value) if isinstance(value, int) else "",
)
def test_a_read_only_file_or_folder_is_reported_and_unchanged(
    tmp_path: Path, file_mode: int, folder_mode: int, expected: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "holdfast.db"
    open_plainly(f"sqlite:///{path}").close()
    before = path.read_bytes()
    path.chmod(file_mode)
    folder.chmod(folder_mode)
    try:
        said = run(TRY_TO_WRITE, f"sqlite:///{path}")
    finally:
        folder.chmod(0o755)
        path.chmod(0o644)
    assert re.match(expected, said), said
    if expected != "written":
        assert path.read_bytes() == before
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM owners").fetchone() == (0,)


def test_a_new_database_in_a_read_only_folder_is_not_created(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o555)
    said = run(TRY_TO_WRITE, f"sqlite:///{folder / 'holdfast.db'}")
    assert re.match("Store(ReadOnly|Unavailable): The database '.*' (is not writable|cannot be opened)", said), said
    assert list(folder.iterdir()) == []


@pytest.mark.postgres
def test_a_server_that_accepts_no_writes_is_reported_as_read_only(postgres_url: str) -> None:
    open_plainly(postgres_url).close()
    database = open_database(postgres_url, SystemClock())
    with database.engine.begin() as connection:
        name = connection.execute(text("SELECT current_database()")).scalar()
        connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'))
    database.close()
    assert run(TRY_TO_WRITE, postgres_url).startswith("StoreReadOnly: PostgreSQL accepts no writes")


@pytest.mark.postgres
def test_a_database_user_without_write_permission_gets_a_read_only_error(postgres_url: str) -> None:
    store = open_plainly(postgres_url)
    with store.database.engine.begin() as connection:
        if not connection.execute(text("SELECT 1 FROM pg_roles WHERE rolname = 'reader'")).scalar():
            connection.execute(text("CREATE ROLE reader LOGIN"))
        connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"))
    store.close()
    said = run(TRY_TO_WRITE, postgres_url.replace("postgres@", "reader@"))
    assert said.startswith("StoreReadOnly: The PostgreSQL user has no permission to write (permission denied")


# Writes until the disk is full, then checks that exactly the accepted requests are stored. Then frees space and
# writes again. `room` is either a limit on the file size of the process, or a small file system with a filler file.
FILL = """
import json, os, resource, sqlite3, subprocess, sys
from pathlib import Path
from holdfast.engine.admission import Request
from holdfast.clock import SystemClock
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.rules import Rules
from holdfast.engine.states import Operation
from holdfast.errors import HoldfastError
from holdfast.engine.store.factory import open_store

room, folder = sys.argv[1], Path(sys.argv[2])
if room == "file system":
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        print(json.dumps({"refused": mounted.stderr}))
        sys.exit()
path = folder / "holdfast.db"
store = open_store(f"sqlite:///{path}", rules=Rules(), clock=SystemClock())
slots = (SlotSpec("content"), SlotSpec("vector", "content"))


def admit(name):
    answer, = store.admit([Request(base="shelf", owner=name, operation=Operation.INDEX, slots=slots)])
    assert answer.accepted
    return name


if room == "file system":
    space = os.statvfs(folder)
    (folder / "filler").write_bytes(bytes(space.f_bavail * space.f_frsize - 300_000))
else:
    largest = max(file.stat().st_size for file in folder.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 200_000, resource.RLIM_INFINITY))
accepted, errors = [], []
while len(errors) < 3:
    try:
        accepted.append(admit(f"{len(accepted)} {'x' * 2000}"))
    except HoldfastError as error:
        errors.append([type(error).__name__, str(error)])
    assert len(accepted) < 10_000, "the disk never filled"


def look():
    connection = sqlite3.connect(path)
    found = {
        "integrity": connection.execute("PRAGMA integrity_check").fetchall(),
        "owners": [name for name, in connection.execute("SELECT owner FROM owners ORDER BY id")],
        "slots": connection.execute("SELECT count(*) FROM slots").fetchone()[0],
        "open": connection.execute("SELECT coalesce(sum(open), 0) FROM jobs WHERE outcome IS NULL").fetchone()[0],
        "events": connection.execute("SELECT count(*) FROM events").fetchone()[0],
    }
    connection.close()
    return found


full = look()
if room == "file system":
    (folder / "filler").unlink()
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
again = admit("after")
store.close()
print(json.dumps({"errors": errors, "accepted": accepted, "full": full, "after": look()}))
"""


def check_that_nothing_is_half_written(told: dict[str, Any]) -> None:
    accepted = told["accepted"]
    assert accepted, "something fitted"
    for found, names in ((told["full"], accepted), (told["after"], [*accepted, "after"])):
        assert found == {
            "integrity": [["ok"]],
            "owners": names,
            "slots": 2 * len(names),
            "open": 2 * len(names),
            "events": 2 * len(names),
        }


def test_a_file_size_limit_is_reported_and_leaves_no_partial_write(tmp_path: Path) -> None:
    told = json.loads(run(FILL, "limit", str(tmp_path)))
    for kind, sentence in told["errors"]:
        assert kind in ("StoreError", "StoreFull")
        assert "Nothing was written" in sentence
    check_that_nothing_is_half_written(told)


def test_a_full_disk_is_reported_and_leaves_no_partial_write(tmp_path: Path) -> None:
    missing = [tool for tool in ("unshare", "mount") if shutil.which(tool) is None]
    if missing:
        assert os.environ.get("CI") != "true", f"install {missing}: continuous integration must fill a disk"
        pytest.skip(f"there is no {missing[0]} to make a small disk with")
    command = ["unshare", "-rm", sys.executable, "-c", FILL, "file system", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    told = json.loads(done.stdout) if done.stdout else {}
    if "refused" in told or (done.returncode and done.stderr.startswith("unshare:")):
        pytest.skip(f"this kernel lets us make no small disk: {told.get('refused') or done.stderr}")
    assert done.returncode == 0, done.stderr
    for kind, sentence in told["errors"]:
        assert kind == "StoreFull"
        assert "The disk is full. Nothing was written. Free some space for '" in sentence
    check_that_nothing_is_half_written(told)


KEEP_LOCKED = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(path: Path, statement: str) -> Iterator[None]:
    """Keep a database locked from another process."""
    with subprocess.Popen(
        [sys.executable, "-c", KEEP_LOCKED, str(path), statement],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield
        process.communicate()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.db.sqlite.BUSY_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_database_locked_by_another_program_is_busy_until_the_lock_is_released(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "holdfast.db"
    store = open_test_store(f"sqlite:///{path}", clock)
    ask(store)
    ticket = take(store, "content")
    before = everything(store)
    with locked(path, "BEGIN IMMEDIATE"):
        with pytest.raises(StoreBusy, match=f"Another program has locked the database '{path}'"):
            ask(store, "other")
        with pytest.raises(StoreBusy):
            store.extend([beat(ticket)])
        with pytest.raises(StoreBusy), store.guarded(ticket):
            pytest.fail("nobody may enter")
        assert everything(store) == before, "readers do not wait"
    assert ask(store, "other").accepted
    assert states(store)["content"] == "running"
    store.close()


@pytest.mark.usefixtures("impatient")
def test_a_new_database_locked_by_another_program_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    with locked(path, "BEGIN EXCLUSIVE"), pytest.raises(StoreBusy):
        open_plainly(f"sqlite:///{path}")
    open_plainly(f"sqlite:///{path}").close()


def test_one_bad_request_refuses_its_whole_batch(store: SqlStore) -> None:
    with pytest.raises(BadRequest):
        store.admit([request("good"), request("", O.DELETE), request("better")])
    with pytest.raises(UnknownOwner):
        store.owner("shelf", "good")


OTHER = """
import sys
from holdfast.clock import SystemClock
from holdfast.engine.rules import Rules
from holdfast.engine.store.factory import open_store
from tests.support.stores import request
store = open_store(sys.argv[1], rules=Rules(), clock=SystemClock())
store.admit([request("other")])
store.close()
"""


def test_opening_a_file_twice_in_one_process_keeps_its_locks(sqlite_url: str) -> None:
    """A process that opens and closes the file without SQLite drops its POSIX locks.

    Another process could then delete the write-ahead log while the first one still uses it.
    """
    first = open_plainly(sqlite_url)
    first.admit([request("first")])
    open_plainly(sqlite_url).close()
    subprocess.run([sys.executable, "-c", OTHER, sqlite_url], check=True)
    assert first.owner("shelf", "other").name == "other"
    assert first.admit([request("third")])[0].accepted
    first.close()
    again = open_plainly(sqlite_url)
    assert again.owner("shelf", "third").name == "third"
    again.close()


@pytest.mark.postgres
def test_a_lock_timeout_is_reported_as_busy(postgres_url: str) -> None:
    short = ConnectionOptions(lock=timedelta(milliseconds=200))
    store = open_store(postgres_url, rules=Rules(), clock=SystemClock(), connections=short)
    store.admit([request("doc")])
    with store.database.engine.begin() as connection:
        connection.execute(text("SELECT id FROM owners FOR UPDATE"))
        with pytest.raises(StoreBusy, match=r"locked for more than 0\.2 s\. Nothing was written\. Try again"):
            store.admit([request("doc", Operation.DELETE)])
    assert store.admit([request("doc", Operation.DELETE)])[0].accepted
    store.close()


@pytest.mark.postgres
def test_a_statement_that_was_never_sent_is_not_reported_as_a_lost_connection(
    postgres_url: str, clock: FakeClock
) -> None:
    store = open_test_store(postgres_url, clock)
    with pytest.raises(psycopg.ProgrammingError, match="placeholders"), store.database.reading() as tx:
        tx.run_sql("SELECT 1 WHERE '%h' = %s", ["x"])
    store.close()
