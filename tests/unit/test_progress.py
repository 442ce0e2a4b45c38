"""While a command waits, it shows bars on a terminal, lines elsewhere, and nothing with --json or --quiet."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import typer
from rich.cells import cell_len

from holdfast.cli import progress
from holdfast.cli.command import CommandContext
from holdfast.cli.common_options import CommonOptions
from holdfast.cli.exit_codes import ExitCode
from holdfast.cli.progress import BarDisplay, LineDisplay, format_summary, wait_with_progress
from holdfast.cli.terminal import Terminal
from holdfast.cli.wait_targets import ActiveWork, PollResult
from holdfast.service.schemas import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
EMBEDDING = Progress(stage="embedding", step=2, steps=3, done=120, total=480, share=0.25)
HOSTILE = "a\x1b[2J\x9b31m\rb\nc\u202ed\x07 [red]e[/red].md"


def working(name: str = "anchors.md", found: Progress | None = EMBEDDING, why: str = "") -> ActiveWork:
    return ActiveWork(name=name, status="indexing", progress=found, reason=why)


def snapshot(*active: ActiveWork, done: int = 3, total: int = 10, waiting: int = 5) -> PollResult:
    return PollResult(done=done, total=total, share=done / total, active=active, waiting=waiting)


class Stuck:
    """A wait target that makes no progress."""

    def __init__(self, polled: Callable[[int], PollResult]) -> None:
        self._polled = polled
        self.polls = 0

    def poll(self) -> PollResult:
        self.polls += 1
        return self._polled(self.polls)

    def waiting_reason(self) -> str:
        return "The queue is paused."


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a clock that advances only while the command sleeps."""
    clock = SimpleNamespace(now=0.0)
    slept = SimpleNamespace(
        monotonic=lambda: clock.now, sleep=lambda seconds: setattr(clock, "now", clock.now + seconds)
    )
    monkeypatch.setattr(progress, "time", slept)


