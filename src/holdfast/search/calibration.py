"""The calibration of a base: the weights of its channels, and the trust in its links between names.

A worker measures it in the background and stores it (`search.calibrator`); a search only reads it. Before the first
measurement, and for channels that are newer than it, the prior weights apply.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.search import statements as sql
from holdfast.search.fusion import FULLTEXT, GRAPH, VECTOR, add_channel, calibrate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.catalog import Base
    from holdfast.db import Database, Transaction

CACHE_SECONDS = 60.0
UNMEASURED_CACHE_SECONDS = 5.0  # how long a process remembers that a base is not measured yet
VERSION = 2  # of the measurement; results that another version stored are ignored
CALIBRATED_CHANNELS = (FULLTEXT, VECTOR)  # measured on any base; the first is the baseline
PRIOR_LINK_TRUST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The measurements of a base."""

    weights: Mapping[str, float]
    link_trust: float  # from 0 to 1
    recipes: Mapping[str, int] = field(default_factory=dict)  # ids, by kind of index
    measured_chunks: int = 0  # at the measurement; 0 without one
    measured_at: float = 0.0
    chunks: int = 0  # at the last count

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str, chunks: int) -> Calibration | None:
        """Return a stored measurement; None if another version of the program stored it."""
        kept = json.loads(text)
        return cls(**{**kept, "chunks": chunks}) if kept.pop("version") == VERSION else None


class Calibrations:
    """Reads the calibration of each base, and remembers it for a while."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[Calibration, float]] = {}  # with the monotonic time when it expires

    def get(self, base: Base, kinds: Collection[str]) -> Calibration:
        """Return the calibration of a base, with a weight for each kind of index."""
        found, expires = self._known.get(base.key, (None, 0.0))
        if found is None or time.monotonic() > expires:
            found = self._read(base)
            seconds = CACHE_SECONDS if found.measured_chunks else UNMEASURED_CACHE_SECONDS
            self._known[base.key] = (found, time.monotonic() + seconds)
        return complete_weights(found, kinds)

    def _read(self, base: Base) -> Calibration:
        """Return the stored calibration; before the first measurement, prior values and the number of chunks."""
        with self._database.reading() as tx:
            return read_calibration(tx, base) or Calibration(
                weights={}, link_trust=PRIOR_LINK_TRUST, chunks=count_chunks(tx, base)
            )

    def clear(self) -> None:
        self._known.clear()


def complete_weights(found: Calibration, kinds: Collection[str]) -> Calibration:
    """Give channels without a measurement, such as those of other packages, the prior share."""
    weights = found.weights or calibrate([], [kind for kind in CALIBRATED_CHANNELS if kind in kinds])
    for kind in kinds:
        if kind not in weights and kind != GRAPH:
            weights = add_channel(weights, kind, [])
    return found if weights is found.weights else replace(found, weights=weights)


def read_calibration(tx: Transaction, base: Base) -> Calibration | None:
    """Return the stored calibration of a base; None if there is none."""
    for chunks, text in tx.run(sql.READ_CALIBRATION, base_id=base.id):
        return Calibration.from_json(text, chunks)
    return None


def count_chunks(tx: Transaction, base: Base) -> int:
    ((chunks,),) = tx.run(sql.COUNT_CHUNKS, base=base.key)
    return int(chunks)
