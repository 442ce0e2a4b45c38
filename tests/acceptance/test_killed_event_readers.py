"""Readers and writers of the event log are killed: no event is lost, and no id is sent twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.clock import SystemClock
from holdfast.db.notify import MemoryNotifier
from holdfast.events.feed import Feed, Heartbeat
from holdfast.events.log import EventLog
from holdfast.events.public_events import Cursor, PublicEvent
from holdfast.settings import Settings
from holdfast.wiring import open_configured_store, open_event_notifier
from tests.support.processes import ROOT, until
from tests.support.stores import request
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

# Admits and cancels requests, each in its own transaction, until it is killed.
WRITER = """
import itertools, sys
from holdfast.engine.states import Operation
from holdfast.settings import Settings
from holdfast.wiring import open_configured_store
from tests.support.stores import request
store = open_configured_store(Settings(database=sys.argv[1]))
for number in itertools.count(1):
    owner = f"{sys.argv[2]}{number}"
    store.admit([request(owner, base="3")])
    store.admit([request(owner, base="3", operation=Operation.CANCEL, slots=())])
"""
# Follows the log from a cursor, as a web process does for a browser, and writes the id of each event it has sent.
FOLLOWER = """
import sys
from holdfast.clock import SystemClock
from holdfast.events.public_events import Cursor, PublicEvent
from holdfast.events.feed import Feed, Reset
from holdfast.events.log import EventLog
from holdfast.settings import Settings
from holdfast.wiring import open_event_notifier, open_configured_store
store = open_configured_store(Settings(database=sys.argv[1]))
feed = Feed(EventLog(store.database), SystemClock(), room=50, page=20)
feed.start(open_event_notifier(sys.argv[1]))
with open(sys.argv[3], "a") as sent:
    looking = feed.subscribe(Cursor.parse(sys.argv[2]), topics=["job"])
    while (message := looking.get(1)) is not None:
        assert not isinstance(message, Reset)
        if isinstance(message, PublicEvent):
            sent.write(f"{message.id}\\n")
            sent.flush()
"""


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL


def sent(path: Path) -> list[str]:
    """Return the ids that a browser has received. An incomplete last line does not count as sent."""
    text = path.read_text() if path.exists() else ""
    return text.split("\n")[:-1]


def everything(log: EventLog) -> list[str]:
    found: list[str] = []
    place, more = Cursor(0, 0), True
    while more:
        page = log.read(place)
        found += [event.id for event in page.events if event.type.startswith("job.")]
        place, more = page.cursor, page.has_more
    return found


def test_a_browser_receives_every_event_once_after_readers_and_writers_are_killed(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_configured_store(Settings(database=database_url), MemoryNotifier())
    log = EventLog(store.database)
    path = tmp_path / "sent"
    place = str(log.newest_cursor())
    writers = [start(WRITER, database_url, str(number)) for number in range(2)]
    try:
        for round_ in range(3):
            follower = start(FOLLOWER, database_url, place, str(path))
            seen = len(sent(path))
            until(lambda seen=seen: len(sent(path)) > seen + 30, "nothing is told")  # type: ignore[misc]
            kill(follower)
            known = sent(path)
            path.write_text("".join(f"{id_}\n" for id_ in known))  # drop an incomplete last line
            place = known[-1]
            missed = len(everything(log))
            until(lambda missed=missed: len(everything(log)) > missed + 30, "nothing happens")  # type: ignore[misc]
            if round_ < len(writers):
                kill(writers[round_])
                writers[round_] = start(WRITER, database_url, f"{round_}again")
    finally:
        for writer in writers:
            kill(writer)
    began = time.monotonic()
    follower = start(FOLLOWER, database_url, place, str(path))
    wanted = everything(log)
    until(lambda: len(sent(path)) >= len(wanted), "it does not catch up")
    took = time.monotonic() - began
    kill(follower)
    assert sent(path) == wanted
    assert len(set(wanted)) == len(wanted)
    with capsys.disabled():
        sys.stdout.write(f"\n{len(wanted)} events, four processes killed: caught up {took:.2f} s after the restart\n")
    store.close()


# Writes an event and keeps its transaction open.
LINGERER = """
import pathlib, signal, sys
from holdfast.engine.effects import Event
from holdfast.settings import Settings
from holdfast.engine.store.transitions import record_events
from holdfast.wiring import open_configured_store
store = open_configured_store(Settings(database=sys.argv[1]))
with store.database.writing(durable=True) as tx:
    record_events(tx, [Event("job.success", "3", "1")])
    pathlib.Path(sys.argv[2]).touch()
    signal.pause()
"""


@pytest.mark.postgres
def test_a_process_killed_inside_a_transaction_stops_delaying_later_events(postgres_url: str, tmp_path: Path) -> None:
    store = open_configured_store(Settings(database=postgres_url), MemoryNotifier())
    feed = Feed(EventLog(store.database), SystemClock())
    bell = open_event_notifier(postgres_url)
    feed.start(bell, period=timedelta(hours=1))
    looking = feed.subscribe(topics=["job"])
    victim = start(LINGERER, postgres_url, str(tmp_path / "inside"))
    until((tmp_path / "inside").exists, "it does not write")
    assert store.admit([request("2", base="3")])[0].accepted
    until(lambda: feed.log.read(feed.log.newest_cursor()).has_unreadable, "it is not held up")
    assert isinstance(looking.get(0), Heartbeat)
    kill(victim)
    message = looking.get(PATIENCE_SECONDS)
    assert isinstance(message, PublicEvent)
    assert (message.type, message.document) == ("job.accepted", 2)
    feed.close()
    bell.close()
    store.close()
