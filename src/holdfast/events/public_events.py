"""Public events: their types, and the function that derives them from lines of the log.

The log also has each move of each slot, as a trace of the engine. Public events are derived from these lines by a pure
function, so indexing writes no extra lines for them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime  # noqa: TC003 - schemas are made from the annotations
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from holdfast.catalog import parse_item_id, parse_number
from holdfast.clock import as_datetime
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.clock import Moment
    from holdfast.engine.store import LoggedEvent

EVENT_TYPES: Mapping[str, str] = {
    "job.accepted": "A request was accepted as a job; `data` has the operation, its cause and the requester.",
    "job.success": "The job ended: everything that was requested is done.",
    "job.degraded": "The job ended: a part is searchable, and a part is missing.",
    "job.failed": "The job ended without a result; `results` has the error of each part.",
    "job.superseded": "The job ended: a newer request replaced it.",
    "job.cancelled": "The job ended: a user cancelled it.",
    "job.deleted": "The job ended: its document or base was deleted.",
    "job.reprioritised": "A user changed the priority of the job; `data` has the old and the new one.",
    "job.long_running": "Work on the job has been running for longer than `HOLDFAST_LONG_RUNNING`; it continues.",
    "index.ready": "An index of a document is built and searchable; `missing` is the number of chunks that it lacks.",
    "index.failed": "Building an index of a document failed for good; its previous version stays searchable.",
    "index.removed": "An index of a document was removed with its rows.",
    "document.added": "A document, page or folder was added to a base.",
    "document.changed": "A document has new content or a new source.",
    "document.status": "The status of a document changed, and no other event contains the new status.",
    "document.deleted": "A document was deleted: it disappears from lists and search at once.",
    "document.removed": "The clean-up of a deleted document is complete: all its data is removed.",
    "base.created": "A base was created.",
    "base.renamed": "A base was renamed.",
    "base.changed": "The settings of a base were changed; its documents follow.",
    "base.failed": "The base has failed: nothing can be indexed until it is repaired; `error` is the reason.",
    "base.repaired": "A base that had failed was repaired.",
    "base.cleared": "All documents of a base were deleted. Up to 250 documents have no events of their own.",
    "base.deleted": "A base was deleted with all its documents; there are no events for the single documents.",
    "base.removed": "The clean-up of a deleted base is complete: all its data is removed.",
    "cards.ready": "A new set of study cards of a base is complete and shown.",
    "cards.failed": "Making a new set of study cards failed; the previous set stays.",
    "cards.removed": "The study cards of a base were removed.",
    "queue.paused": "A base was paused, or the whole queue if there is no base: no work starts.",
    "queue.resumed": "A pause has ended.",
    "webhook.disabled": "A webhook was disabled; `data` has the webhook and the reason: `gone` or `failing`.",
}
TOPICS = frozenset(type_.partition(".")[0] for type_ in EVENT_TYPES)
PROGRESS = "progress"  # the topic of progress messages, which are not stored

# Kinds of slots that are no index.
INTERNAL_SLOT_KINDS = frozenset({"base", "bulk", "content", "source", "merging", "rollout"})
CARDS = "cards"
_SLOT_OUTCOMES = {
    "slot.completed": "ready",
    "slot.failed": "failed",
    "slot.given_up": "failed",
    "slot.forgotten": "removed",
}
_PUBLIC_FACTS = ("error", "missing", "status")
_REQUEST_FACTS = ("operation", "cause", "requester", "priority")
_MAX_NUMBER = 2**63


class Cursor(NamedTuple):
    """A position in the log. Clients treat its text as opaque."""

    xid: int
    id: int

    def __str__(self) -> str:
        return f"{self.xid}-{self.id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a cursor. An invalid text becomes a position before all events, so its reader gets a reset."""
        xid, dash, id_ = text.partition("-")
        if not (dash and _is_number(xid) and _is_number(id_)):
            return cls(*UNKNOWN_POSITION)
        cursor = cls(int(xid[:20]), int(id_[:20]))
        return cursor if max(cursor) < _MAX_NUMBER else cls(*UNKNOWN_POSITION)


