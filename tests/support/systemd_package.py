"""`python -m tests.support.systemd_package FOLDER`: unpack Debian's systemd and its libraries into a folder.

The tests only need `systemd-analyze`, which checks units without a running systemd.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.debian_packages import unpacking

PACKAGES = (
    "systemd",
    "libsystemd-shared",
    "libacl1",
    "libapparmor1",
    "libaudit1",
    "libblkid1",
    "libcap-ng0",
    "libcap2",
    "libcrypt1",
    "libgcrypt20",
    "libgpg-error0",
    "libip4tc2",
    "libkmod2",
    "liblz4-1",
    "liblzma5",
    "libmount1",
    "libpam0g",
    "libpcre2-8-0",
    "libseccomp2",
    "libselinux1",
    "libssl3",
    "libzstd1",
)


def unpack(folder: Path) -> None:
    with unpacking(PACKAGES, folder):
        pass


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
