"""Progress of a command that waits: bars on a terminal, lines elsewhere.

Ctrl-C stops the waiting. It does not cancel the work.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol, Self

import typer

from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.format import format_cell, format_count, format_duration
from holdfast.cli.wait_targets import MAX_SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from holdfast.cli.command import CommandContext
    from holdfast.cli.terminal import Terminal
    from holdfast.cli.wait_targets import PollResult, Target
    from holdfast.service.client import Holdfast
    from holdfast.service.schemas import DocumentStatus

LOCAL_POLL_SECONDS, REMOTE_POLL_SECONDS = 0.1, 0.5  # seconds between two polls
POLL_SHARE = 4  # poll at most 1/5 of the time: the pause is this many times as long as the poll
STALL_SECONDS = 3.0  # seconds without progress before the command reads the reason
REPORT_SECONDS = 10.0  # seconds between two lines with totals
MAX_REPORTED = 20  # with more documents, only totals are printed
ESTIMATE_AFTER, ESTIMATE_FROM = 2.0, 0.02  # seconds and share of the work before a first estimate
BAR_WIDTH = 24


def wait_with_progress(
    context: CommandContext,
    library: Holdfast,
    target: Target,
    *,
    again: str,
    ended: Callable[[DocumentStatus], None] = lambda _: None,
) -> None:
    """Wait until the target is done. On Ctrl-C, print who continues, and the command `again` that shows the status."""
    try:
        with _make_display(context.terminal) as display:
            _poll_until_done(
                target, display, ended, pause=REMOTE_POLL_SECONDS if context.remote else LOCAL_POLL_SECONDS
            )
    except KeyboardInterrupt:
        context.terminal.warn("\nStopped waiting. The job is kept, and indexed documents stay indexed.")
        context.terminal.warn(
            "This process was indexing. The work continues with the next `holdfast add`, `holdfast serve` or "
            "`holdfast worker`."
            if library.works
            else "A worker in another process continues the work."
        )
        context.terminal.warn(f"Check it later: {again}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _poll_until_done(
    target: Target, display: Display, ended: Callable[[DocumentStatus], None], *, pause: float
) -> None:
    began = last = time.monotonic()
    before: Any = None
    why = ""
    while True:
        polled = time.monotonic()
        found = target.poll()
        now = time.monotonic()
        for work in found.ended:
            ended(work)
        if found.done >= found.total:
            return
        state = (found.done, round(found.share, 3), [(work.name, work.progress) for work in found.active])
        if state != before:
            before, last, why = state, now, ""
        elif now - last > STALL_SECONDS and not any(work.progress for work in found.active):
            last, why = now, target.waiting_reason()
        display.show(found, now - began, why)
        time.sleep(max(pause, (now - polled) * POLL_SHARE))


def format_summary(found: PollResult, elapsed: float) -> str:
    """Return the totals, the time so far, and an estimate of the time left."""
    parts = [f"{found.done:,} of {format_count(found.total, 'document')} done"]
    if found.waiting:
        parts.append(f"{found.waiting:,} queued")
    parts.append(format_duration(round(elapsed)))
    if elapsed >= ESTIMATE_AFTER and found.share >= ESTIMATE_FROM:
        left = elapsed / found.share * (1 - found.share)
        parts.append(
            f"about {format_duration(max(1, round(left)) if left < MAX_REPORTED else round(left / 5) * 5)} left"
        )
    return ", ".join(parts)


class Display(Protocol):
    """Shows the result of a poll, and the reason if there is no progress."""

    def show(self, found: PollResult, elapsed: float, why: str) -> None: ...


class SilentDisplay:
    """Shows nothing: for --json and --quiet."""

    def show(self, found: PollResult, elapsed: float, why: str) -> None:
        pass


class LineDisplay:
    """Prints each new stage of a few documents, and the counts every ten seconds."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._stages: dict[str, str] = {}
        self._due = REPORT_SECONDS
        self._why = ""

    def show(self, found: PollResult, elapsed: float, why: str) -> None:
        for work in found.active if found.total <= MAX_REPORTED else ():
            if work.progress is not None and self._stages.get(work.name) != work.progress.stage:
                self._stages[work.name] = work.progress.stage
                self._terminal.info(f"{work.name}: {work.stage}")
        if elapsed >= self._due:
            self._due = elapsed + REPORT_SECONDS
            self._terminal.info(format_summary(found, elapsed))
        if why and why != self._why:
            self._why = why
            self._terminal.info(f"Waiting: {why}")


class BarDisplay:
    """Draws a bar for each active document with a known share, and one for all; the bars disappear at the end.

    A poll returns the whole state, so each frame is drawn from one poll. `rich.progress` keeps its own state for each
    bar, and drops all bars on a terminal of 40 columns (docs/decisions/0017).
    """

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
        self._terminal.live_console = self._console
        return self

    def __exit__(self, *_: object) -> None:
        self._terminal.live_console = None
        self._live.stop()

    def show(self, found: PollResult, elapsed: float, why: str) -> None:
        from rich.console import Group  # noqa: PLC0415 - only on a terminal
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        def bar(share: float | None) -> ProgressBar | Text:
            return Text() if share is None else ProgressBar(total=1.0, completed=share, width=BAR_WIDTH)

        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(overflow="ellipsis", no_wrap=True, max_width=40)
        rows.add_column(overflow="ellipsis", no_wrap=True, style="cyan")
        rows.add_column(width=BAR_WIDTH)
        rows.add_column(justify="right")
        for work in found.active[:MAX_SHOWN]:
            share = work.progress.share if work.progress is not None else None
            percent = "" if share is None else f"{share:.0%}"
            rows.add_row(Text(format_cell(work.name)), Text(format_cell(work.stage)), bar(share), percent)
        whole = Table.grid(padding=(0, 2, 0, 0))
        counts = Text(format_summary(found, elapsed), style="dim")
        whole.add_row(*([bar(found.share)] if found.total > 1 else []), counts)
        self._live.update(
            Group(rows, whole, Text(f"Waiting: {format_cell(why)}" if why else "", style="yellow", end=""))
        )


def _make_display(terminal: Terminal) -> AbstractContextManager[Display]:
    if terminal.shows_progress:
        return BarDisplay(terminal)
    return nullcontext(SilentDisplay() if terminal.quiet or terminal.json else LineDisplay(terminal))
