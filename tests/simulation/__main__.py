"""`python -m tests.simulation --seeds 2000`: run the seeds on all cores and print one JSON line."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from holdfast.engine.admission import ADMISSION_RULES
from holdfast.engine.states import TRANSITIONS
from tests.simulation.checker import Violation
from tests.simulation.world import Stage, World

FAULTS = frozenset(
    {
        "clock_jump", "crash", "death_seen", "duplicate", "fewer_attempts", "flush", "heartbeat_missed",
        "job_cancelled", "lost_ring", "message_lost", "missing_chunk", "no_result", "orphan", "pause",
        "provider_outage", "provider_permanent", "provider_transient", "provider_unexpected", "queue_paused",
        "queue_resumed", "queue_stopped", "redelivery", "reprioritised", "rewire", "sigterm", "store_lost_after",
        "store_lost_before",
    }
)  # fmt: skip


@dataclass
class Report:
    """Totals over several runs."""

    runs: int = 0
    steps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    transitions: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, object]] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.runs += other.runs
        self.steps += other.steps
        self.faults += other.faults
        self.transitions += other.transitions
        self.rows += other.rows
        self.violations += other.violations


def simulate(seeds: range, *, stop_at_first: bool = False) -> Report:
    """Run the seeds one after the other on one stage."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    stage, report = Stage(), Report()
    for seed in seeds:
        world = World(seed, stage)
        report.runs += 1
        try:
            report.steps += world.run()
        except Exception as error:  # noqa: BLE001 - every error is a finding
            promise = error.promise if isinstance(error, Violation) else type(error).__name__
            where = traceback.format_exc(limit=-3)
            report.violations.append({"seed": seed, "promise": promise, "what": str(error)[:600], "where": where})
            stage = Stage()
            if stop_at_first:
                break
        report.faults += world.faults
        report.transitions += world.checker.transitions
        report.rows += world.rows
    return report


def unseen(report: Report) -> dict[str, list[str]]:
    """Return faults, transitions and admission rows that never occurred, because the runs prove nothing about them."""
    moves = {f"{verb}:{before}>{after}" for verb, before, after in TRANSITIONS}
    rows = {f"{row.verdict}:{row.reason}" for row in ADMISSION_RULES}
    return {
        "faults": sorted(FAULTS - report.faults.keys()),
        "transitions": sorted(moves - report.transitions.keys()),
        "admission": sorted(rows - report.rows.keys()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--few", action="store_true", help="succeed even if a fault, a move or a row never occurred")
    options = parser.parse_args()
    started = time.monotonic()
    chunk = 50
    parts = [
        range(first, min(first + chunk, options.first + options.seeds))
        for first in range(options.first, options.first + options.seeds, chunk)
    ]
    report = Report()
    with ProcessPoolExecutor(options.processes) as pool:
        for part in pool.map(simulate, parts):
            report.add(part)
    missing = unseen(report)
    for violation in report.violations[:3]:
        print("seed {seed}: {promise}: {what}\n{where}".format(**violation), file=sys.stderr)
    summary = {
        "runs": report.runs,
        "steps": report.steps,
        "faults": dict(sorted(report.faults.items())),
        "transitions": dict(sorted(report.transitions.items())),
        "admission": dict(sorted(report.rows.items())),
        "unseen": missing,
        "violations": len(report.violations),
        "violating_seeds": [one["seed"] for one in report.violations[:20]],
        "runs_per_second": round(report.runs / (time.monotonic() - started), 1),
    }
    print(json.dumps(summary))
    incomplete = any(missing.values()) and not options.few
    return 1 if report.violations or incomplete else 0


if __name__ == "__main__":
    sys.exit(main())
