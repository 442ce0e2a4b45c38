"""Commands on many documents: they wait for the job with progress, or name it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from holdfast.clock import SystemClock
from holdfast.documents import bulk
from holdfast.engine.rules import Rules
from holdfast.engine.store.factory import open_store
from tests.integration.test_cli import Typed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Return a library with five documents, in which an operation on more than three is a job."""
    monkeypatch.setattr(bulk, "ITEMS_AT_ONCE", 3)
    typed = Typed(tmp_path)
    typed("add", *[typed.file(f"{number}.md", f"# Part {number}\n\nKrill {number}.\n") for number in range(5)])
    return typed


def test_a_command_on_many_documents_waits_for_the_job_and_the_documents(typed: Typed) -> None:
    by_name = typed.json("reindex", *(f"{number}.md" for number in range(5)))
    assert {reply["reason"] for reply in by_name["replies"]} == {"bulk_started"}
    assert len({reply["job"] for reply in by_name["replies"]}) == 1
    assert [document["status"] for document in by_name["documents"]] == ["success"] * 5
    assert len(typed.json("reindex", "--all")["documents"]) == 5
    by_filter = typed.json("reindex", "--kind", "file")
    assert by_filter["summary"]["answers"] == {"accepted: reindex": 5}
    assert len(by_filter["documents"]) == 5
    typed("rm", "--kind", "file", "--yes")
    assert typed.json("ls")["total"] == 0


def test_a_command_that_does_not_wait_names_the_job_which_can_be_cancelled(typed: Typed) -> None:
    told = typed("rm", "--kind", "file", "--yes", "--no-wait").stderr
    found = re.search(r"Job (\w+) processes 5 documents", told)
    assert found is not None, told
    assert typed.json("ls")["total"] == 5
    listed = typed("queue", "ls", "--state", "queued").stdout
    assert "delete" in listed
    assert "bulk" in listed
    assert "0/5" in listed
    typed("cancel", found[1])
    assert "cancelled" in typed("queue", "ls", "--state", "cancelled").stdout
    typed("add", typed.file("other.md", "Other."))
    assert typed.json("ls")["total"] == 6


def test_the_delete_of_a_base_waits_if_wanted(typed: Typed) -> None:
    typed("base", "create", "other")
    at_once = typed.json("base", "delete", "other", "--yes")
    assert at_once["job"] is not None
    name = typed.json("base", "ls")[0]["name"]
    assert "All data is removed" in typed("base", "delete", name, "--yes", "--wait").stderr
    assert typed.json("base", "ls") == []


def test_a_command_on_everything_waits_for_its_job_or_names_it(typed: Typed) -> None:
    typed("add", *[typed.file(f"more{number}.md", f"More {number}.") for number in range(5)], "--no-wait")
    told = typed("cancel", "--all").stderr
    assert re.search(r"Job \w+ processes 5 jobs when a worker runs", told), told
    typed("add", typed.file("other.md", "Other."))  # this process also works
    assert [one["status"] for one in typed.json("ls", "--text", "more")["items"]] == ["not_indexed"] * 5
    told = typed("base", "clear", "default", "--yes").stderr
    assert re.search(r"Job \w+ deletes all 11 documents of base 'default' when a worker runs", told), told
    assert typed.json("base", "clear", "default", "--yes")["cleared"] is False
    # The worker of this command may have run the job of the clear before the command counts the documents.
    assert re.search(r"Deleted (0|11) documents of base 'default'", typed("rm", "--all", "--yes").stderr)
    assert typed.json("ls")["total"] == 0
    assert typed.json("base", "clear", "default", "--yes") == {"base": "default", "cleared": True, "jobs": []}


def test_retry_all_waits_for_its_job_and_the_documents(typed: Typed) -> None:
    typed("add", *[typed.file(f"empty{number}.md", " " * number) for number in range(1, 6)], end=1)
    retried = typed.json("retry", "--all", end=1)
    assert retried["summary"]["answers"] == {"accepted: not_complete": 5}
    assert [document["status"] for document in retried["documents"]] == ["failed"] * 5
    told = typed("retry", "--all", "--no-wait").stderr
    assert "processes 5 documents when a worker runs" in told


def test_a_change_of_settings_names_its_job_and_how_to_follow_and_cancel_it(typed: Typed) -> None:
    told = typed("base", "set", "default", "chunk_size=300").stderr
    found = re.search(r"Job (\w+) updates the documents to the new settings when .* runs\. (.*)", told)
    assert found is not None, told
    job, rest = found.groups()
    assert rest.startswith("Show its progress: holdfast ")
    assert f"cancel {job}" in rest
    assert typed.json("base", "set", "default", "chunk_size=320")["rollout_job"] != job
    typed("cancel", typed.json("base", "show", "default")["base"]["rollout_job"])
    assert typed.json("base", "show", "default")["base"]["rollout_job"] is None
    assert "Job" not in typed("base", "set", "default", "auto_index=false").stderr


def test_jobs_that_run_for_long_are_listed_with_the_time_that_they_run(tmp_path: Path) -> None:
    typed = Typed(tmp_path)
    job = typed.json("add", typed.file("slow.md", "# Slow"), "--no-wait")["replies"][0]["job"]
    store = open_store(f"sqlite:///{typed.home / 'holdfast.db'}", rules=Rules(), clock=SystemClock())
    assert len(store.claim_next(("content",), "worker", 1)) == 1
    store.close()
    assert [found["id"] for found in typed.json("queue", "ls", "--longer-than", "0s")["items"]] == [job]
    assert re.search(rf"{job}\tindexing\t.*\trunning for \d+ s", typed("queue", "ls").stdout)
    assert typed.json("queue", "ls", "--longer-than", "2h")["items"] == []
    assert "No jobs match." in typed("queue", "ls", "--longer-than", "2h").stderr
    assert "--longer-than 'soon' is not a time." in typed("queue", "ls", "--longer-than", "soon", end=2).stderr
