"""`python -m tests.support.faketime_package FOLDER`: unpack Debian's libfaketime into a folder.

There is no Python package with it that changes the clock of a running process.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.debian_packages import unpacking

PACKAGES = ("libfaketime",)


def unpack(folder: Path) -> None:
    with unpacking(PACKAGES, folder):
        pass


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
