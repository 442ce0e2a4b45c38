"""The accident happens on plain Celery and not behind the guard: the scripts that the documentation tells to run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.celery


def play(script: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}
    ran = subprocess.run(
        [sys.executable, f"examples/accident/{script}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_plain_celery_pays_twice_and_lets_old_work_win() -> None:
    assert "a reader finds: Version 1" in play("before.py").splitlines()[-1]


def test_behind_the_guard_it_is_paid_once_and_a_late_write_is_never_seen() -> None:
    *_, paid, seen = play("after.py").splitlines()
    assert "12 embeddings paid" in paid
    assert "1 late write, a reader finds: Version 2" in seen
