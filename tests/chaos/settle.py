"""After the faults: waits until all work is at rest, as an operator would see it, within a bound."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from tests.chaos.audit import Tables, read_documents, read_events, read_stores
from tests.chaos.check_stores import check_stores
from tests.chaos.history import Record
from tests.chaos.system import WEBHOOK_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.folder import FolderClient
    from tests.chaos.system import System

QUIET_SECONDS = 120.0  # within this time after the last fault, all accepted work is done
CLEAN_SECONDS = 150.0  # and all garbage is collected, which happens once a minute
POLL_SECONDS = 1.0
ACTIVE = ["queued", "indexing", "deleting"]
ROUNDS = 4


def settle(system: System, folder: FolderClient, base: str) -> list[str]:
    """Bring the system to rest, and return what did not come to rest in time."""
    problems: list[str] = []
    system.history.write("note", text="the faults have ended")
    for role in system.roles:
        role.revive()
    _until(lambda: folder.sync(base), QUIET_SECONDS, "the folder cannot be synced", problems)
    for _ in range(ROUNDS):
        _until(lambda: not _active(system), QUIET_SECONDS, "jobs are still active", problems)
        if problems or not _repair(system):
            break
    system.history.write("note", text="the work is done")
    _until(lambda: _deliver(system), QUIET_SECONDS, "webhook messages are still waiting", problems)
    system.history.write("note", text="the messages are delivered")
    _until(lambda: _clean(system), CLEAN_SECONDS, "garbage is left", [])  # the checker names it
    return problems


def _until(fact: Callable[[], object], seconds: float, what: str, problems: list[str]) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            problems.append(f"{what} after {seconds:.0f} s without a fault")
            return
        time.sleep(POLL_SECONDS)


def _active(system: System) -> bool:
    return bool(system.request("GET", "/jobs", params={"state": ACTIVE, "page_size": 1})["items"])


def _repair(system: System) -> bool:
    """Request what failed or was cancelled again, as a user does; return whether anything was requested."""
    requested = False
    for base in system.request("GET", "/bases"):
        if base["problem"]:
            system.request("POST", f"/bases/{base['name']}:repair")
        place = f"/bases/{base['name']}/documents"
        listed = system.request("GET", place, params={"page_size": 500})["items"]
        broken = [one["id"] for one in listed if one["kind"] == "file" and (one["status"] != "success" or one["why"])]
        if broken:
            replies = system.request("POST", f"{place}:index", json={"documents": broken})
            system.history.write("note", text=f"repaired {broken} in {base['name']}: {json.dumps(replies)[:500]}")
            requested = True
    return requested


def _deliver(system: System) -> bool:
    """Send waiting webhook messages now; return whether a message about every event has arrived."""
    tables = Tables(system)
    waiting = tables.query("SELECT id FROM webhook_deliveries WHERE state <> 'sent' ORDER BY id LIMIT 20")
    for (delivery,) in waiting:
        system.request("POST", f"/deliveries/{delivery}:redeliver")
    return not waiting and {event["id"] for event in read_events(system, topics=WEBHOOK_TOPICS)} <= system.arrived


def _clean(system: System) -> bool:
    """Whether the stores contain nothing that no document needs."""
    found = read_stores(system, Tables(system)) | {"problems": [], "documents": read_documents(system)}
    return not list(check_stores(Record(final=found)))
