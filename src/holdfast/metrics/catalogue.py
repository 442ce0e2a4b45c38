"""Every metric of Holdfast: its name, type, labels and total. The texts are in the catalogue of messages.

Labels contain kinds, states, codes and names of bases, never the name or text of a document.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from holdfast.messages import format_message


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric. `total` names the totals in the database that it shows; without one, a source yields its samples."""

    name: str
    type: MetricType
    labels: tuple[str, ...] = ()
    total: str = ""

    @property
    def starts_at_zero(self) -> bool:
        """Whether every kind of work has this counter from its first slot on."""
        return self.type is MetricType.COUNTER and self.labels in {("kind",), ("kind", "code")}

    @property
    def help(self) -> str:
        return format_message(f"metric.{self.name}", {})


class Sample(NamedTuple):
    """One value of a metric that has no total."""

    name: str  # of the metric, without `holdfast_`
    value: float
    labels: tuple[str, ...] = ()


def _counter(name: str, *labels: str, total: str = "") -> Metric:
    return Metric(name=f"holdfast_{name}_total", type=MetricType.COUNTER, labels=labels, total=total or name)


def _gauge(name: str, *labels: str, total: str = "") -> Metric:
    return Metric(name=f"holdfast_{name}", type=MetricType.GAUGE, labels=labels, total=total)


def _histogram(name: str, *labels: str) -> Metric:
    return Metric(name=f"holdfast_{name}", type=MetricType.HISTOGRAM, labels=labels, total=name)


METRICS = (
    _gauge("slots", "kind", "state", total="slots"),
    _gauge("oldest_queued_seconds", "kind"),
    _gauge("longest_running_seconds", "kind"),
    _gauge("workers"),
    _gauge("pending_deletes"),
    _gauge("pending_erasures"),
    _gauge("queue_messages", "kind"),
    _gauge("event_streams"),
    _gauge("index_rows", "base", "kind"),
    _gauge("budget_tokens", "base"),
    _gauge("spent_tokens", "base"),
    _counter("claims", "kind"),
    _counter("commits", "kind"),
    _counter("retries", "kind"),
    _counter("failures", "kind", "code"),
    _counter("lease_losses", "kind"),
    _counter("stale_writes", "verb"),  # the engine counts them by verb
    _counter("duplicates", "reason"),
    _histogram("attempt_seconds", "kind"),
    _histogram("stage_seconds", "kind", "stage"),
    _histogram("queue_wait_seconds", "kind"),
    _histogram("attempt_peak_bytes", "kind"),
    _counter("attempt_cpu_seconds", "kind"),
    _counter("tokens", "kind", "paid"),
    _counter("cost", "kind", "paid"),
    _counter("texts", "kind", "paid"),
    _counter("webhook_failures"),
)
