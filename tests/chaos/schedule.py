"""What clients do and which faults occur, and when: a function of the seed, the duration and the deployment.

A step names a document by its key, not by its id, so the schedule does not depend on what the product answers. The
same seed gives the same schedule.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WARM_UP = 2.0  # seconds without faults, so that there is something to break
LONG_RUN = 300.0  # seconds, in which requests reach every server many times
AWAIT_REQUESTS = ("bucket_", "broker_", "provider_", "webhook_")  # faults that occur when a request arrives
FAULT_EVERY = 2.5
STEPS_EVERY = {"writer": 0.75, "shared": 1.5, "settings": 2.5, "bases": 2.0, "deep": 3.0, "folder": 2.0}
PROGRAMS_EVERY = {"library": 2.0, "command": 7.0}

CLIENTS: Mapping[str, Sequence[str]] = {
    "writer": ("w1", "w2", "w3", "w4"),
    "shared": ("s1", "s2"),  # both write the documents of s1
    "settings": ("g1",),
    "bases": ("b1",),
    "deep": ("d1",),
    "folder": ("f1",),
    "library": ("l1",),
    "command": ("c1",),
}
BASES = {"settings": "hill", "deep": "deep", "folder": "tree"}
COMMON_BASE = "sea"
DOCUMENTS = {"writer": 6, "shared": 2, "settings": 4, "bases": 2, "deep": 3, "folder": 4, "library": 4, "command": 2}

# name of the operation -> how often, compared with the others
READS = {"chunks": 12, "get": 6, "list": 3, "search": 10, "ask": 3, "text": 4, "job": 3}
WRITES = {"put": 34, "reindex": 6, "force": 2, "retry": 4, "cancel": 5, "delete": 7}
OPERATIONS: Mapping[str, Mapping[str, int]] = {
    "writer": READS | WRITES,
    "shared": {"put": 10, "delete": 2, "chunks": 6, "reindex": 2, "search": 2},
    "settings": {"settings": 4, "put": 8, "chunks": 4, "search": 3, "delete": 1},
    "bases": {"put": 8, "chunks": 2, "search": 2, "drop_base": 2, "clear_base": 1},
    "deep": {"put": 6, "delete": 1, "chunks": 2, "search": 2, "entities": 3, "ask": 1},
    "folder": {"write_file": 8, "remove_file": 2, "sync": 6, "delete_folder": 1, "search": 2},
    "library": {"put": 6, "chunks": 3, "search": 3, "delete": 1, "reindex": 1},
    "command": {"put": 4, "search": 2, "delete": 1},
}
# How a write is sent: as usual; with an Idempotency-Key until an answer arrives; twice at once; or without waiting
# for the answer.
MANNERS = {"plain": 55, "repeated": 20, "double": 15, "hang_up": 10}
MANNERLY = frozenset({*WRITES, "drop_base"})
HTTP_ROLES = frozenset(CLIENTS) - {"library", "command"}
INDEXES = (["vector", "fulltext"], ["fulltext"], ["vector", "fulltext", "graph"], ["vector"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation of a client."""

    at: float
    client: str
    name: str
    base: str
    key: str = ""
    version: int = 0  # of the content that it writes
    manner: str = "plain"
    indexes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """One fault. `choice` decides its target and its details."""

    at: float
    kind: str
    choice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """All steps of all clients, and all faults, in the order of time."""

    steps: tuple[Step, ...]
    faults: tuple[PlannedFault, ...]
    seconds: float

    @property
    def digest(self) -> str:
        """A short value that is the same for the same schedule."""
        shown = [*map(asdict, self.steps), *map(asdict, self.faults)]
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:12]

    @property
    def required(self) -> frozenset[str]:
        """The kinds of faults that must occur, because the schedule contains them.

        A fault of a server that only few requests reach may not occur in a short run.
        """
        kinds = frozenset(one.kind for one in self.faults)
        if self.seconds >= LONG_RUN:
            return kinds
        return frozenset(kind for kind in kinds if not kind.startswith(AWAIT_REQUESTS))


def make_schedule(seed: int, seconds: float, kinds: Sequence[str], *, fault_every: float = FAULT_EVERY) -> Schedule:
    """Return the schedule of a run with these kinds of faults. Each kind occurs once before one occurs again."""
    versions: Counter[str] = Counter()
    steps = sorted(
        (step for role, names in CLIENTS.items() for name in names for step in _steps(seed, seconds, role, name)),
        key=lambda step: (step.at, step.client),
    )
    numbered = tuple(_numbered(step, versions) for step in steps)
    return Schedule(steps=numbered, faults=tuple(_faults(seed, seconds, kinds, fault_every)), seconds=seconds)


def _steps(seed: int, seconds: float, role: str, client: str) -> Iterator[Step]:
    chance = random.Random(f"{seed}:{client}")
    every = (STEPS_EVERY | PROGRAMS_EVERY)[role]
    at = chance.uniform(0, every)
    bases = count(1)
    base = f"{client}-{next(bases)}" if role == "bases" else BASES.get(role, COMMON_BASE)
    while at < seconds:
        step = _step(chance, role, client, base, round(at, 3))
        yield step
        if step.name == "drop_base":
            base = f"{client}-{next(bases)}"
        at += chance.uniform(0.4, 1.6) * every


def _step(chance: random.Random, role: str, client: str, base: str, at: float) -> Step:
    owner = CLIENTS["shared"][0] if role == "shared" else client
    name = _weighted(chance, OPERATIONS[role])
    manner = _weighted(chance, MANNERS) if name in MANNERLY and role in HTTP_ROLES else "plain"
    key = f"{owner}k{chance.randrange(DOCUMENTS[role])}"
    indexes = tuple(chance.choice(INDEXES)) if name == "settings" else ()
    return Step(at=at, client=client, name=name, base=base, key=key, manner=manner, indexes=indexes)


def _numbered(step: Step, versions: Counter[str]) -> Step:
    if step.name not in ("put", "write_file"):
        return step
    versions[step.key] += 1
    return Step(**asdict(step) | {"version": versions[step.key], "indexes": step.indexes})


def _faults(seed: int, seconds: float, kinds: Sequence[str], every: float) -> Iterator[PlannedFault]:
    chance = random.Random(f"{seed}:faults")
    waiting: list[str] = []
    at = WARM_UP
    while at < seconds and kinds:
        if not waiting:
            waiting = chance.sample(sorted(kinds), len(kinds))
        yield PlannedFault(at=round(at, 3), kind=waiting.pop(), choice=chance.randrange(1 << 30))
        at += chance.uniform(0.6, 1.4) * every


def _weighted(chance: random.Random, weights: Mapping[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]
