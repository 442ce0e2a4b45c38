"""`holdfast serve` as people run it: ended, killed, started again; and those who look on meanwhile."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast.service.opening import open_library
from holdfast.settings import Settings
from tests.support.serve_process import Serving
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def read_events(address: str, after: str | None, until: int) -> list[tuple[str, str]]:
    """Follow the stream until the job of a document has ended; return the ids and types of what came."""
    found: list[tuple[str, str]] = []
    headers = {"Last-Event-ID": after} if after else {}
    with httpx2.stream(
        "GET", f"{address}/api/v1/events/stream", headers=headers, timeout=PATIENCE_SECONDS, trust_env=False
    ) as (answer):
        place = name = ""
        for line in answer.iter_lines():
            field, _, value = line.partition(": ")
            if field == "id":
                place = value
            elif field == "event":
                name = value
            elif field == "data" and place:
                told: dict[str, Any] = json.loads(value)
                found.append((place, name))
                if name == "job.success" and told["document"] == until:
                    return found
                place = ""
    return found


def test_who_looks_on_catches_up_after_the_server_was_killed_and_loses_and_doubles_nothing(home: Path) -> None:
    first = Serving(home)
    first.http.post("/bases", json={"name": "sea", "indexes": ["fulltext"]})
    whale = first.add("whale.md", "# Whale\n\nIt eats krill.")
    seen = read_events(first.address, "0-0", whale)
    first.end(signal.SIGKILL)

    second = Serving(home)  # goes on where the first was, though it could not say goodbye
    stone = second.add("stone.md", "# Stone\n\nGranite.")
    missed = read_events(second.address, seen[-1][0], stone)
    history = second.http.get("/events", params={"limit": 500}).json()["items"]
    told = [(one["id"], one["type"]) for one in reversed(history)]
    assert seen + missed == told
    assert len({place for place, _ in told}) == len(told)
    found = second.http.post("/bases/sea/search", json={"query": "krill"}).json()["hits"]
    assert [hit["document"] for hit in found] == [whale]
    assert second.end() == 0


@pytest.mark.smoke
def test_ctrl_c_ends_it_cleanly_and_a_second_server_on_the_same_folder_is_refused(home: Path) -> None:
    first = Serving(home)
    first.http.post("/bases", json={"name": "sea", "indexes": ["fulltext"]})
    other = Serving(home)
    assert other.address == ""
    assert first.address in "".join(other.errors)
    other.end()
    with httpx2.stream(
        "GET", f"{first.address}/api/v1/events/stream", timeout=PATIENCE_SECONDS, trust_env=False
    ) as stream:
        lines = stream.iter_lines()
        assert next(lines) == "retry: 2000"
        assert first.end() == 0  # whoever looks on does not hold it up
        assert list(lines) == [""]
    assert not (home / "server.json").exists()
    again = Serving(home)
    assert [base["name"] for base in again.http.get("/bases").json()] == ["sea"]
    assert again.end(signal.SIGTERM) == 0


def test_a_server_that_others_could_reach_needs_a_key_before_it_starts(home: Path) -> None:
    refused = Serving(home, "--host", "0.0.0.0")  # noqa: S104 - that is what is refused
    assert refused.address == ""
    said = "".join(refused.errors)
    assert "open to everybody" in said
    assert "keys create admin --scope admin\n" in said  # what comes before it names this library
    assert refused.end() != 0


@pytest.mark.parametrize(
    ("level", "moves", "failures"), [("", False, True), ("debug", True, True), ("warning", False, False)]
)
def test_a_terminal_is_told_what_failed_and_of_every_move_only_on_request(
    home: Path, level: str, *, moves: bool, failures: bool
) -> None:
    serving = Serving(home, environment={"HOLDFAST_LOG": level})
    serving.http.post("/bases", json={"name": "sea", "indexes": ["fulltext"]})
    serving.add("whale.md", "# Whale\n\nIt eats krill.")
    (empty,) = serving.http.post("/bases/sea/documents/notes", json={"name": "Empty", "text": " "}).json()["replies"]
    told = serving.rested(f"/bases/sea/documents/{empty['document']}")
    assert told["status"] == "failed"
    assert serving.end() == 0
    lines = [line for line in serving.errors if line[:4].isdigit()]  # those of the log begin with the time
    assert any("slot.admitted" in line for line in lines) is moves, "by who serves"
    assert any("slot.claimed" in line for line in lines) is moves, "by who works"
    assert any("work.failed" in line for line in lines) is failures
    if level != "debug":
        assert len(lines) == int(failures)
        assert not any("Traceback" in line for line in serving.errors)


def test_a_server_encrypts_webhook_secrets_that_an_older_version_stored_as_plain_text(home: Path) -> None:
    library = open_library(Settings(home=str(home)))
    _, secret = library.webhooks.create("https://hooks.example.org/in", ["*"])
    with library.store.database.writing(durable=True) as tx:
        tx.run_sql(f"UPDATE webhooks SET secret = '{secret}'")  # noqa: S608 - a test's own
    assert Serving(home, "--no-workers").end() == 0
    with library.store.database.reading() as tx:
        ((stored,),) = tx.run_sql("SELECT secret FROM webhooks")
    library.store.close()
    assert stored.startswith("enc1:")
    assert secret not in stored
