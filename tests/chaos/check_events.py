"""Checks that every follower sees every event once and in order, and that webhooks arrive at least once."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from tests.chaos.texts import find_marks
from tests.chaos.violations import Kind, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.history import Record

AFTER_DELETE = ("job.", "index.removed", "document.removed", "document.status")


def check_events(record: Record) -> Iterator[Violation]:
    log = [event["id"] for event in record.final["events"]]
    for follower, events in record.followed.items():
        yield from _check_follower(follower, [event["id"] for event in events], log)
        for event in events:
            if event.get("marks"):
                text = f"event {event['id']} ({event['name']}) contains text of a document"
                yield Violation(kind=Kind.RESURRECTED, text=text)
    yield from _check_after_delete(record.final["events"])


def _check_follower(follower: str, seen: list[str], log: list[str]) -> Iterator[Violation]:
    if "" in seen:
        yield Violation(kind=Kind.LOST, text=f"{follower} had to start again, although no event was removed")
        return
    repeated = [event for event, count in Counter(seen).items() if count > 1]
    if repeated:
        text = f"{follower} received {len(repeated)} events twice, the first is {repeated[0]}"
        yield Violation(kind=Kind.DUPLICATED, text=text)
    missed = sorted(set(log) - set(seen))
    if missed:
        yield Violation(kind=Kind.LOST, text=f"{follower} missed {len(missed)} events, such as {missed[0]}")
    invented = sorted(set(seen) - set(log))
    if invented:
        text = f"{follower} received {len(invented)} events that are not in the log, such as {invented[0]}"
        yield Violation(kind=Kind.RESURRECTED, text=text)
    place = {event: number for number, event in enumerate(log)}
    order = [place[event] for event in seen if event in place]
    if order != sorted(order):
        yield Violation(kind=Kind.STALE, text=f"{follower} received events in another order than the log has")


def _check_after_delete(events: list[dict[str, Any]]) -> Iterator[Violation]:
    """After the event of its delete, a document has only events about its removal."""
    deleted: set[int] = set()
    for event in events:
        if event["name"] == "document.deleted":
            deleted.add(event["document"])
        elif event["document"] in deleted and not event["name"].startswith(AFTER_DELETE):
            text = f"event {event['id']} ({event['name']}) concerns document {event['document']} after its delete"
            yield Violation(kind=Kind.RESURRECTED, text=text)


def check_messages(record: Record) -> Iterator[Violation]:
    """Every event of the types that the webhook names arrived, signed, and always with the same id."""
    arrived: dict[str, set[str]] = defaultdict(set)
    for message in record.messages:
        if not message["valid"]:
            yield Violation(kind=Kind.FORGED, text=f"message {message['message']} has no valid signature")
        else:
            arrived[message["event"]].add(message["message"])
        if find_marks(message.get("body", "")):
            yield Violation(kind=Kind.RESURRECTED, text=f"message {message['message']} contains text of a document")
    wanted = [event["id"] for event in record.final["events"] if _named(event["name"], record.final["webhook_types"])]
    missing = [event for event in wanted if event not in arrived]
    if missing:
        yield Violation(kind=Kind.LOST, text=f"{len(missing)} webhook messages never arrived, such as {missing[0]}")
    for event, messages in arrived.items():
        if len(messages) > 1:
            text = f"event {event} arrived as {len(messages)} messages with different ids"
            yield Violation(kind=Kind.DUPLICATED, text=text)


def _named(type_: str, patterns: list[str]) -> bool:
    return any(type_ == one or (one.endswith("*") and type_.startswith(one[:-1])) for one in patterns)
