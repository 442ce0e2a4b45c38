"""A seed decides what clients do and which faults occur, and nothing else does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.faults import FAULTS, KINDS
from tests.chaos.history import History, read_record
from tests.chaos.schedule import LONG_RUN, make_schedule

ROOT = Path(__file__).resolve().parents[2]
JUDGES = ("checker", "documents", "history", "report", "texts", "timeline", "violations")


def test_the_same_seed_gives_the_same_schedule() -> None:
    first, again = (make_schedule(7, 60, KINDS["postgres"]) for _ in range(2))
    assert first == again
    assert first.digest == again.digest
    assert first.digest != make_schedule(8, 60, KINDS["postgres"]).digest


@pytest.mark.parametrize("deployment", KINDS)
def test_each_kind_of_fault_occurs_before_one_occurs_again(deployment: str) -> None:
    kinds = KINDS[deployment]
    planned = [one.kind for one in make_schedule(1, 3600, kinds).faults]
    for first in range(0, len(planned) - len(kinds), len(kinds)):
        assert sorted(planned[first : first + len(kinds)]) == sorted(kinds)
    assert len(planned) > 1000  # an hour


@pytest.mark.parametrize("deployment", KINDS)
def test_every_listed_fault_exists(deployment: str) -> None:
    assert set(KINDS[deployment]) <= FAULTS.keys()


def test_every_fault_is_used() -> None:
    assert {kind for kinds in KINDS.values() for kind in kinds} == FAULTS.keys()


def test_each_version_of_a_document_is_written_once() -> None:
    steps = [one for one in make_schedule(3, 300, []).steps if one.name in ("put", "write_file")]
    assert len({(one.key, one.version) for one in steps}) == len(steps)


def test_the_checker_knows_nothing_of_the_product() -> None:
    folder = ROOT / "tests/chaos"
    modules = [*folder.glob("check_*.py"), *(folder / f"{name}.py" for name in JUDGES)]
    for module in modules:
        names = [
            node.module or "" for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        names += [
            one.name
            for node in ast.walk(ast.parse(module.read_text()))
            if isinstance(node, ast.Import)
            for one in node.names
        ]
        assert not [name for name in names if name.startswith("holdfast")], module.name
    program = "import sys, tests.chaos.checker; print([name for name in sys.modules if name.startswith('holdfast')])"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    number = history.invoke("w1", "put", base="sea", key="w1k0")
    unanswered = history.invoke("w1", "delete", base="sea", key="w1k0")
    history.ok(number, document=1)
    history.write("fault", kind="kill_web", begin=0.1, end=0.2, fired=True)
    history.write("event", follower="follower-1", id="0-1", name="job.success", document=1, job="a", marks=[])
    history.close()
    record = read_record(tmp_path / "history.jsonl")
    assert [(one.number, one.outcome) for one in record.operations] == [(number, "ok"), (unanswered, "unknown")]
    assert record.faults[0]["kind"] == "kill_web"
    assert record.followed["follower-1"][0]["id"] == "0-1"


def test_a_short_run_need_not_have_the_faults_that_wait_for_a_request() -> None:
    kinds = ("kill_web", "bucket_errors", "webhook_dead")
    assert make_schedule(1, LONG_RUN, kinds).required == set(kinds)
    assert make_schedule(1, LONG_RUN - 1, kinds).required == {"kill_web"}
