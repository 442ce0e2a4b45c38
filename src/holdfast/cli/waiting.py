"""Waiting with something to see: bars on a terminal, lines elsewhere; Ctrl-C leaves, and the work stays.

A bar is drawn only where a share is known. How long it still takes is told from how long it took so far.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol, Self

import typer

from holdfast.cli.exits import Exit
from holdfast.cli.following import ACTIVE, SHOWN
from holdfast.cli.plain import cell, lasting, many

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from holdfast.cli.following import Followed, Sight, Under
    from holdfast.cli.running import Face
    from holdfast.cli.terminal import Terminal
    from holdfast.front.door import Holdfast
    from holdfast.front.values import Standing

A_GLANCE = 0.1  # seconds between two looks
FAR = 0.5  # the same, at a server
MODEST = 4  # times as long as a look takes nobody looks
STILL = 3.0  # seconds without any progress after which it is asked why
REPORT = 10.0  # seconds between two lines about many documents
FEW = 20  # documents of which each is told on its own
SOON = 2.0  # seconds before which nobody can say how long it takes
ENOUGH = 0.02  # of the work, likewise
WIDTH = 24  # of a bar


class Display(Protocol):
    """Shows how far it is."""

    def show(self, sight: Sight, elapsed: float, why: str) -> None:
        """Show one look."""
        ...


def follow(
    face: Face,
    library: Holdfast,
    followed: Followed,
    *,
    again: str,
    ended: Callable[[Standing], None] = lambda _: None,
) -> None:
    """Wait until all is done. Ctrl-C ends the waiting, says that the work goes on, and how to look `again`."""
    began = last = time.monotonic()
    moved: Any = None
    why = ""
    try:
        with _display(face.terminal) as display:
            while True:
                looked = time.monotonic()
                sight = followed.look()
                now = time.monotonic()
                for one in sight.ended:
                    ended(one)
                if sight.over:
                    return
                state = (sight.done, round(sight.share, 3), [(one.name, one.progress) for one in sight.active])
                if state != moved:
                    moved, last, why = state, now, ""
                elif now - last > STILL and not any(one.progress for one in sight.active):
                    last, why = now, followed.why()
                display.show(sight, now - began, why)
                time.sleep(max(FAR if face.remote else A_GLANCE, (now - looked) * MODEST))
    except KeyboardInterrupt:
        _detach(face, library, again)
        raise typer.Exit(Exit.INTERRUPTED) from None


def _detach(face: Face, library: Holdfast, again: str) -> None:
    face.terminal.warn("\nDetached. What was asked for stays asked for, and what is indexed stays indexed.")
    if library.works:
        face.terminal.warn(
            "This process worked on it and gives it back; it goes on with the next `holdfast add`, `holdfast serve` "
            "or `holdfast worker`."
        )
    else:
        face.terminal.warn("The work goes on without this process.")
    face.terminal.warn(f"Look again: {again}")


def remaining(sight: Sight, elapsed: float) -> str:
    """Tell how long it still takes, as far as that can be known."""
    if elapsed < SOON or sight.share < ENOUGH:
        return ""
    return f"about {lasting(_rounded(elapsed / sight.share * (1 - sight.share)))} left"


def _rounded(seconds: float) -> float:
    return max(1.0, round(seconds)) if seconds < FEW else round(seconds / 5) * 5.0


def stage(one: Under) -> str:
    """Tell what is done with something."""
    found = one.progress
    if found is None:
        return one.why or one.status
    step = f" {found.step}/{found.steps}" if found.steps > 1 else ""
    count = f", {found.done:,} of {found.total:,}" if found.total > 1 else f", {found.done:,}" if found.done else ""
    return f"{found.stage}{step}{count}"


def _whole(sight: Sight, elapsed: float) -> str:
    parts = [f"{sight.done:,} of {many(sight.total, 'document')} done"]
    if sight.waiting:
        parts.append(f"{sight.waiting:,} queued")
    parts += [lasting(round(elapsed)), remaining(sight, elapsed)]
    return ", ".join(part for part in parts if part)


# ---------------------------------------------------------------- lines


class Lines:
    """Tells each stage of few documents, and now and then how far many are."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._told: dict[str, str] = {}
        self._due = REPORT
        self._why = ""

    def show(self, sight: Sight, elapsed: float, why: str) -> None:
        """Say what is new."""
        if sight.total <= FEW:
            for one in sight.active:
                if one.progress is not None and self._told.get(one.name) != one.progress.stage:
                    self._told[one.name] = one.progress.stage
                    self._terminal.say(f"{one.name}: {stage(one)}")
        if elapsed >= self._due:
            self._due = elapsed + REPORT
            self._terminal.say(_whole(sight, elapsed))
        if why and why != self._why:
            self._why = why
            self._terminal.say(f"Waiting: {why}")


class _Silence:
    def show(self, sight: Sight, elapsed: float, why: str) -> None:
        """Show nothing."""


# ---------------------------------------------------------------- bars


class Bars:
    """Draws what is worked on, and below it the whole; nothing of it stays on the screen."""

    def __init__(self, terminal: Terminal) -> None:
        from rich.console import Console  # noqa: PLC0415 - only on a terminal
        from rich.live import Live  # noqa: PLC0415

        self._terminal = terminal
        self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._live = Live(
            console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False, refresh_per_second=8
        )

    def __enter__(self) -> Self:
        self._live.start()
        self._terminal.screen = self._console
        return self

    def __exit__(self, *_: object) -> None:
        self._terminal.screen = None
        self._live.stop()

    def show(self, sight: Sight, elapsed: float, why: str) -> None:
        """Draw how it stands."""
        from rich.console import Group  # noqa: PLC0415 - only on a terminal
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(overflow="ellipsis", no_wrap=True, max_width=40)
        table.add_column(overflow="ellipsis", no_wrap=True)
        table.add_column(width=WIDTH)
        table.add_column(justify="right")
        for one in sight.active[:SHOWN]:
            share = one.progress.share if one.progress is not None else None
            bar = Text("") if share is None else ProgressBar(total=1.0, completed=share, width=WIDTH)
            table.add_row(
                Text(cell(one.name)), Text(cell(stage(one)), style="cyan"), bar, "" if share is None else f"{share:.0%}"
            )
        whole = Table.grid(padding=(0, 2, 0, 0))
        told = Text(_whole(sight, elapsed), style="dim")
        bars = [ProgressBar(total=1.0, completed=sight.share, width=WIDTH)] if sight.total > 1 else []
        whole.add_row(*bars, told)
        more = [Text(f"Waiting: {cell(why)}", style="yellow")] if why else []
        self._live.update(Group(table, whole, *more))


def _display(terminal: Terminal) -> AbstractContextManager[Display]:
    if terminal.live:
        return Bars(terminal)
    return nullcontext(_Silence() if terminal.quiet or terminal.json else Lines(terminal))


def rests(status: str) -> bool:
    """Tell whether a document of this status has come to rest."""
    return status not in ACTIVE
