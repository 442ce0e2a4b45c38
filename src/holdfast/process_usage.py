"""Processor time and peak memory of a process, from /proc on Linux.

The kernel keeps the peak of the resident memory of a process (`VmHWM`) until somebody resets it through `clear_refs`.
Where /proc is missing, only the lifetime peak of this process is known, and nothing about other processes. Where
`clear_refs` may not be written, for example in some containers, each peak is the highest since the process started.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import NamedTuple

CURRENT = "self"  # the process that asks
RESET_PEAK = b"5"
STATUS_BYTES = 8192
MILLISECONDS_PER_TICK = 1000 / os.sysconf("SC_CLK_TCK")


class ProcessUsage(NamedTuple):
    """What a process used for one piece of work."""

    cpu_ms: float = 0.0
    peak_kb: int = 0


def read_peak_kb(process: int | str = CURRENT) -> int:
    """Return the highest resident memory since the last reset, in KiB; 0 if it is unknown."""
    try:
        status = _read(f"/proc/{process}/status")
        line = status[status.index(b"VmHWM:") :].split(b"\n", 1)[0]
        return int(line.split()[1])
    except (OSError, ValueError, IndexError):
        return _read_lifetime_peak_kb() if process == CURRENT else 0


def reset_peak(process: int | str = CURRENT) -> None:
    """Forget the earlier peak: from now on, `read_peak_kb` returns the highest memory from here."""
    try:
        descriptor = os.open(f"/proc/{process}/clear_refs", os.O_WRONLY)
        try:
            os.write(descriptor, RESET_PEAK)
        finally:
            os.close(descriptor)
    except OSError:
        pass  # the peak since the start of the process remains


def read_cpu_ms(process: int) -> float:
    """Return the processor time of another process with all its threads, in steps of 10 ms; 0 if it is unknown."""
    try:
        fields = _read(f"/proc/{process}/stat").rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) * MILLISECONDS_PER_TICK
    except (OSError, ValueError, IndexError):
        return 0.0


def _read_lifetime_peak_kb() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, STATUS_BYTES)
    finally:
        os.close(descriptor)