def frame(
    found: PollResult, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str = ""
) -> str:
    """Return the output of one frame on a terminal of this width."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    with BarDisplay(Terminal(json=False, quiet=False)) as bars:
        capsys.readouterr()
        bars.show(found, 12.0, why)
        bars._live.refresh()
        return capsys.readouterr().err


@pytest.mark.parametrize("width", [12, 20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a document with a very long name " * 3 + ".pdf", "文書" * 30, "anchors.md"]
    seen = frame(snapshot(*map(working, names)), width, monkeypatch, capsys)
    lines = CONTROL.sub("", seen).splitlines()
    assert len(lines) > len(names)
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_still_has_bars(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = CONTROL.sub("", frame(snapshot(working("a document with a long name.pdf")), width, monkeypatch, capsys))
    assert "━" in next(line for line in lines.splitlines() if "a document" in line)


def test_a_bar_is_drawn_only_if_the_share_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = working("unknown.md", Progress(stage="reading", done=7))
    seen = CONTROL.sub("", frame(snapshot(working(), unknown), 120, monkeypatch, capsys))
    lines = {line.split()[0]: line for line in seen.splitlines() if line.strip()}
    assert "embedding 2/3, 120 of 480" in lines["anchors.md"]
    assert "━" in lines["anchors.md"]
    assert lines["anchors.md"].rstrip().endswith("25%")
    assert lines["unknown.md"].split() == ["unknown.md", "reading,", "7"]


def test_the_reason_is_shown_below_the_bars(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = frame(snapshot(working()), 80, monkeypatch, capsys, why="The queue is paused.")
    assert CONTROL.sub("", seen).splitlines()[-1].strip() == "Waiting: The queue is paused."


def test_a_document_name_cannot_send_control_codes_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = [working(HOSTILE), working("b.md", Progress(stage=HOSTILE)), working("c.md", None, why=HOSTILE)]
    seen = frame(snapshot(*hostile), 200, monkeypatch, capsys, why=HOSTILE)
    assert "\x1b[2J" not in seen
    text = CONTROL.sub("", seen)
    assert text.count("[red]e[/red]") == 4  # printed as text, not used as a style
    assert not set(text) & set("\x1b\x9b\x07\u202e")
    assert len([line for line in text.splitlines() if line.strip()]) == 5


def test_lines_report_each_stage_once_without_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay(Terminal(json=False, quiet=False))
    reading = Progress(stage="reading")
    for elapsed, found in enumerate([reading, reading, EMBEDDING, EMBEDDING]):
        lines.show(snapshot(working(HOSTILE, found)), float(elapsed), "")
    text = capsys.readouterr().err
    assert not set(text) & set("\x1b\x9b\x07\u202e")
    assert [line for line in text.splitlines() if "embedding" in line or "reading" in line] == [
        line for line in text.splitlines() if line.endswith((": reading", ": embedding 2/3, 120 of 480"))
    ]
    assert text.count(": reading") == text.count(": embedding") == 1


def test_lines_report_only_the_counts_of_many_documents(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LineDisplay(Terminal(json=False, quiet=False))
    for elapsed in range(0, 31, 2):
        lines.show(snapshot(working(), total=1_000, waiting=990), float(elapsed), "")
    assert capsys.readouterr().err.splitlines() == [
        f"3 of 1,000 documents done, 990 queued, {elapsed} s" for elapsed in (10, 20, 30)
    ]


def test_the_time_left_is_estimated_once_enough_is_done() -> None:
    assert format_summary(snapshot(waiting=0), 1.0) == "3 of 10 documents done, 1 s"
    assert format_summary(snapshot(done=0), 60.0) == "0 of 10 documents done, 5 queued, 1 min"
    assert format_summary(snapshot(waiting=0), 30.0) == "3 of 10 documents done, 30 s, about 1.17 min left"
    assert format_summary(snapshot(done=9, waiting=0), 9.0) == "9 of 10 documents done, 9 s, about 1 s left"


class Library:
    """The part of a library that `wait_with_progress` uses."""

    def __init__(self, *, works: bool) -> None:
        self.works = works


def waited(common: CommonOptions, target: Any, *, works: bool = False) -> None:
    wait_with_progress(CommandContext(common), Library(works=works), target, again="holdfast ls")  # type: ignore[arg-type]


def test_the_reason_is_shown_if_nothing_progresses(moment: None, capsys: pytest.CaptureFixture[str]) -> None:
    waited(CommonOptions(), Stuck(lambda polls: snapshot(done=10 if polls > 80 else 3, waiting=7)))
    assert capsys.readouterr().err.splitlines() == ["Waiting: The queue is paused."]


@pytest.mark.parametrize("common", [CommonOptions(json=True), CommonOptions(quiet=True)])
def test_json_and_quiet_show_no_progress(
    common: CommonOptions, moment: None, capsys: pytest.CaptureFixture[str]
) -> None:
    waited(common, Stuck(lambda polls: snapshot(working(), done=10 if polls > 400 else 3)))
    assert tuple(capsys.readouterr()) == ("", "")


@pytest.mark.parametrize(
    ("works", "sentence"),
    [(True, "continues with the next `holdfast add`"), (False, "A worker in another process continues")],
)
def test_ctrl_c_exits_and_names_the_command_that_shows_the_work(
    works: bool, sentence: str, moment: None, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(polls: int) -> PollResult:
        if polls > 2:
            raise KeyboardInterrupt
        return snapshot()

    with pytest.raises(typer.Exit) as exited:
        waited(CommonOptions(), Stuck(pressed), works=works)
    assert exited.value.exit_code == ExitCode.INTERRUPTED
    told = capsys.readouterr().err
    assert "Stopped waiting. The job is kept" in told
    assert sentence in told
    assert told.endswith("Check it later: holdfast ls\n")
