"""`python -m tests.chaos --deployment sqlite --seconds 60 --seed 1`: one run and one line of JSON; 1 means failure."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.audit import Tables, read_everything
from tests.chaos.checker import check
from tests.chaos.clients import Client, Directory
from tests.chaos.deployments import DEPLOYMENTS
from tests.chaos.disks import enter_namespace
from tests.chaos.faults import KINDS, Nemesis, kinds_for
from tests.chaos.folder import FolderClient
from tests.chaos.followers import Follower
from tests.chaos.history import History, Record, read_record
from tests.chaos.programs import CommandClient, LibraryClient
from tests.chaos.report import summarise
from tests.chaos.schedule import BASES, CLIENTS, Schedule, make_schedule
from tests.chaos.settle import settle
from tests.chaos.timeline import write_timeline

if TYPE_CHECKING:
    from tests.chaos.system import System
    from tests.chaos.violations import Violation

STEP_SECONDS = 60.0  # the longest step, with all its repetitions
FOLLOW_SECONDS = 3.0  # the last events reach the followers
TIMELINES = 5
TABLES = "tables.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos")
    parser.add_argument("--deployment", choices=sorted(KINDS), default="sqlite")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="by default a new one, which is printed")
    parser.add_argument("--keep", type=Path, help="keep the history, the logs and the timelines in this folder")
    options = parser.parse_args()
    enter_namespace()
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.chmod(0o755)  # as root, PostgreSQL runs as another user
    schedule = make_schedule(seed, options.seconds, kinds_for(options.deployment))
    try:
        run(options.deployment, seed, options.seconds, schedule, folder)
        return judge(folder, schedule, options.keep)
    except BaseException:
        print(f"The run did not end; its history and logs are in {_rescue(folder, options.keep)}", file=sys.stderr)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(deployment: str, seed: int, seconds: float, schedule: Schedule, folder: Path) -> None:
    """Run a system, its clients and the faults, and record everything."""
    history = History(folder / "history.jsonl")
    history.write("run", deployment=deployment, seed=seed, seconds=seconds, schedule=schedule.digest,
                  wall=time.time() - history.now)  # fmt: skip
    with DEPLOYMENTS[deployment](folder, history) as system:
        system.prepare()
        followers = [Follower(f"follower-{number}", system) for number in (1, 2)]
        clients = _clients(schedule, system)
        nemesis = Nemesis(system, schedule.faults)
        for start in (*(one.start for one in followers), *(one.start for one in clients), nemesis.start):
            start()
        time.sleep(seconds)
        nemesis.stop()
        for client in clients:
            client.stop(STEP_SECONDS)
        stopped = history.now
        tree = next(client for client in clients if isinstance(client, FolderClient))
        problems = settle(system, tree, BASES["folder"])
        history.write("run", quiet_after_s=round(history.now - stopped, 1))
        final = read_everything(system)
        Tables(system).write(folder / TABLES)
        time.sleep(FOLLOW_SECONDS)
        for follower in followers:
            follower.stop()
        history.write("final", **final, problems=problems, tree=tree.files or {})
        for client in clients:
            client.close()
    history.close()


def _clients(schedule: Schedule, system: System) -> list[Client]:
    directory = Directory()
    made: list[Client] = []
    for role, names in CLIENTS.items():
        make = {"folder": FolderClient, "library": LibraryClient, "command": CommandClient}.get(role, Client)
        for name in names:
            steps = [step for step in schedule.steps if step.client == name]
            made.append(make(name, steps, system, directory))
    return made


def judge(folder: Path, schedule: Schedule, keep: Path | None) -> int:
    """Check the record, print the result, and return the exit code."""
    record = read_record(folder / "history.jsonl")
    violations = check(record)
    fired = {one["kind"] for one in record.faults if one["fired"]}
    never_fired = sorted(schedule.required - fired)
    for violation in violations[:20]:
        print(f"{violation.kind}: {violation.text} (operations {violation.operations})", file=sys.stderr)
    failed = bool(violations or never_fired)
    where = keep or (Path(tempfile.mkdtemp(prefix="chaos-failed-")) if failed else None)
    if where is not None:
        _keep(folder, where, record, violations)
        print(f"The history, the logs and the timelines are in {where}", file=sys.stderr)
    print(json.dumps(summarise(record, violations, never_fired)))
    return 1 if failed else 0


def _rescue(folder: Path, keep: Path | None) -> Path:
    where = keep or Path(tempfile.mkdtemp(prefix="chaos-failed-"))
    _keep(folder, where, Record(), [])
    return where


def _keep(folder: Path, where: Path, record: Record, violations: list[Violation]) -> None:
    where.mkdir(parents=True, exist_ok=True)
    for path in (folder / "history.jsonl", folder / TABLES, *folder.rglob("*.log")):
        if path.exists():
            shutil.copy(path, where)
    for key in sorted({violation.key for violation in violations if violation.key})[:TIMELINES]:
        own = [violation for violation in violations if violation.key == key]
        write_timeline(where / f"{key}.html", record, key, own)


if __name__ == "__main__":
    sys.exit(main())
