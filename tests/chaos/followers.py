"""Followers of the live stream of events. After an interruption each continues after the last event it received."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import httpx2

from tests.chaos.texts import find_marks

if TYPE_CHECKING:
    from tests.chaos.system import System

SILENCE_SECONDS = 20.0  # a heartbeat arrives more often
PAUSE_SECONDS = 0.3
BEGINNING = "0-0"


class Follower:
    """Follows all events from the beginning, and records each of them."""

    def __init__(self, name: str, system: System) -> None:
        self.name = name
        self.place = BEGINNING
        self.interruptions = 0
        self._system = system
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._answer: httpx2.Response | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(SILENCE_SECONDS + 5)

    def _run(self) -> None:
        number = len(self.name)
        while not self._stop.is_set():
            number += 1
            try:
                self._follow(self._system.address(number))
            except httpx2.TransportError:
                self.interruptions += 1
            self._stop.wait(PAUSE_SECONDS)

    def _follow(self, address: str) -> None:
        headers = {"Last-Event-ID": self.place}
        timeout = httpx2.Timeout(10, read=SILENCE_SECONDS)
        with httpx2.stream(
            "GET", f"{address}/api/v1/events/stream", headers=headers, timeout=timeout, trust_env=False
        ) as answer:
            if answer.status_code != 200:
                return
            place = ""
            for line in answer.iter_lines():
                field, _, value = line.partition(": ")
                if field == "id":
                    place = value
                elif field == "event" and value == "reset":
                    self._system.history.write("event", follower=self.name, id="", name="reset")
                elif field == "data" and place:
                    self._record(place, json.loads(value))
                    self.place, place = place, ""
                if self._stop.is_set():
                    return

    def _record(self, place: str, event: dict[str, Any]) -> None:
        self._system.history.write(
            "event",
            follower=self.name,
            id=place,
            name=event["type"],
            document=event["document"],
            job=event["job"],
            generation=event["generation"],
            marks=[str(mark) for mark in find_marks(json.dumps(event))],
        )