UNKNOWN_POSITION = (-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened."""

    id: str
    type: str
    at: datetime
    base: int | None  # None: it concerns the whole queue
    document: int | None
    owner: str
    kind: str | None
    job: str | None
    generation: int | None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicEvent:
    """An event with its cursor, for the feed and webhooks. It never contains the text of a document."""

    cursor: Cursor
    type: str
    at: Moment
    base: str | None  # None: it concerns the whole queue
    document: int | None
    owner: str  # of the job or slot: a document, `source:` and a document, or a part of the base
    kind: str | None = None
    job: str | None = None
    generation: int | None = None
    data: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The text of the cursor, which is unique."""
        return str(self.cursor)

    def to_schema(self) -> Event:
        return Event(
            id=self.id,
            type=self.type,
            at=as_datetime(self.at),
            base=None if self.base is None else parse_number(self.base),
            document=self.document,
            owner=self.owner,
            kind=self.kind,
            job=self.job,
            generation=self.generation,
            data=dict(self.data),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, the same for streams, lists and webhooks."""
        event = self.to_schema()
        values = {field.name: getattr(event, field.name) for field in fields(Event)}
        return values | {"at": event.at.isoformat(timespec="milliseconds"), "base": event.base or self.base}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events a reader wants or may see; None means all."""

    bases: frozenset[str] | None = None
    types: frozenset[str] | None = None
    document: int | None = None

    def matches(self, event: PublicEvent) -> bool:
        """Return whether an event matches. Events without a base match only a filter for all bases."""
        return self.matches_document(event.base, event.document) and (self.types is None or event.type in self.types)

    def matches_document(self, base: str | None, document: int | None) -> bool:
        return (self.bases is None or base in self.bases) and self.document in (None, document)


ALL_EVENTS = EventFilter()


def resolve_topics(topics: Iterable[str]) -> frozenset[str]:
    """Return the event types of some topics: `job` and `job.success` are topics; `progress` has no types.

    >>> sorted(resolve_topics(["queue", "progress"]))
    ['queue.paused', 'queue.resumed']
    """
    resolved: set[str] = set()
    for topic in topics:
        types = {type_ for type_ in EVENT_TYPES if topic in (type_, type_.partition(".")[0])}
        if not types and topic != PROGRESS:
            known = ", ".join(sorted({*TOPICS, PROGRESS}))
            raise BadRequest("topic_unknown", topic=topic, topics=known)
        resolved |= types
    return frozenset(resolved)


def to_public_event(row: LoggedEvent) -> PublicEvent | None:
    """Return the public event of a line of the log; None if the line is internal."""
    event = row.event
    document = document_of_owner(event.base, event.owner)
    type_ = _find_public_type(row, document)
    if type_ is None:
        return None
    facts = event.parsed_data
    if event.type.startswith("slot."):
        public = (*_REQUEST_FACTS, *_PUBLIC_FACTS) if type_ == "job.accepted" else _PUBLIC_FACTS
        facts = {name: facts[name] for name in public if name in facts}
    of_slot = type_ == "job.long_running" or type_.partition(".")[0] in ("index", CARDS)
    return PublicEvent(
        cursor=Cursor(row.xid, row.id),
        type=type_,
        at=row.at,
        base=event.base or None,
        document=document,
        owner=event.owner,
        kind=event.kind if of_slot else None,
        job=event.job,
        generation=event.generation,
        data=facts,
    )


def document_of_owner(base: str, owner: str) -> int | None:
    """Return the document of an owner; None for owners of a base, or of guarded work."""
    return parse_item_id(owner) if _is_number(base) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _find_public_type(row: LoggedEvent, document: int | None) -> str | None:
    event = row.event
    if event.type in EVENT_TYPES:
        return event.type
    if not event.type.startswith("slot."):
        return None
    if '"operation": ' in event.data:  # the first move of a job has the request; faster than parsing
        return "job.accepted"
    outcome = _SLOT_OUTCOMES.get(event.type)
    if outcome and event.kind == event.owner == CARDS and _is_number(event.base):
        return f"cards.{outcome}"
    if outcome and document is not None and event.kind not in INTERNAL_SLOT_KINDS:
        return f"index.{outcome}"
    return "document.status" if document is not None and '"status": ' in event.data else None
