"""A move whose process is killed at many statements, one after the other, arrives complete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from holdfast.errors import StoreClosed
from tests.integration.test_moving import Desk, desk, rows
from tests.support.processes import ROOT
from tests.support.stores import open_test_store
from tests.support.timeouts import PATIENCE_SECONDS

__all__ = ["desk"]  # a fixture
STEPS = (9, 31, 47, 61, 83, 97, 130, 180)  # statements that a process executes before it is killed


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("sqlite", "sqlite"),
        pytest.param("sqlite", "postgres", marks=pytest.mark.postgres),
        pytest.param("postgres", "sqlite", marks=pytest.mark.postgres),
    ],
)
def test_a_move_that_is_killed_again_and_again_arrives_complete(
    desk: Desk,
    kind: str,
    other: str,
) -> None:
    source, target, files = desk.new_database(kind), desk.new_database(other), desk.files
    rig = desk.fill(source)
    before = rows(rig.store.database)
    rig.close()
    environment: dict[str, Any] = os.environ | {
        "HOLDFAST_HOME": desk.settings.home,
        "HOLDFAST_DATA": desk.settings.data,
        "HOLDFAST_SECRET_KEY": desk.settings.secret_key,
    }
    ends = []
    for number in (*STEPS, *(STEPS[-1] * 2**more for more in range(1, 10))):
        command = [sys.executable, "-m", "tests.support.killed_move", source, target, files, str(number)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=PATIENCE_SECONDS, capture_output=True, check=False
        )
        ends.append(done.returncode)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert ends[-1] == 0
    assert len(ends) > 6
    library = desk.open(target, data=files)
    assert rows(library.store.database) == before
    assert [one for one in library.doctor.check(deep=True) if one.code != "nobody_works"] == []
    with pytest.raises(StoreClosed):
        open_test_store(source, desk.clock)
