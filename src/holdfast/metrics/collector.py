"""Turns totals and gauges into metric families, each time Prometheus asks."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from holdfast.engine import BUCKETS, INFINITE, SLOTS, SUM, UNNAMED_CODE, SlotState, Total, name_bucket
from holdfast.metrics.catalogue import METRICS, MetricType, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client import Metric as MetricFamily

    from holdfast.engine.store import SlotMetrics, SqlStore
    from holdfast.metrics.catalogue import Metric


class SlotCollector(Collector):
    """Reads the metrics of one database. `sources` yield samples of other packages and of this process."""

    def __init__(self, store: SqlStore, sources: Sequence[Callable[[], Iterable[Sample]]] = ()) -> None:
        self._store = store
        self._sources = sources

    def collect(self) -> Iterator[MetricFamily]:
        read = self._store.read_metrics()
        samples = defaultdict(list)
        for sample in (*_sample_slots(read), *(sample for source in self._sources for sample in source())):
            samples[f"holdfast_{sample.name}"].append((sample.labels, sample.value))
        totals: dict[str, dict[Total, float]] = defaultdict(dict)
        for total, value in read.totals.items():
            totals[total.name][total] = value
        kinds = sorted({total.kind for total in totals[SLOTS]})
        for metric in METRICS:
            known = _make_zeros(metric, kinds) | totals[metric.total]
            yield _make_family(metric, known, samples[metric.name])


def _sample_slots(read: SlotMetrics) -> Iterator[Sample]:
    """Yield the samples of gauges that the engine reads."""
    for kind, seconds in read.oldest_queued.items():
        yield Sample("oldest_queued_seconds", seconds, (kind,))
    for kind, seconds in read.longest_running.items():
        yield Sample("longest_running_seconds", seconds, (kind,))
    yield Sample("workers", read.workers)
    deleting = (value for total, value in read.totals.items() if _counts_deleting(total))
    yield Sample("pending_deletes", sum(deleting))
    for verb, number in read.stale_writes.items():
        yield Sample("stale_writes_total", number, (verb,))


def _make_zeros(metric: Metric, kinds: Iterable[str]) -> dict[Total, float]:
    """Return totals that are zero: Prometheus sees the first increase of a counter only if it has seen the zero."""
    if not metric.starts_at_zero:
        return {}
    detail = UNNAMED_CODE if "code" in metric.labels else ""
    return {Total(metric.total, kind, detail): 0.0 for kind in kinds}


def _counts_deleting(total: Total) -> bool:
    return total.name == SLOTS and total.detail == SlotState.DELETING


def _make_family(
    metric: Metric, totals: Mapping[Total, float], samples: Iterable[tuple[tuple[str, ...], float]]
) -> MetricFamily:
    match metric.type:
        case MetricType.HISTOGRAM:
            return _make_histogram(metric, totals)
        case MetricType.COUNTER:
            family: CounterMetricFamily | GaugeMetricFamily = CounterMetricFamily(
                metric.name, metric.help, labels=metric.labels
            )
        case MetricType.GAUGE:
            family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    if metric.total and not metric.labels:
        family.add_metric((), sum(totals.values()))
    for total, value in sorted(totals.items()) if metric.labels else ():
        family.add_metric(_choose_labels(metric, total), value)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _choose_labels(metric: Metric, total: Total) -> list[str]:
    """Return the values of the labels: `kind` is the kind of the total, any other label its detail."""
    return [total.kind if label == "kind" else total.detail for label in metric.labels]


def _make_histogram(metric: Metric, totals: Mapping[Total, float]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*map(name_bucket, BUCKETS[metric.total]), INFINITE]
    series: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for total, value in totals.items():
        *more, bound = total.detail.split(" ")  # the values of other labels, and the bucket
        series[(total.kind, *more)][bound] = value
    for labels, values in sorted(series.items()):
        counts = accumulate(values.get(bound, 0.0) for bound in bounds)
        family.add_metric(labels, list(zip(bounds, counts, strict=True)), values.get(SUM, 0.0))
    return family
