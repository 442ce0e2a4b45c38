"""`python -m tests.support.nginx_package FOLDER`: unpack Debian's nginx and its libraries into a folder.

There is no Python package with nginx.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.debian_packages import unpacking

PACKAGES = ("nginx", "nginx-common", "libcrypt1", "libpcre2-8-0", "libssl3", "zlib1g")


def unpack(folder: Path) -> None:
    with unpacking(PACKAGES, folder):
        pass


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
