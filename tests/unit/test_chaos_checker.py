"""The checker of `make chaos` accepts a correct run, and detects each kind of violation."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.checker import check
from tests.chaos.history import NEVER, Operation, Record
from tests.chaos.report import recovery, summarise
from tests.chaos.texts import find_marks, marks_of, sha256, text_of
from tests.chaos.timeline import write_timeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = "w1k0"
OTHER = "w1k1"
EVENT_TYPES = ("job.accepted", "job.success")


class Run:
    """A record of a run in which everything is right. Tests break one thing in it."""

    def __init__(self) -> None:
        self.record = Record(run={"wall": 0.0, "seed": 1, "deployment": "sqlite"})
        self.record.final = {
            "documents": [], "jobs": [], "events": [], "webhook_types": ["job.*"], "files": [], "blobs": [],
            "file_records": [], "rows": {}, "doctor": [], "active_slots": [], "problems": [],
        }  # fmt: skip
        self._number = 0
        self._time = 0.0

    def operate(self, name: str, outcome: str = "ok", *, long: float = 1.0, **value: Any) -> Operation:
        """Add an operation; `arguments` are those of the client, all else is the answer."""
        self._number += 1
        begin, self._time = self._time, self._time + long + 1
        arguments: dict[str, Any] = {"base": "sea", **value.pop("arguments", {})}
        end = NEVER if outcome == "unknown" else begin + long
        one = Operation(self._number, "w1", name, arguments, begin, end, outcome, value)
        self.record.operations.append(one)
        return one

    def put(self, version: int, outcome: str = "ok", *, document: int = 1, key: str = KEY, **more: Any) -> Operation:
        arguments = {"key": key, "version": version, "sha256": sha256(text_of(key, version))}
        job = f"job-{self._number + 1}"
        told: dict[str, Any] = {"document": document, "generation": version, "verdict": "accepted", "job": job}
        one = self.operate("put", outcome, arguments=arguments, **(told if outcome == "ok" else {}), **more)
        if outcome == "ok":
            self.end_job(job, document)
        return one

    def end_job(self, job: str, document: int) -> None:
        times = {"created_at": 0, "finished_at": 2_000_000}
        self.record.final["jobs"].append({"id": job, "owner": str(document), "outcome": "success", **times})
        for type_ in EVENT_TYPES:
            self.tell(type_, document, job)

    def tell(self, type_: str, document: int, job: str | None = None) -> str:
        """Write an event, which followers and the webhook receive."""
        place = f"0-{len(self.record.final['events']) + 1}"
        event = {"id": place, "name": type_, "document": document, "job": job}
        self.record.final["events"].append(event)
        for follower in ("follower-1", "follower-2"):
            self.record.followed.setdefault(follower, []).append({**event, "at": self._time, "marks": []})
        message = {"message": f"msg_{place}", "event": place, "valid": True, "body": "{}"}
        self.record.messages.append(message)
        return place

    def delete(self, document: int = 1, key: str = KEY, outcome: str = "ok") -> Operation:
        arguments = {"key": key, "document": document}
        return self.operate("delete", outcome, arguments=arguments, verdict="accepted", job=None)

    def read(self, name: str, document: int, generation: int | None, marks: list[str], **more: Any) -> Operation:
        seen = [{"document": document, "generation": generation, "marks": marks}]
        return self.operate(name, arguments={"key": KEY, "document": document}, seen=seen, **more)

    def serve(self, version: int, document: int = 1, key: str = KEY, **changes: Any) -> dict[str, Any]:
        """Let a document be served at the end."""
        marks = shown(version, key)
        one = {
            "id": document, "base": "sea", "name": f"{key}.md", "kind": "file", "status": "success", "why": None,
            "generation": version, "built": version, "sha256": sha256(text_of(key, version)), "parent": None,
            "chunks": marks, "text": marks, "original": marks, **changes,
        }  # fmt: skip
        self.record.final["documents"].append(one)
        self.record.final["files"].append(f"file-{document}")
        self.record.final["blobs"].append(f"file-{document}")
        self.record.final["rows"].setdefault("library_chunks", []).extend(marks)
        return one

    def pay(self, text: str, at: float, damaged: str = "") -> dict[str, Any]:
        call: dict[str, Any] = {
            "path": "/v1/embeddings",
            "began": at,
            "ended": at + 0.1,
            "texts": [text],
            "damaged": damaged,
        }
        self.record.calls.append(call)
        return call

    def found(self) -> set[str]:
        """Return the kinds of violations."""
        return {violation.kind.value for violation in check(self.record)}


def shown(version: int, key: str = KEY) -> list[str]:
    return [str(mark) for mark in marks_of(key, version)]


@pytest.fixture
def run() -> Run:
    """A document with two versions, and one that was deleted."""
    run = Run()
    run.put(1)
    run.read("chunks", 1, 1, shown(1))
    run.put(2)
    run.read("chunks", 1, 2, shown(2))
    run.put(1, document=2, key=OTHER)
    run.delete(2, OTHER)
    run.serve(2)
    return run


def test_a_correct_run_has_no_violations(run: Run) -> None:
    assert check(run.record) == []


def test_every_paragraph_of_a_text_has_one_mark() -> None:
    assert [str(mark) for mark in find_marks(text_of(KEY, 5))] == shown(5)
    assert shown(4)[0] == shown(5)[0] != shown(8)[0]


BREAKS: dict[str, tuple[str, Callable[[Run], object]]] = {
    "the document is gone": ("lost", lambda run: run.record.final["documents"].clear()),
    "it is not served": ("lost", lambda run: run.record.final["documents"][0].update(status="failed")),
    "its old content is served": ("stale", lambda run: run.record.final["documents"][0].update(chunks=shown(1))),
    "its old text is served": ("stale", lambda run: run.record.final["documents"][0].update(text=shown(1))),
    "its old file is stored": ("stale", lambda run: run.record.final["documents"][0].update(sha256="old")),
    "a chunk is lost": ("lost", lambda run: run.record.final["documents"][0]["chunks"].pop()),
    "a chunk is shown twice": (
        "duplicated",
        lambda run: run.record.final["documents"][0].update(chunks=[*shown(2), shown(2)[-1]]),
    ),
    "the deleted document is back": ("resurrected", lambda run: run.serve(1, 2, OTHER)),
    "a document that nobody added": ("resurrected", lambda run: run.serve(1, 3, "w1k9")),
    "two documents with one name": ("duplicated", lambda run: run.serve(2, 3)),
    "a read goes back a generation": ("stale", lambda run: run.read("chunks", 1, 1, shown(1))),
    "a list goes back a generation": (
        "stale",
        lambda run: (run.read("list", 1, 2, []), run.read("list", 1, 1, [])),
    ),
    "a read shows half of a version": ("stale", lambda run: run.read("chunks", 1, 2, shown(2)[:2])),
    "a read mixes two versions": ("stale", lambda run: run.read("text", 1, 2, [*shown(2)[:3], shown(1)[3]])),
    "a list shows the deleted document": ("resurrected", lambda run: run.read("list", 2, 1, [])),
    "a search shows deleted text": ("resurrected", lambda run: run.read("search", 9, 1, shown(1, OTHER)[1:2])),
    "a search shows refused content": (
        "resurrected",
        lambda run: (run.put(3, "fail"), run.read("search", 1, 2, shown(3)[1:2])),
    ),
    "a job is gone": ("lost", lambda run: run.record.final["jobs"].pop()),
    "a job has no outcome": ("stuck", lambda run: run.record.final["jobs"][0].update(outcome=None)),
    "a job ends twice": ("duplicated", lambda run: run.tell("job.failed", 1, run.record.final["jobs"][0]["id"])),
    "the end of a job is no event": ("lost", lambda run: run.record.final["jobs"][0].update(outcome="failed")),
    "an outcome changes": ("duplicated", lambda run: run.operate("job", job="job-1", outcome_="failed")),
    "a follower misses an event": ("lost", lambda run: run.record.followed["follower-1"].pop()),
    "a follower gets an event twice": (
        "duplicated",
        lambda run: run.record.followed["follower-1"].append(run.record.followed["follower-1"][-1]),
    ),
    "a follower gets another order": ("stale", lambda run: run.record.followed["follower-2"].reverse()),
    "a follower has to start again": (
        "lost",
        lambda run: run.record.followed["follower-1"].append({"id": "", "name": "reset"}),
    ),
    "an event contains text": (
        "resurrected",
        lambda run: run.record.followed["follower-1"][0].update(marks=shown(1)),
    ),
    "an event after a delete": (
        "resurrected",
        lambda run: (run.tell("document.deleted", 2), run.tell("index.ready", 2)),
    ),
    "a webhook message is missing": ("lost", lambda run: run.record.messages.pop()),
    "a webhook message is forged": ("forged", lambda run: run.record.messages[0].update(valid=False)),
    "an event arrives under two ids": (
        "duplicated",
        lambda run: run.record.messages.append({**run.record.messages[0], "message": "other"}),
    ),
    "a webhook message contains text": (
        "resurrected",
        lambda run: run.record.messages[0].update(body=shown(1)[0]),
    ),
    "a text is paid twice": ("overpaid", lambda run: [run.pay(text_of(KEY, 2), at) for at in (1, 60)]),
    "a file is left": ("leftover", lambda run: run.record.final["files"].append("left")),
    "a file is missing": ("lost", lambda run: run.record.final["files"].clear()),
    "a record of a file is left": ("leftover", lambda run: run.record.final["file_records"].append(["id", None])),
    "text of a deleted document is left": (
        "leftover",
        lambda run: run.record.final["rows"].update(vector_2=shown(1, OTHER)),
    ),
    "the doctor finds something": ("leftover", lambda run: run.record.final["doctor"].append({"code": "row_left"})),
    "a slot is not at rest": ("stuck", lambda run: run.record.final["active_slots"].append([1, 1, "vector"])),
    "work does not end": ("stuck", lambda run: run.record.final["problems"].append("jobs are still active")),
    "a file of the folder is no document": ("lost", lambda run: run.record.final.update(tree={"f1k0": 1})),
    "a removed file is still a document": ("resurrected", lambda run: run.serve(1, 4, "f1k0", parent=3)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_violation_is_detected(run: Run, name: str) -> None:
    kind, damage = BREAKS[name]
    damage(run)
    for one in run.record.operations:  # `outcome` is an argument of `operate`
        if "outcome_" in one.value:
            one.value["outcome"] = one.value.pop("outcome_")
    assert kind in run.found()


def test_a_put_without_an_answer_may_have_taken_effect_or_not(run: Run) -> None:
    run.put(3, "unknown")
    assert run.found() == set()
    run.record.final["documents"].clear()
    run.record.final["rows"] = {}
    run.serve(3)
    assert run.found() == set()


def test_a_put_without_an_answer_may_take_effect_after_later_ones() -> None:
    run = Run()
    run.put(1, "unknown")
    run.put(2)
    run.serve(1)
    assert run.found() == set()


def test_a_delete_without_an_answer_may_have_taken_effect_or_not(run: Run) -> None:
    run.delete(1, outcome="unknown")
    assert run.found() == set()
    run.record.final.update(documents=[], rows={}, files=[], blobs=[])
    assert run.found() == set()


def test_a_delete_of_a_replaced_document_does_not_remove_its_successor() -> None:
    run = Run()
    run.put(1, document=1)
    run.delete(1)
    run.put(2, document=5)
    assert run.found() == {"lost"}
    run.serve(2, document=5)
    assert run.found() == set()


def test_generations_order_concurrent_puts() -> None:
    run = Run()
    first, second = run.put(1), run.put(2)
    first.invoked, first.ended, second.invoked, second.ended = 0.0, 5.0, 0.0, 5.0
    run.serve(2)
    assert run.found() == set()
    first.value["generation"], second.value["generation"] = 2, 1
    assert run.found() == {"stale"}


def test_dropping_a_base_removes_the_documents_that_were_there_before() -> None:
    run = Run()
    run.put(1)
    run.operate("drop_base")
    assert run.found() == set()
    run.put(2, document=2)
    assert run.found() == {"lost"}
    run.serve(2, document=2)
    assert run.found() == set()


def test_only_one_of_two_identical_requests_is_accepted(run: Run) -> None:
    first = run.put(3)
    twin = run.put(3)
    twin.arguments["twin"] = first.number
    twin.invoked, twin.ended = first.invoked, first.ended
    run.record.final["documents"].clear()
    run.record.final["rows"] = {}
    run.serve(3)
    assert run.found() == {"duplicated"}
    twin.value["verdict"] = "same"
    assert run.found() == set()


def test_concurrent_reads_may_show_either_generation(run: Run) -> None:
    newer = run.read("chunks", 1, 3, shown(2))
    older = run.read("chunks", 1, 2, shown(2))
    older.invoked = newer.invoked
    assert run.found() == set()


@pytest.mark.parametrize("reason", ["failed call", "crash", "concurrent", "removed between"])
def test_a_second_payment_is_allowed_with_a_reason(run: Run, reason: str) -> None:
    text = text_of(KEY, 2)
    run.pay(text, 20, damaged="short" if reason == "failed call" else "")
    run.pay(text, 21 if reason == "concurrent" else 60)
    if reason == "crash":
        run.record.faults.append({"kind": "kill_child", "begin": 20.05, "end": 21.0, "fired": True})
    if reason == "removed between":
        run.delete(1, outcome="unknown").invoked = 30.0
    assert run.found() == set()


def test_a_fault_of_the_webhook_does_not_explain_a_second_payment(run: Run) -> None:
    run.record.faults.append({"kind": "webhook_dead", "begin": 20.0, "end": 21.0, "fired": True})
    run.pay(text_of(KEY, 2), 20)
    run.pay(text_of(KEY, 2), 60)
    assert run.found() == {"overpaid"}


def test_recovery_is_the_time_from_a_fault_to_the_end_of_the_work_that_it_met(run: Run) -> None:
    run.record.faults.append({"kind": "kill_child", "begin": 0.5, "end": 0.6, "fired": True})
    run.record.faults.append({"kind": "kill_child", "begin": 5.0, "end": 5.1, "fired": True})  # met no work
    assert recovery(run.record) == {"jobs": 3, "p50": 1.5, "p99": 1.5}


def test_the_summary_counts_violations_and_faults_that_fired(run: Run) -> None:
    run.record.faults += [
        {"kind": "kill_child", "begin": 0.5, "end": 0.6, "fired": True},
        {"kind": "kill_web", "begin": 0.5, "end": 0.6, "fired": False},
    ]
    run.record.final["documents"].clear()
    summary = summarise(run.record, check(run.record), ["kill_web"])
    assert summary["faults_by_kind"] == {"kill_child": 1}
    assert summary["never_fired"] == ["kill_web"]
    assert (summary["lost"], summary["stale"]) == (1, 0)


def test_a_timeline_names_the_operations_of_its_document(run: Run, tmp_path: Path) -> None:
    record = copy.deepcopy(run.record)
    record.faults.append({"kind": "kill_child", "begin": 0.5, "end": 0.6, "fired": True})
    write_timeline(tmp_path / "page.html", record, KEY, [])
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "w1 put #1" in page
    assert "kill_child" in page
    assert "put #5" not in page  # it belongs to another document
