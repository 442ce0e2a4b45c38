"""Adoption: the guard takes over rows of an existing table, through the library and the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from holdfast.engine.states import Status
from holdfast.errors import BadRequest
from holdfast.guard import Guard
from holdfast.guard.adopt import AdoptionResult, AdoptionSource, adopt
from holdfast.settings import Settings
from holdfast.url_secrets import MASK
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 1203
DONE = [number for number in range(ROWS) if number % 3 == 0]


@pytest.fixture
def guard(database_url: str) -> Iterator[Guard]:
    made = Guard(Settings(database=database_url))
    made.work("index")
    yield made
    made.close()


@pytest.fixture
def source(database_url: str) -> AdoptionSource:
    """Create the table of an app in the same database."""
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE documents (id INTEGER PRIMARY KEY, is_active BOOLEAN, state TEXT)"))
        connection.execute(
            text("INSERT INTO documents VALUES (:id, :active, :state)"),
            [
                {"id": number, "active": number % 3 == 0, "state": "done" if number % 3 == 0 else "new"}
                for number in range(ROWS)
            ],
        )
    engine.dispose()
    return AdoptionSource(database=database_url, table="documents")


def test_active_rows_become_success_and_the_others_stay_not_indexed(guard: Guard, source: AdoptionSource) -> None:
    assert adopt(guard, "index", source) == AdoptionResult(success=len(DONE), not_indexed=ROWS - len(DONE), known=0)
    work = guard.works["index"]
    assert {work.status(str(number)).status for number in DONE[:5]} == {Status.SUCCESS}
    assert work.status("1").status is Status.NOT_INDEXED
    assert work.admit("0").reason == "already_indexed"
    assert work.admit("1").accepted
    assert work.history("0")[0].cause == "adopted"


def test_adopted_rows_start_no_work(guard: Guard, source: AdoptionSource) -> None:
    adopt(guard, "index", source)
    assert guard.store.claim_next(("index",), "anybody", 10) == []
    assert guard.store.find_unrung(["index"], 10).slots == []


def test_a_second_adoption_reports_all_rows_as_known(guard: Guard, source: AdoptionSource) -> None:
    adopt(guard, "index", source)
    assert adopt(guard, "index", source) == AdoptionResult(success=0, not_indexed=ROWS - len(DONE), known=len(DONE))


def test_adoption_does_not_change_keys_that_the_guard_already_knows(guard: Guard, source: AdoptionSource) -> None:
    work = guard.works["index"]
    running = work.admit("0")
    failed = work.admit("3")
    assert failed.job is not None
    work.perform(failed.job, lambda _run: None)
    assert adopt(guard, "index", source).known == 2
    assert work.status("0").status is Status.QUEUED
    assert work.admit("0").job == running.job
    assert work.status("3").status is Status.FAILED
    assert work.status("3").generation == 1


def test_adoption_does_not_change_a_key_that_was_requested_meanwhile(
    guard: Guard, source: AdoptionSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = guard.works["index"]
    look = guard.store.find_unknown_owners

    def late(base: str, owners: list[str]) -> list[str]:
        found = look(base, owners)
        work.admit("0")
        return found

    monkeypatch.setattr(guard.store, "find_unknown_owners", late)
    assert adopt(guard, "index", source).success == len(DONE) - 1
    assert work.status("0").status is Status.QUEUED


def test_an_interrupted_adoption_continues_where_it_stopped(
    guard: Guard, source: AdoptionSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))
    write = guard.store.adopt

    def stopping(requests: list[object]) -> int:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return write(requests)  # type: ignore[arg-type]

    monkeypatch.setattr(guard.store, "adopt", stopping)
    with pytest.raises(KeyboardInterrupt):
        adopt(guard, "index", source)
    again = adopt(guard, "index", source)
    assert 0 < again.known < len(DONE)
    assert again.known + again.success == len(DONE)


def test_a_dry_run_counts_and_writes_nothing(guard: Guard, source: AdoptionSource) -> None:
    assert adopt(guard, "index", source, dry_run=True).success == len(DONE)
    assert guard.works["index"].status("0").status is Status.NOT_INDEXED
    assert guard.store.events() == []


def test_any_sql_condition_of_the_table_can_select_the_active_rows(guard: Guard, source: AdoptionSource) -> None:
    by_state = AdoptionSource(database=source.database, table="documents", active="state = 'done'")
    assert adopt(guard, "index", by_state).success == len(DONE)


@pytest.mark.parametrize(
    ("table", "key", "active"), [("nothing", "id", "1=1"), ("documents", "isbn", "1=1"), ("documents", "id", "???")]
)
def test_an_unreadable_table_is_named_in_the_error(
    guard: Guard, source: AdoptionSource, table: str, key: str, active: str
) -> None:
    with pytest.raises(BadRequest, match=f"The table '{table}' cannot be read") as refused:
        adopt(guard, "index", AdoptionSource(database=source.database, table=table, key=key, active=active))
    assert refused.value.subcode == "adoption_table_unreadable"
    assert f"its key column '{key}' and the condition '{active}'" in str(refused.value)


def test_a_column_that_is_not_unique_is_refused_as_a_key(guard: Guard, source: AdoptionSource) -> None:
    with pytest.raises(BadRequest, match="The column 'state' of the table 'documents' has empty or repeated values"):
        adopt(guard, "index", AdoptionSource(database=source.database, table="documents", key="state"))


def test_a_row_without_a_key_is_refused(guard: Guard, source: AdoptionSource) -> None:
    engine = create_engine(source.database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE loose (id TEXT, is_active BOOLEAN)"))
        connection.execute(text("INSERT INTO loose VALUES (NULL, TRUE)"))
    engine.dispose()
    with pytest.raises(BadRequest, match=r"The column 'id' of the table 'loose' .*Name the primary key"):
        adopt(guard, "index", AdoptionSource(database=source.database, table="loose"))


@pytest.mark.parametrize(
    ("database", "shown"), [("nonsense", "nonsense"), ("me:hush@shop", MASK), ("mysql://me:hush@shop:hush/one", MASK)]
)
def test_an_invalid_database_address_is_refused_without_its_password(guard: Guard, database: str, shown: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(f"'{shown}' is not the address of a database")) as refused:
        adopt(guard, "index", AdoptionSource(database=database, table="documents"))
    assert "hush" not in str(refused.value)


def test_a_database_without_a_driver_is_refused_without_its_password(guard: Guard) -> None:
    with pytest.raises(BadRequest, match=r"is not installed .*unheard_of") as refused:
        adopt(guard, "index", AdoptionSource(database="unheard_of://me:hush@shop/one", table="documents"))
    assert "hush" not in str(refused.value)


def holdfast(*arguments: str, folder: Path, database: str) -> subprocess.CompletedProcess[str]:
    lines = ["import os", "from holdfast.guard import Guard", "guard = Guard(os.environ['SHOP'])"]
    (folder / "shop.py").write_text("\n".join([*lines, "guard.work('index')", "other = 1", ""]))
    return subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "guard", *arguments],
        cwd=folder,
        env=os.environ | {"SHOP": database, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_adopts_and_prints_a_summary(source: AdoptionSource, tmp_path: Path) -> None:
    asked = ("adopt", "shop:guard", "index", "--source", source.database, "--table", "documents")
    dry = holdfast(*asked, "--dry-run", folder=tmp_path, database=source.database)
    assert f"{len(DONE)} active rows would be adopted with the status success." in dry.stdout
    done = holdfast(*asked, folder=tmp_path, database=source.database)
    assert f"{len(DONE)} active rows were adopted with the status success." in done.stdout
    assert f"{ROWS - len(DONE)} rows are not active" in done.stdout
    again = holdfast(*asked, folder=tmp_path, database=source.database)
    assert f"{len(DONE)} active rows were adopted before." in again.stdout


@pytest.mark.parametrize(
    ("guard_", "work", "sentence"),
    [
        ("shop:guard", "cards", "The guard 'shop:guard' has no work named 'cards'. It has: index."),
        ("shop:nobody", "index", "The guard 'shop:nobody' cannot be loaded"),
        ("nowhere:guard", "index", "cannot be loaded"),
        ("shop:other", "index", "'shop:other' is of the type int, not a Guard."),
    ],
)
def test_the_command_explains_what_it_cannot_find(
    tmp_path: Path, sqlite_url: str, guard_: str, work: str, sentence: str
) -> None:
    ran = holdfast("adopt", guard_, work, "--source", sqlite_url, "--table", "x", folder=tmp_path, database=sqlite_url)
    assert ran.returncode == 1
    assert sentence in ran.stderr
    assert "Traceback" not in ran.stderr


def test_reconcile_with_once_ends_after_one_pass(tmp_path: Path, sqlite_url: str) -> None:
    assert holdfast("reconcile", "shop:guard", "--once", folder=tmp_path, database=sqlite_url).returncode == 0
    broken = holdfast("reconcile", "shop:guard", "--once", folder=tmp_path, database="sqlite:////no/such/folder/x.db")
    assert broken.returncode == 1
    assert "Check that its folder exists" in broken.stderr


def test_the_guard_imports_few_packages(tmp_path: Path) -> None:
    seen = subprocess.run(
        [
            sys.executable,
            "-I",  # without what PYTHONPATH adds
            "-c",
            "import sys; from holdfast.guard import Guard; print(*{name.partition('.')[0] for name in sys.modules})",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "sqlalchemy" in seen
    # Modules of SQLAlchemy and of our import path.
    compiled = {name for name in seen if name.startswith("_")} | {"cython_runtime"}
    assert set(seen) - set(sys.stdlib_module_names) - compiled <= {
        "holdfast",
        "lazy_loader",
        "sqlalchemy",
        "typing_extensions",
        "greenlet",
    }
