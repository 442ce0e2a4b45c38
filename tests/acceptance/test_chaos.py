"""`make chaos` on every deployment: a short run with real processes and faults has no violation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.clocks import find_library
from tests.support.processes import ROOT
from tests.support.servers import ServerError, rabbitmq_folder

if TYPE_CHECKING:
    from pathlib import Path

SMOKE_SECONDS = 30
PROOF_SECONDS = 60
SEED = 1
TIMEOUT_SECONDS = 540  # with the time until all is at rest; pytest itself ends after 600


def run_chaos(deployment: str, seconds: int, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.chaos", "--deployment", deployment, "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--seed", str(SEED), "--keep", str(folder / "kept")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:] + done.stdout[-4000:]
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return summary


@pytest.mark.smoke
def test_one_machine_loses_nothing_while_faults_occur(tmp_path: Path) -> None:
    summary = run_chaos("sqlite", SMOKE_SECONDS, tmp_path)
    assert summary["never_fired"] == []
    assert summary["operations"]["ok"] > 20
    assert summary["faults"] >= len(summary["faults_by_kind"]) > 5


@pytest.mark.parametrize(
    "deployment",
    [
        "sqlite",
        pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.s3]),
        pytest.param("celery-redis", marks=[pytest.mark.celery, pytest.mark.s3]),
        pytest.param("celery-rabbitmq", marks=[pytest.mark.celery, pytest.mark.s3]),
    ],
)
def test_a_deployment_loses_nothing_while_faults_occur(deployment: str, tmp_path: Path) -> None:
    if deployment == "celery-rabbitmq":
        try:
            rabbitmq_folder()
        except ServerError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
    summary = run_chaos(deployment, PROOF_SECONDS, tmp_path)
    assert summary["never_fired"] == []


def test_clocks_can_jump_where_the_tests_run_in_ci() -> None:
    assert find_library() is not None or not os.environ.get("CI")
