"""`make bench`: every figure as a ratio to something measured in the same run; the last line is one JSON object."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench import (
    bulk,
    deleting,
    guarded,
    indexing,
    leases,
    machines,
    metrics,
    real_text,
    rings,
    scale,
    searching,
    serving,
    starting,
    syncing,
    writes,
)
from bench.crowd import PROCESSES, THREADS, measure_crowd
from bench.floor import measure_floor
from bench.ours import measure_batches, measure_one_by_one
from bench.peers import PEERS, Peer, PeerResult, measure
from bench.reconcile import measure_passes

SHARE_OF_FLOOR = 0.25
TIMES_A_PEER = 5.0
GROWTH = 2.0
TURNS = 75.0
ROUNDS = 3


def beside(peer: Peer) -> tuple[float, PeerResult]:
    """Measure our rate and then a peer's: the machine is noisy, and what is measured together can be compared."""
    return measure_batches().rate, measure(peer)


def main() -> int:
    goals: dict[str, bool] = {}

    print("Share of a bare sqlite3 loop (same statements, same batches)")
    floors = measure_floor()
    for floor in floors:
        print(
            f"  {floor.mode:16} {floor.slots / floor.ours:8.0f}/s of {floor.slots / floor.bare:8.0f}/s"
            f" = {floor.share:.0%}"
        )
        goals[f"floor: {floor.mode}"] = floor.share >= SHARE_OF_FLOOR

    print("End to end: request, no-op, recorded outcome; SQLite, admission and outcome synced to disk")
    single = measure_one_by_one()
    print(f"  holdfast, {single.mode}: {single.rate:.0f}/s")
    print(f"  beside each other, {ROUNDS} rounds, in each holdfast (batches of 500) and then the peer (one by one)")
    ratios = {}
    for peer in PEERS:
        rounds = [beside(peer) for _ in range(ROUNDS)]
        last = rounds[-1][1]
        if last.skipped:
            print(f"  {peer.name:26} not measured: {last.skipped}")
            continue
        pairs = ", ".join(f"{ours:.0f} : {theirs.rate:.0f}" for ours, theirs in rounds)
        ratios[peer.name] = median(ours / theirs.rate for ours, theirs in rounds)
        print(f"  {peer.name:26} {pairs} a second; holdfast is {ratios[peer.name]:.1f} x  ({last.durability})")
        goals[f"peer: {peer.name}"] = ratios[peer.name] >= TIMES_A_PEER

    print("A reconcile pass with ten slots that need work")
    passes = measure_passes()
    for one in passes:
        print(f"  among {one.slots:9,} slots {one.milliseconds:8.2f} ms")
    growth = passes[-1].milliseconds / passes[0].milliseconds
    print(f"  grows by {growth:.2f}")
    goals["reconcile"] = growth <= GROWTH

    print(f"Admission by {PROCESSES * THREADS} clients in {PROCESSES} processes while two workers commit")
    crowd = measure_crowd()
    print(
        f"  one client p50 {crowd.single_p50:.2f} ms; all p50 {crowd.crowd_p50:.1f} ms, p99 {crowd.crowd_p99:.1f} ms"
        f" = {crowd.turns:.0f} x one client; errors {crowd.errors}"
    )
    goals["crowd"] = crowd.turns <= TURNS and crowd.errors == 0

    indexed = indexing.report(goals)
    deleted = deleting.report(goals)
    bulked = bulk.report(goals)
    distributed = machines.report(goals)
    searched = searching.report(goals)
    with TemporaryDirectory() as folder:
        searched_texts = real_text.report(goals, Path(folder))
    synced = syncing.report(goals)
    served = serving.report()
    started = starting.report(goals)
    scaled = scale.report(goals)
    leased = leases.report(goals)
    rings.report(goals)
    written = writes.report(goals)
    scraped = metrics.report(goals)
    protected = guarded.report(goals)

    for goal, reached in goals.items():
        print(f"  {'reached' if reached else 'MISSED '}  {goal}")
    print(
        json.dumps(
            {
                "floor": {floor.mode: round(floor.share, 3) for floor in floors},
                "one_by_one": round(single.rate),
                "times_a_peer": {name: round(ratio, 1) for name, ratio in ratios.items()},
                "reconcile_growth": round(growth, 2),
                "crowd_turns": round(crowd.turns, 1),
                "crowd_errors": crowd.errors,
                "indexing": indexed,
                "deleting": deleted,
                "bulk": bulked,
                "machines": distributed,
                "searching": searched,
                "real_text": searched_texts,
                "syncing": synced,
                "serving": served,
                "starting": started,
                "scale": scaled,
                "leases": leased,
                "writes": written,
                "metrics": scraped,
                "guarded": protected,
                "reached": sum(goals.values()),
                "goals": len(goals),
            }
        )
    )
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
