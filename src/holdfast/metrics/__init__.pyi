from .access import has_metrics_token
from .catalogue import METRICS, Metric, MetricType
from .collector import Sample, SlotCollector
from .exposition import Exposition, RenderedMetrics

__all__ = [
    "METRICS",
    "Exposition",
    "Metric",
    "MetricType",
    "RenderedMetrics",
    "Sample",
    "SlotCollector",
    "has_metrics_token",
]
