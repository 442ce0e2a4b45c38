"""Checks that every acknowledged document is served with its newest acknowledged content, and nothing else is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.chaos.documents import Story, stories
from tests.chaos.texts import find_marks, marks_of
from tests.chaos.violations import Kind, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.history import Operation, Record

SERVED = "success"
FIRST = "first"  # the document of each base that is added before the clients begin


def check_documents(record: Record) -> Iterator[Violation]:
    """Compare the documents at the end with the writes of the clients."""
    documents = [one for one in record.final["documents"] if one["kind"] == "file" and one["parent"] is None]
    names = Counter((one["base"], one["name"]) for one in documents)
    for (base, name), count in names.items():
        if count > 1:
            yield Violation(kind=Kind.DUPLICATED, text=f"{count} documents have the name {name} in {base}")
    by_name = {(one["base"], one["name"].removesuffix(".md")): one for one in documents}
    for story in stories(record):
        yield from _check_story(story, by_name.pop((story.base, story.key), None))
    for base, key in by_name:
        if key == FIRST:
            continue
        yield Violation(kind=Kind.RESURRECTED, key=key, text=f"{key} in {base} exists and nobody added it")
    yield from _check_tree(record)


def _check_story(story: Story, found: dict[str, Any] | None) -> Iterator[Violation]:
    allowed = story.allowed
    numbers = tuple(one.number for one in allowed)
    versions = sorted({one.arguments["version"] for one in allowed})
    if found is None:
        if story.must_exist:
            text = f"{story.key} in {story.base} is gone; acknowledged versions: {versions}"
            yield Violation(kind=Kind.LOST, key=story.key, text=text, operations=numbers)
        return
    if not allowed:
        removed = tuple(one.number for one in (*story.deletes, *story.emptied))
        text = f"document {found['id']} ({story.key}) exists although its removal was acknowledged"
        yield Violation(kind=Kind.RESURRECTED, key=story.key, text=text, operations=removed)
        return
    yield from _check_content(story.key, found, allowed)


def _check_content(key: str, found: dict[str, Any], allowed: list[Operation]) -> Iterator[Violation]:
    versions = {one.arguments["version"]: one.arguments["sha256"] for one in allowed}
    numbers = tuple(one.number for one in allowed)
    document = f"document {found['id']} ({key})"
    stored = [version for version, digest in versions.items() if digest == found["sha256"]]
    if not stored:
        text = f"{document} stores a content that is none of the newest versions {sorted(versions)}"
        yield Violation(kind=Kind.STALE, key=key, text=text, operations=numbers)
    if found["status"] != SERVED:
        text = f"{document} is not served but {found['status']}: {found['why']}"
        yield Violation(kind=Kind.LOST, key=key, text=text, operations=numbers)
        return
    for version in stored:
        yield from _check_marks(key, version, found, numbers)


def _check_marks(key: str, version: int, found: dict[str, Any], numbers: tuple[int, ...]) -> Iterator[Violation]:
    """Compare the marks in its chunks, its text and its original file with those of the version that it stores."""
    wanted = [str(mark) for mark in marks_of(key, version)]
    for place in ("chunks", "text", "original"):
        shown = found[place]
        if shown == wanted:
            continue
        lacking = [mark for mark in wanted if mark not in shown]
        kind = Kind.LOST if lacking else Kind.DUPLICATED
        if any(mark not in wanted for mark in shown):
            kind = Kind.STALE
        text = f"the {place} of document {found['id']} ({key}) are not version {version}: {shown}"
        yield Violation(kind=kind, key=key, text=text, operations=numbers)


def _check_tree(record: Record) -> Iterator[Violation]:
    """Compare the files below the synced folder with the documents below it. The last sync came after all changes."""
    wanted: dict[str, int] = record.final.get("tree", {})
    found = {one["name"].removesuffix(".md"): one for one in record.final["documents"] if one["parent"] is not None}
    for key in sorted(wanted.keys() - found.keys()):
        yield Violation(kind=Kind.LOST, key=key, text=f"the file {key}.md of the synced folder is no document")
    for key in sorted(found.keys() - wanted.keys()):
        text = f"document {found[key]['id']} ({key}) exists, but its file or its folder was removed"
        yield Violation(kind=Kind.RESURRECTED, key=key, text=text)
    for key in sorted(wanted.keys() & found.keys()):
        if found[key]["status"] != SERVED:
            text = f"document {found[key]['id']} ({key}) is not served but {found[key]['status']}"
            yield Violation(kind=Kind.LOST, key=key, text=text)
        else:
            yield from _check_marks(key, wanted[key], found[key], ())


def marks_served(record: Record) -> set[str]:
    """Return the marks of everything that is served at the end."""
    return {mark for one in record.final["documents"] for mark in one["original"]}


def keys_in(text: str) -> set[str]:
    return {mark.key for mark in find_marks(text)}
