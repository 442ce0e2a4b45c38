"""Checks that each text was paid once, except where a crash, a failed call or concurrency explains another payment."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.chaos.texts import find_marks
from tests.chaos.violations import Kind, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.history import Record

EMBEDDINGS = "/v1/embeddings"
# After an answer has left the provider, it takes this long at most until it is stored for all processes.
STORING_SECONDS = 5.0
# These do not stop a process or a store between an answer and its storing.
HARMLESS = ("provider_", "webhook_")


def check_paid(record: Record) -> Iterator[Violation]:
    for text, reason in _payments(record):
        if reason == "unexplained":
            keys = {mark.key for mark in find_marks(text)}
            shown = text[:80].replace("\n", " ")
            yield Violation(kind=Kind.OVERPAID, key=min(keys, default=""), text=f"paid again for no reason: {shown!r}")


def count_paid(record: Record) -> dict[str, Any]:
    """Return the number of paid texts of documents, how many differ, and why the others were paid again."""
    calls = _calls_of_texts(record)
    reasons = Counter(reason for _, reason in _payments(record))
    return {"paid": sum(map(len, calls.values())), "unique": len(calls), "again": dict(sorted(reasons.items()))}


def _calls_of_texts(record: Record) -> dict[str, list[dict[str, Any]]]:
    """Return the calls that charged for each text of a document. Questions of clients are not documents."""
    questions = {one.arguments["query"] for one in record.operations if "query" in one.arguments}
    calls: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for call in sorted(record.calls, key=lambda call: call["began"]):
        for text in call["texts"]:
            if call["path"] == EMBEDDINGS and find_marks(text) and text not in questions:
                calls[text].append(call)
    return calls


def _payments(record: Record) -> Iterator[tuple[str, str]]:
    """Yield each payment after the first one of a text, with its explanation."""
    crashes = [(one["begin"], one["end"]) for one in record.faults if not one["kind"].startswith(HARMLESS)]
    removed: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in record.operations:
        if one.name in ("delete", "cancel", "drop_base", "clear_base", "remove_file", "delete_folder", "settings"):
            removed[one.key or one.arguments["base"]].append((one.invoked, one.settled))
    bases = {one.key: one.arguments["base"] for one in record.operations if one.name in ("put", "write_file")}
    for text, calls in _calls_of_texts(record).items():
        keys = {mark.key for mark in find_marks(text)}
        gone = [span for key in keys for span in (*removed[key], *removed[bases.get(key, "")])]
        for before, again in pairwise(calls):
            yield text, _explain(before, again, crashes, gone)


def _explain(
    before: dict[str, Any],
    again: dict[str, Any],
    crashes: list[tuple[float, float]],
    gone: list[tuple[float, float]],
) -> str:
    """Return why a text was paid again after a call."""
    if before["damaged"]:
        return "failed call"
    if again["began"] < before["ended"] + STORING_SECONDS:
        return "concurrent"
    if any(begin < before["ended"] + STORING_SECONDS and end > before["began"] for begin, end in crashes):
        return "crash"
    if any(begin < again["began"] and end > before["began"] for begin, end in gone):
        return "removed between"
    return "unexplained"
