"""`python -m tests.support.rabbitmq_package FOLDER`: unpack Debian's RabbitMQ and Erlang into a folder.

There is no Python package with RabbitMQ.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.debian_packages import unpacking

ERLANG = (
    "asn1", "base", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools",
    "snmp", "ssl", "syntax-tools", "tftp", "tools", "xmerl",
)  # fmt: skip
PACKAGES = ("rabbitmq-server", *(f"erlang-{name}" for name in ERLANG), "libsctp1")


def unpack(folder: Path) -> None:
    with unpacking(PACKAGES, folder) as root:
        erl = root / "usr" / "lib" / "erlang" / "bin" / "erl"  # it expects to be below /usr
        here = '$(dirname "$(dirname "$(realpath "$0")")")'
        erl.write_text(erl.read_text().replace("ROOTDIR=/usr/lib/erlang", f"ROOTDIR={here}"))


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
