"""The study-card service without protection: what its accidents cost.

Run it with `python examples/study_cards/before.py`. It starts its own servers and takes about a minute. With `--serve`
it serves the page instead. It ends with 0 if the accidents did damage, and with 1 if they did not.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.study_cards.accidents import Row, play
from examples.study_cards.servers import Servers

QUIET_SECONDS = 6  # a job that pays nothing and reports nothing for this long is lost


def main() -> int:
    """Cause the accidents, and print the damage."""
    return play("plain", QUIET_SECONDS, judge)


def judge(_: Servers, rows: list[Row]) -> int:
    """Print the damage; return 0 if there is each kind of it."""
    paid_twice = sum(max(0, row.paid - row.needed) for row in rows)
    repeated = sum(row.repeated_cards for row in rows)
    lost = sum(row.accepted - row.callbacks for row in rows)
    jammed = sum(row.next_click != "accepted" for row in rows)
    print(f"\ncalls paid twice: {paid_twice}, cards stored twice: {repeated}, ", end="")
    print(f"jobs that never reported an end: {lost}, projects that refuse all clicks: {jammed}")
    return 0 if all((paid_twice, repeated, lost, jammed)) else 1


if __name__ == "__main__":
    sys.exit(main())
