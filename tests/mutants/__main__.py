"""`python -m tests.mutants`: remove each guard in turn and report what detects it. The last line is one JSON object.

Each mutant runs in its own process. The simulation runs first, seed by seed. If it detects nothing in `SEEDS` seeds,
the tests run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.generate import SERVER_GUARDS, Mutant, generate_mutants
from tests.mutants.install import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS = 300
DECISIONS = tuple(f"tests/unit/test_{name}.py" for name in ("plan", "admission", "queue", "states"))
STATEMENTS = tuple(f"tests/contract/test_{name}.py" for name in ("guards", "store", "queue", "partial_requests"))
ENGINE, GUARD = "holdfast.engine", "holdfast.guard"
GUARD_TESTS = (
    "tests/integration/test_guard.py",
    "tests/integration/test_guarded_task.py",
    "tests/integration/test_guard_adopt.py",
)
TESTS_OF_GUARDS = {  # the simulation uses none of these modules
    GUARD: GUARD_TESTS,
    "holdfast.documents": tuple(f"tests/integration/test_{name}.py" for name in ("queue_jobs", "bulk_jobs", "bulk")),
    "holdfast.bases": ("tests/integration/test_base_jobs.py", "tests/integration/test_object_storage_errors.py"),
    "holdfast.blobs": (
        "tests/unit/test_blobs.py",
        "tests/unit/test_blob_location.py",
        "tests/unit/test_blob_download.py",
        "tests/contract/test_blob_stores.py",
        "tests/integration/test_object_storage_errors.py",
        "tests/integration/test_object_storage_memory.py",
    ),
}
CELERY_TESTS = ("tests/integration/test_celery_rings.py", "tests/acceptance/test_celery_scheduler.py")
# The tests of each module whose guards concern a real PostgreSQL or a broker. The simulation has neither.
SERVER_TESTS = {
    "holdfast.db.migrate": ("tests/contract/test_migrations.py", "tests/integration/test_lost_connections.py"),
    "holdfast.engine.loop": ("tests/integration/test_notify.py",),
    "holdfast.engine.store.leases": ("tests/contract/test_store.py",),
    "holdfast.indexes.postgres": ("tests/integration/test_postgres_vectors.py",),
    "holdfast.guard.celery.request": ("tests/acceptance/test_canvas.py",),
    "holdfast.celery.scheduler": CELERY_TESTS,
    "holdfast.celery.worker": CELERY_TESTS,
}
CONNECTION_TESTS = (
    "tests/integration/test_lost_connections.py",
    "tests/integration/test_pgbouncer.py",
    "tests/integration/test_store_behind_pgbouncer.py",
)
IN_EVERY_PROCESS = str(Path(__file__).resolve().parent / "every_process")  # in PYTHONPATH, for child processes
ANYWHERE = "postgres or not postgres"
CPU_SECONDS = 400  # per run; the slowest run that ends takes a quarter of it
WALL_SECONDS = 1_200  # for a run that blocks without using CPU time
ENDLESS = "never came to an end"
OUT_OF_TIME = -signal.SIGKILL


@dataclass(frozen=True)
class Fate:
    """The result of running one mutant."""

    name: str
    seeds: int | None  # number of seeds until the simulation detected it
    noticed: str | None  # the violated guarantee, or the test that failed

    @property
    def caught(self) -> bool:
        return self.noticed is not None


def show(mutant: Mutant) -> Fate:
    """Run the simulation on a mutant, and the tests if the simulation detects nothing."""
    environment = {**_healthy_environment(), VARIABLE: f"{mutant.module}:{mutant.number}"}
    if mutant.module in SERVER_GUARDS:
        return Fate(mutant.name, None, _tests_notice(environment, _server_tests(mutant.module), marked=ANYWHERE))
    if not mutant.module.startswith(ENGINE):
        return Fate(mutant.name, None, _tests_notice(environment, _tests_of(mutant.module)))
    ran = _run([sys.executable, "-m", "tests.mutants", "--infected"], environment)
    if ran.returncode == OUT_OF_TIME:
        return Fate(mutant.name, None, ENDLESS)
    if ran.returncode:  # the mutant cannot be imported or started
        last = (ran.stderr.strip().splitlines() or ["no word"])[-1]
        return Fate(mutant.name, 0, f"start: {last[:100]}")
    seen = json.loads(ran.stdout.splitlines()[-1])
    if seen["violations"]:
        return Fate(mutant.name, seen["seeds"], seen["promise"])
    noticed = _tests_notice(environment, _tests_of(mutant.module))
    if noticed is None and ".store." in mutant.module:  # SQLite has no row locks and no commits to wait for
        noticed = _tests_notice(environment, STATEMENTS, marked="postgres")
    return Fate(mutant.name, None, noticed)


def _find_broken_test(mutants: Sequence[Mutant]) -> str | None:
    """Run the tests of these mutants without any mutant."""
    modules = {mutant.module for mutant in mutants}
    environment = _healthy_environment()
    databases = {test for module in modules & {*SERVER_GUARDS} for test in _server_tests(module)}
    broken = _tests_notice(environment, sorted(databases), marked=ANYWHERE) if databases else None
    if broken or modules <= {*SERVER_GUARDS}:
        return broken
    others = [mutant.module for mutant in mutants if mutant.module not in SERVER_GUARDS]
    return _tests_notice(environment, list(dict.fromkeys(test for module in others for test in _tests_of(module))))


def _healthy_environment() -> dict[str, str]:
    """Return the environment of a run without a mutant. It differs from that of a mutant in one variable."""
    path = os.pathsep.join((IN_EVERY_PROCESS, os.environ.get("PYTHONPATH", "")))
    return {**os.environ, "PYTHONPATH": path}


def _server_tests(module: str) -> Sequence[str]:
    return SERVER_TESTS.get(module, CONNECTION_TESTS)


def _tests_of(module: str) -> Sequence[str]:
    """Return the tests with those of the module first, because a run ends at the first failure."""
    for package, tests in TESTS_OF_GUARDS.items():
        if module.startswith(package):
            return tests
    first, then = (STATEMENTS, DECISIONS) if ".store." in module else (DECISIONS, STATEMENTS)
    return (*first, *then, "tests/unit")


def _tests_notice(environment: dict[str, str], tests: Sequence[str], marked: str = "not postgres") -> str | None:
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", marked, *tests,
    ]  # fmt: skip
    ran = _run(command, environment)
    if ran.returncode == OUT_OF_TIME:
        return ENDLESS
    failed = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if ran.returncode and not failed:  # a mutant ended the process
        return f"pytest ended with {ran.returncode}"
    return failed[0] if failed else None


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command with a limit on CPU time, so that a busy machine does not end a run early."""
    try:
        return subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=WALL_SECONDS,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS)),
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, OUT_OF_TIME, "", "")


