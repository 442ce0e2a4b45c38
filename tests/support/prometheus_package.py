"""`python -m tests.support.prometheus_package FOLDER`: unpack Debian's Prometheus into a folder.

There is no Python package with Prometheus.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.debian_packages import unpacking

PACKAGES = ("prometheus",)


def unpack(folder: Path) -> None:
    with unpacking(PACKAGES, folder):
        pass


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
