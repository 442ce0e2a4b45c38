"""Samples of the sizes of indexes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast.indexes import INDEX_ROWS
from holdfast.metrics.catalogue import Sample

if TYPE_CHECKING:
    from holdfast.catalog import Catalog
    from holdfast.engine.store import SqlStore

MAX_BASES = 50  # with the most rows; the rest is one base with this name:
OTHER = "other"


def sample_index_rows(store: SqlStore, catalogue: Catalog) -> list[Sample]:
    """Return the rows of each index of the largest bases, and the sum of all others."""
    names = {base.key: base.name for base in catalogue.bases()}
    counted = {total: rows for total, rows in store.read_totals(INDEX_ROWS).items() if total.detail in names}
    sizes: Counter[str] = Counter()
    for total, rows in counted.items():
        sizes[total.detail] += int(rows)
    largest = {base for base, _ in sizes.most_common(MAX_BASES)}
    shown: Counter[tuple[str, str]] = Counter()
    for total, rows in counted.items():
        shown[names[total.detail] if total.detail in largest else OTHER, total.kind] += int(rows)
    return [Sample("index_rows", rows, labels) for labels, rows in sorted(shown.items())]
