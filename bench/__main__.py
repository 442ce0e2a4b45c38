"""`make bench`: every figure as a ratio to something measured in the same run; the last line is one JSON object."""

from __future__ import annotations

import json
import sys

from bench.crowd import PROCESSES, THREADS, measure_crowd
from bench.floor import measure_floor
from bench.ours import measure_ours
from bench.peers import measure_peers
from bench.reconcile import measure_passes

SHARE_OF_FLOOR = 0.25
TIMES_A_PEER = 5.0
GROWTH = 2.0
TURNS = 75.0


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
    ours = measure_ours()
    for our in ours:
        print(f"  holdfast, {our.mode:16} {our.rate:8.0f}/s")
    peers = measure_peers()
    for peer in peers:
        if peer.skipped:
            print(f"  {peer.name:26} not measured: {peer.skipped}")
            continue
        ratios = ", ".join(f"{our.rate / peer.rate:.1f} x {our.mode}" for our in ours)
        print(f"  {peer.name:26} {peer.rate:8.0f}/s  holdfast is {ratios}  ({peer.durability})")
        goals[f"peer: {peer.name}"] = ours[-1].rate >= TIMES_A_PEER * peer.rate

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

    for goal, reached in goals.items():
        print(f"  {'reached' if reached else 'MISSED '}  {goal}")
    print(
        json.dumps(
            {
                "floor": {floor.mode: round(floor.share, 3) for floor in floors},
                "ours": {our.mode: round(our.rate) for our in ours},
                "peers": {peer.name: peer.skipped or round(peer.rate) for peer in peers},
                "reconcile_growth": round(growth, 2),
                "crowd_turns": round(crowd.turns, 1),
                "crowd_errors": crowd.errors,
                "reached": sum(goals.values()),
                "goals": len(goals),
            }
        )
    )
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
