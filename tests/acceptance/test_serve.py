"""`holdfast serve` as a process: it is stopped, killed and restarted while clients follow events."""

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
    """Follow the stream until the job of a document succeeds, and return the id and type of each event."""
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


def test_a_follower_receives_every_event_once_after_the_server_was_killed(home: Path) -> None:
    first = Serving(home)
    first.http.post("/bases", json={"name": "sea", "indexes": ["fulltext"]})
    whale = first.add("whale.md", "# Whale\n\nIt eats krill.")
    seen = read_events(first.address, "0-0", whale)
    first.end(signal.SIGKILL)

    second = Serving(home)  # continues although the first server was killed without a clean shutdown
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
def test_ctrl_c_stops_the_server_and_a_second_server_on_its_folder_is_refused(home: Path) -> None:
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
        assert first.end() == 0  # an open stream does not delay the shutdown
        assert list(lines) == [""]
    assert not (home / "server.json").exists()
    again = Serving(home)
    assert [base["name"] for base in again.http.get("/bases").json()] == ["sea"]
    assert again.end(signal.SIGTERM) == 0


def test_a_server_on_a_public_address_does_not_start_without_a_key(home: Path) -> None:
    refused = Serving(home, "--host", "0.0.0.0")  # noqa: S104 - the test checks that this is refused
    assert refused.address == ""
    said = "".join(refused.errors)
    assert "The server on '0.0.0.0' needs an API key for every request" in said
    assert "keys create admin --scope admin\n" in said  # the part before it contains the path of this library
    assert refused.end() != 0


@pytest.mark.parametrize(
    ("level", "moves", "failures"), [("", False, True), ("debug", True, True), ("warning", False, False)]
)
def test_the_log_shows_failures_by_default_and_transitions_only_at_debug_level(
    home: Path, level: str, *, moves: bool, failures: bool
) -> None:
    serving = Serving(home, environment={"HOLDFAST_LOG": level})
    serving.http.post("/bases", json={"name": "sea", "indexes": ["fulltext"]})
    serving.add("whale.md", "# Whale\n\nIt eats krill.")
    (empty,) = serving.http.post("/bases/sea/documents/notes", json={"name": "Empty", "text": " "}).json()["replies"]
    told = serving.rested(f"/bases/sea/documents/{empty['document']}")
    assert told["status"] == "failed"
    assert serving.end() == 0
    lines = [line for line in serving.errors if line[:4].isdigit()]  # log lines begin with the time
    assert any("slot.changed verb=admitted" in line for line in lines) is moves, "by who serves"
    assert any("slot.changed verb=claimed" in line for line in lines) is moves, "by who works"
    assert any("work.failed" in line for line in lines) is failures
    if level != "debug":
        assert len(lines) == int(failures)
        assert not any("Traceback" in line for line in serving.errors)


def test_a_server_encrypts_webhook_secrets_that_an_older_version_stored_as_plain_text(home: Path) -> None:
    library = open_library(Settings(home=str(home)))
    _, secret = library.webhooks.create("https://hooks.example.org/in", ["*"])
    with library.store.database.writing(durable=True) as tx:
        tx.run_sql(f"UPDATE webhooks SET secret = '{secret}'")  # noqa: S608 - constants of this test
    assert Serving(home, "--no-workers").end() == 0
    with library.store.database.reading() as tx:
        ((stored,),) = tx.run_sql("SELECT secret FROM webhooks")
    library.store.close()
    assert stored.startswith("enc1:")
    assert secret not in stored
