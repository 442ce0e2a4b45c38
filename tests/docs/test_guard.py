"""The Python code of the pages about the guard runs as printed, on SQLite and with a broker in memory."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from celery import Celery
from sqlalchemy import column, create_engine, insert, inspect, table, text
from starlette.responses import JSONResponse

from holdfast.guard import Finished, Guard, Run
from holdfast.guard.callbacks import Callbacks, new_secret
from holdfast.guard.celery import GuardedTask, guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXAMPLE = ROOT / "examples/study_cards"
TEXT = (DOCS / "guard.md").read_text()


def read_blocks(page: str) -> list[str]:
    """Return the Python code of a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


(
    DECLARED,
    ASKED,
    AWAITED,
    LOOKED,
    CANVAS,
    FUNCTION,
    _ADAPTERS,
    ROWS,
    OUTSIDE,
    TOLD,
    CALLBACK,
    REPORTED,
    LOOKED_UP,
    _RAISED,
) = read_blocks("guard.md")
_PAGE, SPENT, LIMITED, _METRICS, TABLES, MIGRATION, _LOCKED = read_blocks("guard-operations.md")
_BEFORE, MIGRATED, KEYED = read_blocks("guard-migrating.md")
(SAID,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
PLACE = "postgresql+psycopg://app@db/app"


def run(words: str, known: dict[str, Any]) -> None:
    """Run a code block of the document with these names."""
    exec(words, known)  # noqa: S102 - the code comes from our own document


@pytest.fixture
def shop(sqlite_url: str) -> Iterator[dict[str, Any]]:
    """The module `shop.tasks` of a user who has copied the five lines."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    known: dict[str, Any] = {"__name__": "shop.tasks", "app": app, "chunks": ["one", "two"]}
    assert PLACE in DECLARED
    run(DECLARED.replace(PLACE, sqlite_url), known)
    yield known
    with app.connection_for_read() as connection, connection.SimpleQueue("celery") as waiting:
        waiting.clear()  # the queue in memory outlives the app
    known["guard"].close()
    app.close()


def test_a_repeated_request_gets_the_documented_answer(shop: dict[str, Any]) -> None:
    shop["JSONResponse"] = JSONResponse
    run("def ask():\n" + indent(ASKED, "    "), shop)
    assert shop["ask"]() is None
    again = shop["ask"]()
    assert again.status_code == 409
    told, said = json.loads(again.body), json.loads(SAID)
    assert told.keys() == said.keys()
    assert {name: told[name] for name in ("key", "verdict", "reason")} == {
        name: said[name] for name in ("key", "verdict", "reason")
    }
    assert told["message"] == said["message"].replace(said["state"], told["state"])


def test_the_documented_canvases_get_their_results(shop: dict[str, Any]) -> None:
    app, heard = shop["app"], list[Any]()
    app.conf.task_always_eager = True

    @app.task  # type: ignore[untyped-decorator]  # Celery has no types
    def hear(value: Any) -> None:
        heard.append(value)

    shop["notify"] = shop["summarise"] = hear
    run("from celery import chain, chord\n" + CANVAS, shop)
    assert heard == ["indexed", ["indexed", "indexed"]]


def test_the_documented_calls_show_and_cancel_work(shop: dict[str, Any]) -> None:
    asked = shop["index_document"].delay(42, user_id=7)
    run(LOOKED, shop)
    assert shop["work"].history("42")[0].id == asked.id
    assert str(shop["work"].status("42").status) == "not_indexed"


def test_the_documented_coroutines_request_query_and_cancel_work(shop: dict[str, Any]) -> None:
    shop["work"] = shop["guard"].work("awaited")
    run("async def ask():\n" + indent(AWAITED, "    ") + "    return admission, status, asked", shop)
    admission, status, asked = asyncio.run(shop["ask"]())
    assert admission.accepted
    assert asked.admission.accepted
    assert str(status.status) == "queued"
    assert str(shop["work"].status("42").status) == "not_indexed"


def test_the_documented_reports_are_found_by_the_id_of_the_job(shop: dict[str, Any]) -> None:
    work = shop["guard"].work("reported")
    job = work.admit("42").job

    def build(task: Run) -> str:
        run(REPORTED, {"run": task, "pairs": [1]})
        return "built"

    work.perform(job, build)
    run(LOOKED_UP.replace("18c7…", job), shop)
    assert shop["job"].counters == {"qa_pairs": 12}
    assert shop["job"].state == "succeeded"


def test_the_documented_quotas_and_spending_are_those_of_the_work(shop: dict[str, Any]) -> None:
    work = shop["work"] = shop["guard"].work("spending")
    run(LIMITED, shop)
    assert len(work.quotas()) == 3
    spent, summed = SPENT.splitlines()
    job = work.history("42")[0].id

    def build(task: Run) -> str:
        run(spent, {"run": task})
        return "built"

    work.perform(job, build)
    run(f"found = {summed}", shop)
    assert [(one.project, one.tokens, one.price) for one in shop["found"]] == [("biology", 1200, 0.03)]


def test_the_documented_callback_is_stored_with_the_job(sqlite_url: str) -> None:
    known: dict[str, Any] = {"Guard": Guard, "Callbacks": Callbacks}
    declared, asked = CALLBACK.splitlines()
    run(declared.replace(PLACE, sqlite_url).replace("whsec_…", new_secret()), known)
    guard: Guard = known["guard"]
    known["work"] = guard.work("called")
    run(asked, known)
    details = guard.store.job_details(guard.works["called"].history("42")[0].id)
    assert details is not None
    assert details.callback == "https://backend.internal/done"
    guard.close()


def test_the_documented_function_runs_where_it_is_called(shop: dict[str, Any]) -> None:
    shop |= {"Run": Run, "sys": sys}
    with pytest.raises(SystemExit) as ended:
        run(FUNCTION.replace("-> str: ...", "-> str:\n    return f'{tenant} {year}'"), shop)
    assert ended.value.code == 0
    assert shop["done"].value == "acme 2026"


def test_guarded_work_with_the_documented_calls_writes_and_publishes_its_result(shop: dict[str, Any]) -> None:
    guard: Guard = shop["guard"]
    kept: dict[str, Any] = {}
    answers = table("answers", column("said"))
    guard.store.database.write(lambda tx: tx.run_sql("CREATE TABLE answers (said TEXT)"), durable=True)
    inside, reader = OUTSIDE.splitlines()

    class Store:
        get, set = staticmethod(kept.get), staticmethod(kept.__setitem__)

    def generate(task: Run, document_id: str) -> None:
        known = {"run": task, "insert": insert, "answers": answers, "rows": [{"said": "krill"}]}
        run(inside, known | {"store": Store, "document_id": document_id, "cards": ["one"]})
        run(ROWS, known)

    task: GuardedTask = guarded(shop["app"], guard, key="document_id", name="generate")(generate)
    asked = task.delay("42")
    task.apply(("42",), task_id=asked.id).get()
    known = {"store": Store, "document_id": "42", "work": guard.works["generate"]}
    run(f"found = {reader}", known)
    assert known["found"] == ["one"]
    with guard.store.database.reading() as tx:
        assert tx.connection.execute(text("SELECT said FROM answers")).scalars().all() == ["krill"]


def test_the_documented_places_of_tables_are_those_of_the_guard() -> None:
    made: list[Guard] = []
    engine = create_engine(PLACE)
    run(TABLES, {"Guard": lambda *given, **options: made.append(Guard(*given, **options)), "engine": engine})
    assert [one.place.names.table("slots") for one in made] == ["indexing.slots", "guard_slots", "guard.slots"]


def test_the_documented_migration_creates_the_tables(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        known = {"op": Operations(MigrationContext.configure(connection))}
        run(MIGRATION.replace('schema="guard"', 'prefix="guard_"'), known)
        known["upgrade"]()  # type: ignore[operator]
    assert "guard_slots" in inspect(engine).get_table_names()
    engine.dispose()


def test_a_migrated_task_repeats_work_that_is_done(shop: dict[str, Any]) -> None:
    shop["__name__"] = "shop.migrated"
    shop["guarded"] = guarded
    run(MIGRATED.replace(": ...", ":\n    return user_id"), shop)
    task: GuardedTask = shop["index_document"]
    assert [task.apply((42, user)).get() for user in (7, 8)] == [7, 8]


def test_the_documented_key_joins_calls_with_the_same_arguments_and_defaults(shop: dict[str, Any]) -> None:
    class AlreadyQueued(Exception):
        pass

    shop |= {"guarded": guarded, "AlreadyQueued": AlreadyQueued}
    declared, asked = KEYED.split("\n\n\n")
    run(declared, shop)
    shop["translate"].delay(42)
    run(asked, shop)
    with pytest.raises(AlreadyQueued) as raised:
        run(asked, shop)
    assert raised.value.args == (shop["guard"].works["shop.tasks.translate"].status("42:de").job,)
    assert not shop["translate"].delay(42, language="en").admission.accepted


def test_the_caller_is_notified_when_the_work_ends(shop: dict[str, Any]) -> None:
    posted: list[Any] = []

    class Client:
        @staticmethod
        def post(address: str, *, json: Any) -> None:  # noqa: ARG004 - the signature of a real client
            posted.append(json)

    shop |= {"Finished": Finished, "httpx": Client, "BACKEND": "http://backend.example"}
    run(TOLD.replace("): ...", "):\n    return 'made'"), shop)
    task: GuardedTask = shop["generate_cards"]
    asked = task.delay("7")
    task.apply(("7",), task_id=asked.id).get()
    assert posted == [{"key": "7", "job": asked.id, "outcome": "success"}]


def test_the_guarded_service_is_a_third_shorter_than_the_plain_one() -> None:
    assert "It has a third fewer lines" in TEXT
    plain, guarded_ = (len((EXAMPLE / name).read_text().splitlines()) for name in ("plain.py", "guarded.py"))
    assert 0.6 * plain < guarded_ < 0.7 * plain


def test_the_documented_accidents_are_those_of_the_example() -> None:
    told = re.findall(r"^\| ([^|]+) \|", TEXT.split("## A whole app")[1].split("\n## ")[0], re.MULTILINE)[2:]
    code = (EXAMPLE / "accidents.py").read_text()
    for accident in told:
        assert accident.split(",")[0].lstrip("0123456789 ") in code, accident
