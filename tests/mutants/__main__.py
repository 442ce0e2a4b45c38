"""`python -m tests.mutants`: remove each guard in turn and report what detects it. The last line is one JSON object.

Each mutant runs in its own process. The simulation runs first, seed by seed. If it detects nothing in `SEEDS` seeds,
the tests run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.mutants.generate import SERVER_GUARDS, Mutant, generate_mutants
from tests.mutants.running import record_tests, run_alone, run_simulation, run_tests

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEDS = 300
DECISIONS = tuple(f"tests/unit/test_{name}.py" for name in ("plan", "admission", "queue", "states"))
STATEMENTS = tuple(f"tests/contract/test_{name}.py" for name in ("guards", "store", "queue", "partial_requests"))
ENGINE, GUARD = "holdfast.engine", "holdfast.guard"
TASK_TESTS = tuple(f"tests/integration/test_guarded_{name}.py" for name in ("calls", "attempts", "task", "request"))
# The simulation uses none of these modules. The first entry that fits decides. The fastest tests come first, because a
# run ends at the first failure.
TESTS_OF_GUARDS = {
    "holdfast.guard.adopt": ("tests/integration/test_guard_adopt.py",),
    "holdfast.guard.celery": TASK_TESTS,
    GUARD: (
        *(f"tests/integration/test_{name}.py" for name in ("guard", "guard_quotas", "guard_reports", "guard_async")),
        "tests/integration/test_guarded_functions.py",
        *TASK_TESTS,
        "tests/integration/test_guard_operations.py",
    ),
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
    "holdfast.guard.celery.request": ("tests/integration/test_guarded_request.py",),
    "holdfast.celery.scheduler": CELERY_TESTS,
    "holdfast.celery.worker": CELERY_TESTS,
}
CONNECTION_TESTS = (
    "tests/integration/test_lost_connections.py",
    "tests/integration/test_pgbouncer.py",
    "tests/integration/test_store_behind_pgbouncer.py",
)
ANYWHERE = "postgres or not postgres"
HERE = "not postgres"


@dataclass(frozen=True)
class Fate:
    """The result of running one mutant."""

    name: str
    seeds: int | None  # number of seeds until the simulation detected it
    noticed: str | None  # the violated guarantee, or the test that failed

    @property
    def caught(self) -> bool:
        return self.noticed is not None


class Run:
    """Runs mutants. A test that detected a mutant runs first for the next mutants of its module.

    If tests call the function of a mutant in their own process, then only these tests run.
    """

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._callers: dict[tuple[str, str], list[str]] = {}  # the tests that call a function
        self._noticed: defaultdict[str, list[str]] = defaultdict(list)  # by module, newest first

    def find_broken_test(self, mutants: Sequence[Mutant]) -> str | None:
        """Run the tests of these mutants without any mutant, and record the functions that they call."""
        modules = dict.fromkeys(mutant.module for mutant in mutants)
        here = dict.fromkeys(test for module in modules if module not in SERVER_GUARDS for test in _tests_of(module))
        servers = dict.fromkeys(test for module in modules if module in SERVER_GUARDS for test in _server_tests(module))
        if here:
            recorded = run_alone(record_tests, None, tuple(here), HERE)
            if isinstance(recorded, str):
                return recorded
            broken: str | None
            broken, self._callers = recorded
            if broken is not None:
                return broken
        return run_alone(run_tests, None, tuple(servers), ANYWHERE) if servers else None

    def show(self, mutant: Mutant) -> Fate:
        """Run the simulation on a mutant, and the tests if the simulation detects nothing."""
        module = mutant.module
        if module in SERVER_GUARDS:
            return Fate(mutant.name, None, self._test(mutant, _server_tests(module), ANYWHERE))
        if module.startswith(ENGINE):
            seen = run_alone(run_simulation, mutant, self._seeds)
            if isinstance(seen, str):
                return Fate(mutant.name, None, seen)
            if seen[1] is not None:
                return Fate(mutant.name, *seen)
        noticed = self._test(mutant, _tests_of(module), HERE)
        if noticed is None and ".store." in module:  # SQLite has no row locks and no commits to wait for
            noticed = self._test(mutant, STATEMENTS, "postgres")
        return Fate(mutant.name, None, noticed)

    def _test(self, mutant: Mutant, tests: Sequence[str], marked: str) -> str | None:
        callers = self._callers.get((str(mutant.path), mutant.function), []) if marked == HERE else []
        before = self._noticed[mutant.module]
        first = [test for test in before if test in callers] if callers else before
        noticed: str | None = run_alone(
            run_tests, mutant, tests, marked, [*dict.fromkeys([*first, *callers])], bool(callers)
        )
        if noticed is not None and "::" in noticed:
            before[:] = [noticed, *(test for test in before if test != noticed)]
        return noticed


def _server_tests(module: str) -> Sequence[str]:
    return SERVER_TESTS.get(module, CONNECTION_TESTS)


def _tests_of(module: str) -> Sequence[str]:
    """Return the tests with those of the module first, because a run ends at the first failure."""
    for package, tests in TESTS_OF_GUARDS.items():
        if module.startswith(package):
            return tests
    first, then = (STATEMENTS, DECISIONS) if ".store." in module else (DECISIONS, STATEMENTS)
    return (*first, *then, "tests/unit")


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="*", default=[""], help="mutants whose name contains one of these")
    options = parser.parse_args()
    mutants = [mutant for mutant in generate_mutants() if any(only in mutant.name for only in options.only)]
    run = Run(options.seeds)
    if broken := run.find_broken_test(mutants):
        print(f"{broken} fails without any mutant; whatever it notices would prove nothing")
        return 1
    fates = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(run.show, mutant) for mutant in mutants]):
            fate = done.result()
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