def look(seeds: int) -> None:
    """Run the simulation until it finds a violation. This runs in the process that loaded the mutant."""
    from tests.simulation.__main__ import simulate  # noqa: PLC0415 - import only after the mutant is installed

    report = simulate(range(seeds), stop_at_first=True)
    promise = report.violations[0]["promise"] if report.violations else None
    print(json.dumps({"violations": len(report.violations), "seeds": report.runs, "promise": promise}))


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--infected", action="store_true")
    parser.add_argument("--only", nargs="*", default=[""], help="mutants whose name contains one of these")
    options = parser.parse_args()
    if options.infected:
        look(options.seeds)
        return 0
    mutants = [mutant for mutant in generate_mutants() if any(only in mutant.name for only in options.only)]
    if broken := _find_broken_test(mutants):
        print(f"{broken} fails without any mutant; whatever it notices would prove nothing")
        return 1
    fates = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for fate in pool.map(show, mutants):
            fates.append(fate)
            how = f"{fate.seeds} seeds" if fate.seeds is not None else "tests"
            print(f"{'caught' if fate.caught else 'ALIVE '} {how:>10}  {fate.name}  [{fate.noticed}]", flush=True)
    caught = [fate for fate in fates if fate.caught]
    print(
        json.dumps(
            {
                "mutants": len(fates),
                "caught": len(caught),
                "by_simulation": sum(fate.seeds is not None for fate in caught),
                "by_tests": sum(fate.seeds is None for fate in caught),
                "alive": [fate.name for fate in fates if not fate.caught],
                "seeds": {fate.name: fate.seeds for fate in caught},
            }
        )
    )
    return 0 if len(caught) == len(fates) else 1


if __name__ == "__main__":
    sys.exit(main())
