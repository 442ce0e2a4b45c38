"""`python -m tests.support.pgbouncer_package FOLDER`: unpack Debian's pgbouncer and its libraries into a folder.

There is no Python package with pgbouncer.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.debian_packages import unpacking

PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7")


def unpack(folder: Path) -> None:
    with unpacking(PACKAGES, folder):
        pass


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
