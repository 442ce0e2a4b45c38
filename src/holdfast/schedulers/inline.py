"""Runs every ring at once, in the caller's own thread: for tests and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.slot import Ring
    from holdfast.schedulers.base import Crew


class InlineScheduler:
    """Carrying is working: `carry` returns when the work is done."""

    def __init__(self, *, workers: int = 1) -> None:
        self._room = 2 * workers
        self._crew: Crew | None = None

    def start(self, crew: Crew) -> None:
        """Remember the crew."""
        self._crew = crew

    def room(self, kind: str) -> int:  # noqa: ARG002 - the same for every kind
        """Take a few at a time, so that what became more urgent meanwhile goes first."""
        return self._room

    def carry(self, rings: Sequence[Ring]) -> None:
        """Do the work."""
        if self._crew is not None:
            for ring in rings:
                self._crew.run(ring)

    def stop(self) -> None:
        """Work no more."""
        self._crew = None
