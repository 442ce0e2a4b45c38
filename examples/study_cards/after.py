"""The same service with the guard, and the same accidents.

Run it with `python examples/study_cards/after.py`. It starts its own servers and takes about a minute. With `--serve`
it serves the page instead. It ends with 0 if no accident did damage, and with 1 if one did.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.processes import ROOT
from examples.study_cards.accidents import Row, play
from examples.study_cards.servers import PACKAGE, Servers

QUIET_SECONDS = 60  # no job is lost, so this only ends the wait if the guard fails


def main() -> int:
    """Cause the accidents, and print what the guard has recorded."""
    return play("guarded", QUIET_SECONDS, judge)


def judge(servers: Servers, rows: list[Row]) -> int:
    """Print the refused requests and the accidents that did damage; return 0 if there are none."""
    guard = f"{PACKAGE}.guarded:guard"
    print(f"\n$ holdfast guard status {guard}", flush=True)
    command = [sys.executable, "-m", "holdfast.cli", "guard", "status", guard]
    subprocess.run(command, cwd=ROOT, env=os.environ | servers.environment, check=True)  # noqa: S603 - our own program
    damaged = [row.accident for row in rows if not is_harmless(row)]
    for accident in damaged:
        print(f"The guard did not hold: {accident}")
    return 1 if damaged else 0


def is_harmless(row: Row) -> bool:
    """Return whether an accident did no damage.

    A killed worker may cost more: the calls of its own run. A callback may be repeated, but its cards are not.
    """
    most = 2 * row.needed if "killed" in row.accident else row.needed
    reported = row.callbacks >= row.accepted and row.repeated_cards == 0
    return row.paid <= most and reported and row.next_click == "accepted"


if __name__ == "__main__":
    sys.exit(main())
