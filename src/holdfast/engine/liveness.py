"""Who a worker is, and whether it still lives.

A holder names its host (boot id and process namespace, so that two containers are two hosts), its process and
the moment that process started, since process ids are used again. Of holders on other hosts nothing is known:
their leases run out by themselves.
"""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

PROC = Path("/proc")
DEAD_STATES = frozenset("ZX")  # zombie, dead
INIT_PID = 1  # lives as long as its namespace

_numbers = itertools.count(1)


def make_holder_name() -> str:
    """Name a new worker of this process."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{host_id()}/{pid}/{read_start_time(pid)}/{next(_numbers)}"


def known_dead(holder: str) -> bool:
    """Tell whether this holder is known to be gone; not knowing is no proof."""
    try:
        _, host, pid, start, _ = holder.rsplit("/", 4)
    except ValueError:
        return False
    if not host or host != host_id() or not (pid.isascii() and pid.isdecimal()):
        return False
    return (
        bool(read_start_time(INIT_PID)) and read_start_time(int(pid)) != start
    )  # who cannot see the first process sees no strangers


def host_id() -> str:
    """Name this boot of this machine and this namespace of processes; empty where it cannot be known."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        space = (PROC / "self/ns/pid").readlink().name
    except OSError:
        return ""
    return f"{boot}+{space.strip('pid:[]')}"


def read_start_time(pid: int) -> str:
    """Return when a living process started, in ticks since boot; empty if there is none."""
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].decode("ascii").split()  # the name in parentheses may hold anything
    return "" if fields[0] in DEAD_STATES else fields[19]
