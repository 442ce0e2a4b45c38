"""Download and unpack Debian packages into a folder.

Nothing is installed on the machine: no service starts and no file outside of the folder changes.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def unpacking(packages: Sequence[str], folder: Path) -> Iterator[Path]:
    """Unpack packages and yield their root, where they can be changed. The folder appears only when it is complete."""
    with tempfile.TemporaryDirectory(prefix="packages-") as scratch:
        root = Path(scratch, "root")
        _run("apt-get", "update", cwd=scratch)
        _run("apt-get", "download", *packages, cwd=scratch)
        for package in sorted(Path(scratch).glob("*.deb")):
            _run("dpkg", "-x", str(package), str(root), cwd=scratch)
        yield root
        shutil.move(root, folder)


def _run(*command: str, cwd: str) -> None:
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:2])} failed:\n{done.stdout[-2000:]}")
