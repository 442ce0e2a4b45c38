"""Checks that at the end every store contains what the documents need, and that all work is at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.check_documents import marks_served
from tests.chaos.texts import find_marks
from tests.chaos.violations import Kind, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.history import Record


def check_stores(record: Record) -> Iterator[Violation]:
    final = record.final
    files, blobs = set(final["files"]), set(final["blobs"])
    if files - blobs:
        yield Violation(kind=Kind.LEFTOVER, text=f"files that no document names: {sorted(files - blobs)[:3]}")
    if blobs - files:
        yield Violation(kind=Kind.LOST, text=f"documents name files that do not exist: {sorted(blobs - files)[:3]}")
    if final["file_records"]:
        yield Violation(kind=Kind.LEFTOVER, text=f"records of unfinished files: {final['file_records'][:3]}")
    served = marks_served(record)
    for table, marks in sorted(final["rows"].items()):
        others = sorted(set(marks) - served)
        if others:
            key = find_marks(others[0])[0].key
            text = f"{len(others)} paragraphs in {table} belong to nothing that is served, such as {others[0]}"
            yield Violation(kind=Kind.LEFTOVER, key=key, text=text)
    for finding in final["doctor"]:
        yield Violation(kind=Kind.LEFTOVER, text=f"the doctor finds {finding['code']}: {finding.get('sentence', '')}")
    for slot in final["active_slots"]:
        yield Violation(kind=Kind.STUCK, text=f"a slot is not at rest: {slot}")
    for problem in final["problems"]:
        yield Violation(kind=Kind.STUCK, text=problem)
