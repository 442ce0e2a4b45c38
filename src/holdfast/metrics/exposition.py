"""The answer of `/metrics`, in the format that the request asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


class RenderedMetrics(NamedTuple):
    body: bytes
    content_type: str


class Exposition:
    """The metrics of the database, and those of this process.

    Example:
        body, content_type = Exposition(SlotCollector(store)).render(accept="")
    """

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    def render(self, accept: str = "") -> RenderedMetrics:
        """Read all metrics. `accept` is the header of the request: it may ask for OpenMetrics."""
        encode, content_type = choose_encoder(accept)
        return RenderedMetrics(encode(self._registry), content_type)
