"""The clock of a process, which a run can change while the process works, with libfaketime."""

from __future__ import annotations

import sys
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where libfaketime creates its objects


class Clock:
    """The wall clock of all processes that start with `environment`. Their monotonic clocks stay as they are."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.users: set[int] = set()  # the processes that were started with this clock
        self.jump(0)

    def close(self) -> None:
        """Remove what killed processes have left in shared memory."""
        for pid in self.users:
            for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
                (SHARED_MEMORY / name).unlink(missing_ok=True)

    def jump(self, seconds: int) -> None:
        """Set the clock so many seconds away from the true time. Processes notice within a second."""
        change = self._file.with_suffix(".new")
        change.write_text(f"{seconds:+d}s\n")
        change.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process with this clock; none if libfaketime is not there."""
        library = find_library()
        if library is None:
            return {}
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


def find_library() -> Path | None:
    """Return the library that `make faketime` builds, if it is there."""
    return next((Path(sys.prefix) / "faketime").rglob("libfaketime.so.1"), None)
