"""Names of workers, and whether the process of a worker still runs.

A holder name contains the host (boot id and PID namespace, so each container is its own host), the process id and the
start time of the process, because process ids are reused. Holders on other hosts cannot be checked; their leases
expire.
"""

from __future__ import annotations

import itertools
import os
import socket
from functools import lru_cache
from pathlib import Path

PROC = Path("/proc")
DEAD_STATES = frozenset("ZX")  # zombie, dead
INIT_PID = 1  # exists as long as its namespace

_numbers = itertools.count(1)


def make_holder_name() -> str:
    """Return a unique name for a new worker of this process."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{host_id()}/{pid}/{read_start_time(pid)}/{next(_numbers)}"


def known_dead(holder: str) -> bool:
    """Return whether the process of this holder is known to have ended. False if that cannot be checked."""
    try:
        _, host, pid, start, _ = holder.rsplit("/", 4)
    except ValueError:
        return False
    if not host or host != host_id() or not (pid.isascii() and pid.isdecimal()):
        return False
    if read_start_time(int(pid)) == start:
        return False
    return bool(read_start_time(INIT_PID))  # if process 1 is hidden, other processes may be hidden, too


def host_id() -> str:
    """Identify this boot of this machine and this PID namespace. Empty if unknown."""
    return _read_host_id(os.getpid())


@lru_cache(maxsize=1)  # a pass of the reconciler compares it with every holder of a lease
def _read_host_id(pid: int) -> str:  # noqa: ARG001 - a forked process may be in another namespace
    try:
        space = (PROC / "self/ns/pid").readlink().name
    except OSError:
        return ""
    boot = read_boot_id()
    return f"{boot}+{space.strip('pid:[]')}" if boot else ""


def read_boot_id() -> str:
    """Return the id of the last start of this machine. Empty if unknown."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def read_start_time(pid: int) -> str:
    """Return the start time of a running process in ticks since boot, or "" if it does not run."""
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].decode("ascii").split()  # the process name in parentheses may contain ")"
    return "" if fields[0] in DEAD_STATES else fields[19]
