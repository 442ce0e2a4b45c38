"""What the events of slots add to the totals of the metrics. Pure.

A total has a name, a kind of work and a detail: `("failures", "vector", "timeout")`. A histogram has one total for each
bucket, which counts only the values of this bucket, and one for the sum of all values. The detail of a stage contains
its name and the bucket: `("stage_seconds", "vector", "embedding 0.1")`.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.states import SlotState, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Total(NamedTuple):
    """The key of a total."""

    name: str
    kind: str = ""
    detail: str = ""


class SlotEvent(NamedTuple):
    """The columns of an event that the totals need."""

    type: str
    kind: str | None
    data: str


SLOTS, CLAIMS, COMMITS, FAILURES, RETRIES, LEASE_LOSSES, ATTEMPT_CPU = (
    "slots", "claims", "commits", "failures", "retries", "lease_losses", "attempt_cpu_seconds",
)  # fmt: skip
ATTEMPT_SECONDS, QUEUE_WAIT_SECONDS, ATTEMPT_PEAK_BYTES = "attempt_seconds", "queue_wait_seconds", "attempt_peak_bytes"
STAGE_SECONDS = "stage_seconds"
SUM = "sum"  # the detail of the sum of a histogram
INFINITE = "+Inf"
MEBIBYTE = 2**20

_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21600.0)
BUCKETS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        ATTEMPT_SECONDS: _SECONDS,
        QUEUE_WAIT_SECONDS: _SECONDS,
        STAGE_SECONDS: _SECONDS,
        ATTEMPT_PEAK_BYTES: tuple(float(size * MEBIBYTE) for size in (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)),
    }
)
# A field of an event that an attempt measured, with its total and the factor to seconds or bytes.
MEASURED = (
    ("ran_ms", ATTEMPT_SECONDS, 0.001),
    ("waited_ms", QUEUE_WAIT_SECONDS, 0.001),
    ("peak_kb", ATTEMPT_PEAK_BYTES, 1024.0),
)
SLOT_EVENTS = "slot."
UNNAMED_CODE = "other"  # for a code or a stage that is not a short word
MAX_CODE = 64
MAX_STAGE = 32


def add_up(events: Iterable[SlotEvent]) -> dict[Total, float]:
    """Return what these events add to each total. Other events than those of slots add nothing."""
    added: dict[Total, float] = defaultdict(float)
    for event in events:
        if event.kind is not None and event.type.startswith(SLOT_EVENTS):
            for name, detail, value in _parts(event.type.removeprefix(SLOT_EVENTS), event.data):
                added[Total(name, event.kind, detail)] += value
    return {total: value for total, value in added.items() if value}


def name_bucket(bound: float) -> str:
    """Return the name of the bucket up to this bound."""
    return f"{bound:g}" if bound < MEBIBYTE else f"{bound:.0f}"


@lru_cache(maxsize=4096)  # most events have the same data
def _parts(verb: str, text: str) -> tuple[tuple[str, str, float], ...]:
    """Return the totals of one event without its kind: name, detail and value."""
    data: dict[str, Any] = json.loads(text)
    before, after = data.get("from"), data.get("to")
    parts: list[tuple[str, str, float]] = []
    if before != after:
        parts += [(SLOTS, state, step) for state, step in ((before, -1.0), (after, 1.0)) if state]
    was_running = before == SlotState.RUNNING
    match verb:
        case Verb.CLAIM:
            parts.append((CLAIMS, "", 1.0))
        case Verb.COMPLETE:
            parts.append((COMMITS, "", 1.0))
        case Verb.POSTPONE:
            parts.append((RETRIES, "", 1.0))
        case _:
            pass
    if "error" in data:
        parts.append((FAILURES, _clean_code(data["error"]), 1.0))
    if was_running and verb in (Verb.EXPIRE, Verb.GIVE_UP, Verb.CLAIM):
        parts.append((LEASE_LOSSES, "", 1.0))
    return (*parts, *_measured_parts(data))


def _measured_parts(data: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield the totals of what an attempt measured."""
    for field, name, factor in MEASURED:
        if field in data:
            yield from _observe(name, data[field] * factor)
    for stage, spent_ms in data.get("stages", {}).items():
        label = _clean_stage(stage)
        for name, bucket, value in _observe(STAGE_SECONDS, spent_ms / 1000):
            yield name, f"{label} {bucket}", value
    if "cpu_ms" in data:
        yield ATTEMPT_CPU, "", data["cpu_ms"] / 1000


def _observe(name: str, value: float) -> list[tuple[str, str, float]]:
    bounds = BUCKETS[name]
    place = bisect_left(bounds, value)
    return [(name, name_bucket(bounds[place]) if place < len(bounds) else INFINITE, 1.0), (name, SUM, value)]


def _clean_code(code: str) -> str:
    """Return a code as a label. Plug-ins and guarded works choose codes, and a label must not contain other text."""
    return code if len(code) <= MAX_CODE and code.isascii() and code.replace("_", "a").isalnum() else UNNAMED_CODE


def _clean_stage(stage: str) -> str:
    """Return a stage as a label. A stage with a number in its name would make a time series for each number."""
    name = stage.replace(" ", "_")
    return name if len(name) <= MAX_STAGE and name.isascii() and name.replace("_", "a").isalpha() else UNNAMED_CODE
