"""What an attempt used, and the rows that it made."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple, Self


class Usage(NamedTuple):
    """The resources and the rows of one attempt.

    The field names are those of the event of the slot.
    """

    cpu_ms: float = 0.0  # of the thread of the worker and of the process that read the file
    peak_kb: int = 0  # memory of the worker process, or of the process that read the file if that is more
    ran_ms: float = 0.0
    waited_ms: int = 0  # in the queue, before the claim
    written: int = 0  # rows
    kept: int = 0  # rows of an earlier build that this one serves, too
    removed: int = 0  # rows that are not served any more
    stages: tuple[tuple[str, float], ...] = ()  # each stage with its milliseconds; of one attempt only

    def format_members(self) -> str:
        """Return the members of a JSON object, without the braces. Rows are left out if there are none."""
        return _format_members(self)

    def add(self, later: Usage) -> Usage:
        """Return the usage of this and a later attempt of the same request.

        The later attempt also keeps rows that this one wrote; they are not counted twice.
        """
        made_rows = later.written or later.kept or later.removed
        return Usage(
            self.cpu_ms + later.cpu_ms,
            max(self.peak_kb, later.peak_kb),
            self.ran_ms + later.ran_ms,
            self.waited_ms + later.waited_ms,
            self.written + later.written,
            max(0, later.kept - self.written) if made_rows else self.kept,
            self.removed + later.removed,
        )

    @classmethod
    def parse(cls, members: str) -> Self:
        """Parse what `format_members` wrote."""
        return cls(**json.loads(f"{{{members}}}"))


UNKNOWN_USAGE = Usage()


def add_attempt(earlier: str | None, attempt: Usage) -> str | None:
    """Return the JSON members of the usage of all attempts, given those of the earlier ones; None if there are none."""
    if attempt is UNKNOWN_USAGE:
        return earlier
    total = attempt._replace(stages=()) if earlier is None else Usage.parse(earlier).add(attempt)
    return total.format_members()


@lru_cache(maxsize=512)  # the event and the slot need the same text
def _format_members(usage: Usage) -> str:
    used = (
        f'"cpu_ms": {usage.cpu_ms:.3f}, "peak_kb": {usage.peak_kb}, '
        f'"ran_ms": {usage.ran_ms:.3f}, "waited_ms": {usage.waited_ms}'
    )
    if usage.stages:
        used += f', "stages": {json.dumps({stage: round(ms, 3) for stage, ms in usage.stages})}'
    if not (usage.written or usage.kept or usage.removed):
        return used
    return f'{used}, "written": {usage.written}, "kept": {usage.kept}, "removed": {usage.removed}'
