"""Checks every read: it shows one complete version, never an older one than before, and nothing that was deleted."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.chaos.documents import document_of, removals, stories
from tests.chaos.texts import find_marks, marks_of
from tests.chaos.violations import Kind, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.history import Operation, Record

WHOLE = ("chunks", "text")  # these show a whole document
DATED = ("chunks", "text", "get", "list")  # these show one generation of a document


def check_reads(record: Record) -> Iterator[Violation]:
    reads = [one for one in record.operations if one.ok and "seen" in one.value]
    yield from _check_whole(reads)
    yield from _check_order(reads)
    yield from _check_removed(record, reads)
    yield from _check_refused(record, reads)


def _check_whole(reads: list[Operation]) -> Iterator[Violation]:
    """A whole document is one complete version, or nothing while its first version is built."""
    for read in reads:
        if read.name not in WHOLE:
            continue
        shown = [mark for seen in read.value["seen"] for mark in seen["marks"]]
        if not shown or shown in _versions_of(shown):
            continue
        text = f"{read.name} of document {read.arguments['document']} shows no complete version: {shown}"
        kind = Kind.DUPLICATED if len(set(shown)) < len(shown) else Kind.STALE
        yield Violation(kind=kind, key=read.key, text=text, operations=(read.number,))


def _versions_of(shown: list[str]) -> list[list[str]]:
    marks = find_marks(" ".join(shown))
    return [[str(mark) for mark in marks_of(marks[0].key, one.first)] for one in marks if one.first == one.last]


def _check_order(reads: list[Operation]) -> Iterator[Violation]:
    """No read of a document shows an older generation than a read of the same kind that ended before it began."""
    steps: list[tuple[float, int, Operation]] = []
    for read in reads:
        if read.name in DATED:
            steps += [(read.invoked, 0, read), (read.ended, 1, read)]  # what happens at the same time is concurrent
    newest: dict[tuple[str, int], int] = {}
    before: dict[int, dict[tuple[str, int], int]] = {}
    for _, ends, read in sorted(steps, key=lambda step: step[:2]):
        seen = _generations(read)
        if not ends:
            before[read.number] = {place: newest[place] for place in seen if place in newest}
            continue
        for place, generation in seen.items():
            known = before[read.number].get(place, 0)
            if generation < known:
                text = f"{read.name} shows generation {generation} of document {place[1]} after {known}"
                yield Violation(kind=Kind.STALE, key=read.key, text=text, operations=(read.number,))
            newest[place] = max(generation, newest.get(place, 0))


def _generations(read: Operation) -> dict[tuple[str, int], int]:
    """Return the generation that a read shows of each document."""
    found: dict[tuple[str, int], int] = {}
    for seen in read.value["seen"]:
        if seen.get("generation") is not None:
            found[read.name, seen["document"]] = seen["generation"]
    return found


def _check_removed(record: Record, reads: list[Operation]) -> Iterator[Violation]:
    """After a removal is acknowledged, no read shows its documents or their text."""
    gone = _removed_documents(record)
    marks = {
        str(mark): gone[document]
        for story in stories(record)
        for put in story.puts
        if put.ok and (document := document_of(put)) in gone
        for mark in marks_of(story.key, put.arguments["version"])[1:]
    }
    for read in reads:
        for seen in read.value["seen"]:
            for removal in _removals_seen(seen, gone, marks):
                if removal.ended < read.invoked:
                    text = f"{read.name} shows document {seen.get('document')} after its removal was acknowledged"
                    numbers = (removal.number, read.number)
                    yield Violation(kind=Kind.RESURRECTED, key=removal.key, text=text, operations=numbers)


def _removed_documents(record: Record) -> dict[int | None, Operation]:
    """Return the removal of each removed document that was acknowledged first."""
    gone: dict[int | None, Operation] = {}
    for removal, documents in removals(record):
        for document in documents:
            if document not in gone or removal.ended < gone[document].ended:
                gone[document] = removal
    return gone


def _removals_seen(
    seen: dict[str, Any], gone: dict[int | None, Operation], marks: dict[str, Operation]
) -> list[Operation]:
    by_id = [gone[seen["document"]]] if seen.get("document") in gone else []
    return by_id or [marks[mark] for mark in seen.get("marks", []) if mark in marks][:1]


def _check_refused(record: Record, reads: list[Operation]) -> Iterator[Violation]:
    """No read shows content that the product refused."""
    accepted: dict[str, set[int]] = defaultdict(set)
    refused: dict[str, dict[int, Operation]] = defaultdict(dict)
    for story in stories(record):
        accepted[story.key] |= {put.arguments["version"] for put in story.puts}
        refused[story.key] |= {put.arguments["version"]: put for put in story.refused}
    for read in reads:
        for mark in find_marks(" ".join(mark for seen in read.value["seen"] for mark in seen.get("marks", []))):
            version = mark.first
            if mark.first == mark.last and version in refused[mark.key] and version not in accepted[mark.key]:
                text = f"{read.name} shows version {version} of {mark.key}, which was refused"
                numbers = (refused[mark.key][version].number, read.number)
                yield Violation(kind=Kind.RESURRECTED, key=mark.key, text=text, operations=numbers)
