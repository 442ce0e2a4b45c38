"""What the clients' operations allow the content of each document to be at the end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.history import Operation, Record

WHOLE_BASE = ("drop_base", "clear_base")
PUT, DELETE = "put", "delete"


@dataclass(slots=True)
class Story:
    """The writes of one name in one base."""

    base: str
    key: str
    puts: list[Operation] = field(default_factory=list)  # acknowledged, or without an answer
    refused: list[Operation] = field(default_factory=list)
    deletes: list[Operation] = field(default_factory=list)  # of a document
    emptied: list[Operation] = field(default_factory=list)  # of the whole base

    def removed(self, put: Operation) -> bool:
        """Whether an acknowledged request removed the document that a put has written, for certain."""
        if any(one.ok and one.arguments["document"] == document_of(put) for one in self.deletes):
            return True
        return any(one.ok and put.settled < one.invoked for one in self.emptied)

    def may_be_removed(self, put: Operation) -> bool:
        if any(document_of(put) in (None, one.arguments["document"]) for one in self.deletes):
            return True
        return any(one.settled > put.invoked for one in self.emptied)

    def overwritten(self, put: Operation) -> bool:
        """Whether a later put has replaced the content for certain."""
        return any(_later(other, put) for other in self.puts if other.ok and other is not put)

    @property
    def allowed(self) -> list[Operation]:
        """The puts of which one may be the newest."""
        return [one for one in self.puts if not self.removed(one) and not self.overwritten(one)]

    @property
    def must_exist(self) -> bool:
        return any(one.ok and not self.may_be_removed(one) for one in self.puts)


def _later(other: Operation, put: Operation) -> bool:
    mine, its = put.value.get("generation"), other.value.get("generation")
    if put.ok and mine is not None and its is not None and document_of(put) == document_of(other):
        return bool(its > mine)
    return other.invoked > put.settled


def document_of(put: Operation) -> int | None:
    """Return the document that a put has written, if the product told it."""
    found: int | None = put.value.get("document")
    return found


def stories(record: Record) -> list[Story]:
    """Return the writes of each name. Names of folders are told by the last sync of the folder."""
    found: dict[tuple[str, str], Story] = {}
    emptied: dict[str, list[Operation]] = defaultdict(list)
    for one in record.operations:
        base = one.arguments.get("base", "")
        if one.name in WHOLE_BASE and one.outcome != "fail":
            emptied[base].append(one)
        elif one.name in (PUT, DELETE):
            story = found.setdefault((base, one.key), Story(base, one.key))
            _sort(story, one)
    for (base, _), story in found.items():
        story.emptied = emptied[base]
    return list(found.values())


def _sort(story: Story, one: Operation) -> None:
    if one.name == PUT:
        (story.refused if one.outcome == "fail" else story.puts).append(one)
    elif one.outcome != "fail":
        story.deletes.append(one)


def removals(record: Record) -> Iterator[tuple[Operation, set[int]]]:
    """Yield each acknowledged removal with the documents that are gone for certain when it was acknowledged."""
    puts: dict[str, list[Operation]] = defaultdict(list)
    for one in record.operations:
        if one.name == PUT and one.ok:
            puts[one.arguments["base"]].append(one)
    for one in record.operations:
        if one.ok and one.name == DELETE:
            yield one, {one.arguments["document"]}
        elif one.ok and one.name in WHOLE_BASE:
            before = [put for put in puts[one.arguments["base"]] if put.ended < one.invoked]
            yield one, {document for put in before if (document := document_of(put)) is not None}
