"""`python -m tests.powercut --seed 1 --cuts 200`: record a run, cut the power, and print one JSON line.

With violations, the recording is kept, and the command that repeats a cut on it is printed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.powercut.run import cut, record, reopen

SHOWN = 10  # violations that are printed


def main() -> int:
    parser = argparse.ArgumentParser(prog="powercut")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--steps", type=int, default=30, help="requests of each client")
    parser.add_argument("--recording", type=Path, help="use this recording again")
    parser.add_argument("--only", type=int, help="only this cut; its disk is kept")
    options = parser.parse_args()
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    os.environ["NO_PROXY"] = "127.0.0.1"
    if options.recording:
        folder, (recording, history) = options.recording, reopen(options.recording)
    else:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-powercut-"))
        recording, history = record(folder, options.seed, options.steps)
    report = cut(recording, history, seed=options.seed, cuts=options.cuts, only=options.only)
    recording.close()
    for violation in report.violations[:SHOWN]:
        print(violation, file=sys.stderr)
    print(json.dumps({"seed": options.seed} | report.summary()))
    if report.violations:
        again = f"python -m tests.powercut --recording {folder} --seed {options.seed} --cuts {options.cuts}"
        print(f"To repeat a cut on this recording: {again} --only NUMBER", file=sys.stderr)
    elif not options.recording:
        shutil.rmtree(folder)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
