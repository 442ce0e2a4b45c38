"""The example scripts of the documentation: plain Celery shows the accident, and guarded Celery prevents it."""

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


def test_plain_celery_pays_twice_and_serves_an_outdated_result() -> None:
    assert "a reader finds: Version 1" in play("before.py").splitlines()[-1]


def test_guarded_celery_pays_once_and_hides_a_late_write() -> None:
    *_, paid, seen = play("after.py").splitlines()
    assert "12 embeddings paid" in paid
    assert "1 late write, a reader finds: Version 2" in seen
