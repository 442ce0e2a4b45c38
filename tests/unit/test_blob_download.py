"""A downloaded blob is removed after its use, also if the process that downloaded it was killed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import pytest

from holdfast.blobs.download import download_to_file, remove_abandoned_files

if TYPE_CHECKING:
    from pathlib import Path

DIES = """
import io, os
from holdfast.blobs.download import download_to_file
with download_to_file(io.BytesIO(b"krill")):
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_the_file_of_a_killed_process_is_removed_and_that_of_a_living_one_is_kept(temporary: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", DIES], check=False)
    assert ran.returncode == -signal.SIGKILL
    (left,) = temporary.iterdir()
    with download_to_file(io.BytesIO(b"whales")) as used:
        remove_abandoned_files()
        assert set(temporary.iterdir()) == {left, used}  # a young file may belong to a process that has just begun
        for path in (left, used):
            os.utime(path, (time.time() - 3600,) * 2)
        remove_abandoned_files()
        assert list(temporary.iterdir()) == [used]
        assert used.read_bytes() == b"whales"
    assert list(temporary.iterdir()) == []
