from .access import has_metrics_token
from .budgets import BudgetGauges
from .catalogue import METRICS, Metric, MetricType, Sample
from .collector import SlotCollector
from .endpoint import MetricsAnswer, MetricsEndpoint
from .exposition import Exposition, RenderedMetrics
from .index_rows import sample_index_rows

__all__ = [
    "METRICS",
    "BudgetGauges",
    "Exposition",
    "Metric",
    "MetricType",
    "MetricsAnswer",
    "MetricsEndpoint",
    "RenderedMetrics",
    "Sample",
    "SlotCollector",
    "has_metrics_token",
    "sample_index_rows",
]
