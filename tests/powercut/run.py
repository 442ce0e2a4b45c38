"""Records one run, checks the recording itself, and cuts the power at many moments of it."""

from __future__ import annotations

import pickle
import random
import shutil
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.powercut.check import Checker
from tests.powercut.disk import Disk
from tests.powercut.recording import Recording
from tests.powercut.workload import Run, World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.powercut.recording import Record
    from tests.powercut.workload import History

HISTORY = "history"
AFTER_ANSWERS = 0.5  # share of the cuts directly after somebody outside was told something; the others are anywhere


@dataclass
class Report:
    """What was recorded, and what the cuts found."""

    records: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    cuts: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, object]:
        return {
            "requests": self.requests,
            "records": dict(sorted(self.records.items())),
            "cuts": self.cuts,
            "violations": len(self.violations),
            "seconds": round(self.seconds, 1),
        }


def record(folder: Path, seed: int, steps: int) -> tuple[Recording, History]:
    """Run the product and record it. The recording must explain every byte on the disk."""
    recording = Recording(folder)
    with World() as world:
        history = Run(recording, world, seed, steps).run()
    (folder / HISTORY).write_bytes(pickle.dumps(history))
    disk = Disk(recording.root)
    for one in recording.records():
        disk.apply(one)
    assert without_shared_memory(disk.tree()) == without_shared_memory(read_tree(recording.root)), (
        "an incomplete recording"
    )
    return recording, history


def reopen(folder: Path) -> tuple[Recording, History]:
    """Open an earlier recording."""
    history: History = pickle.loads((folder / HISTORY).read_bytes())  # noqa: S301 - written by `record`
    return Recording(folder), history


def read_tree(root: Path) -> dict[str, bytes | None]:
    return {
        f"/{path.relative_to(root)}": path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }


def without_shared_memory(tree: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {path: content for path, content in tree.items() if not path.endswith("-shm")}


def choose_cuts(records: Sequence[Record], history: History, dice: random.Random, count: int) -> list[int]:
    """Return numbers of records, in order: the power fails after each."""
    seen = [*history.indexed, *history.events, *history.messages]
    answers = [request.answered for request in history.requests] + [one.position for one in seen]
    positions = [one.position for one in records]
    chosen = []
    for _ in range(count):
        if dice.random() < AFTER_ANSWERS:
            answer = dice.choice(answers)
            chosen.append(max(number for number, position in enumerate(positions) if position <= answer))
        else:
            chosen.append(dice.randrange(len(positions)))
    return sorted(chosen)


def cut(
    recording: Recording,
    history: History,
    *,
    seed: int,
    cuts: int,
    ignore: Callable[[str], bool] = lambda _: False,
    only: int | None = None,
    stop_at_first: bool = False,
) -> Report:
    """Cut the power at `cuts` moments, and check each disk. `only` repeats one of them and keeps its disk."""
    records = list(recording.records())
    report = Report(requests=len(history.requests), records=Counter(one.kind.name.lower() for one in records))
    started = time.monotonic()
    disk, applied = Disk(recording.root, ignore=ignore), 0
    with World(history.port) as world:
        for number, end in enumerate(choose_cuts(records, history, random.Random(seed), cuts)):
            for one in records[applied : end + 1]:
                disk.apply(one)
            applied = end + 1
            if only in (None, number):
                left = recording.folder / f"cut-{number}"
                disk.cut(left, random.Random(f"{seed}-{number}"))
                problem = try_disk(Checker(history, world), left / "home", records[end].position)
                report.cuts += 1
                report.violations += [f"cut {number}: {problem}"] if problem else []
                if only is None:
                    shutil.rmtree(left)
            if report.violations and stop_at_first:
                break
    report.seconds = time.monotonic() - started
    return report


def try_disk(checker: Checker, home: Path, position: int) -> str:
    """Check a disk, and return what is wrong with it."""
    try:
        checker.check(home, position)
    except Exception as error:  # noqa: BLE001 - every error is a finding
        return f"{type(error).__name__}: {str(error)[:300]}\n{traceback.format_exc(limit=-4)}"
    return ""
