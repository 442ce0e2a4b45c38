"""Traces with OpenTelemetry, sent as OTLP over HTTP. The standard variables `OTEL_*` configure it.

A thread sends the spans. If the collector is down, they are dropped, a log line says so at most once a minute, and no
work waits.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast.logs import add_field_source
from holdfast.tracing import ENDPOINT_VARIABLES, SpanKind, error_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

    from holdfast.tracing import Span, Value

log = logging.getLogger("holdfast")

TRACEPARENT = "traceparent"
WARNING_SECONDS = 60.0  # between two lines about a collector that is down
CLOSE_SECONDS = 3.0  # for the last spans of a process that ends
CLOSE_SECONDS_WHEN_DOWN = 0.2
MAX_LINKS = 64
KINDS = {
    SpanKind.SERVER: trace.SpanKind.SERVER,
    SpanKind.CLIENT: trace.SpanKind.CLIENT,
    SpanKind.CONSUMER: trace.SpanKind.CONSUMER,
    SpanKind.INTERNAL: trace.SpanKind.INTERNAL,
}
_propagator = TraceContextTextMapPropagator()


def make_tracer(version: str) -> OtelTracer:
    """Return a tracer that sends spans to the collector which the environment names."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs every failed request; we log one a minute
    exporter = QuietExporter(OTLPSpanExporter())
    # The processor of OpenTelemetry ends with the process, even if it has to wait for a collector; we close it.
    provider = TracerProvider(resource=_describe_service(version), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OtelTracer(provider, exporter)


def _describe_service(version: str) -> Resource:
    """Return the resource of the environment; `holdfast` unless it names the service."""
    described = Resource.create()
    if str(described.attributes[SERVICE_NAME]).startswith("unknown_service"):
        described = described.merge(Resource({SERVICE_NAME: "holdfast"}))
    return described.merge(Resource({SERVICE_VERSION: version}))


class QuietExporter(SpanExporter):
    """Sends spans, and logs failures at most once a minute."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._lost = 0  # since the last line
        self._next_line = 0.0  # monotonic
        self.failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        self.failing = result is not SpanExportResult.SUCCESS
        if self.failing:
            self._lost += len(spans)
            if time.monotonic() >= self._next_line:
                self._next_line = time.monotonic() + WARNING_SECONDS
                log.warning("traces.not_sent spans=%d endpoint=%s", self._lost, _endpoint())
                self._lost = 0
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()


def _endpoint() -> str:
    return next((value for name in ENDPOINT_VARIABLES if (value := os.environ.get(name))), "")


class OtelTracer:
    """A `Tracer` of one process."""

    enabled = True

    def __init__(self, provider: TracerProvider, exporter: QuietExporter | None = None) -> None:
        self._provider = provider
        self._exporter = exporter
        self._tracer = provider.get_tracer("holdfast")
        add_field_source(_read_trace_fields)

    def traceparent(self) -> str | None:
        return _format_traceparent(trace.get_current_span().get_span_context())

    def span(
        self,
        name: str,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
        links: Sequence[str] = (),
        attributes: Mapping[str, Value] | None = None,
    ) -> Span:
        place = _parse_context(parent)
        return OtelSpan(self._tracer, name, kind=kind, parent=place, links=links, attributes=attributes or {})

    def call(self, name: str, attributes: Mapping[str, Value]) -> Span:
        return OtelSpan(self._tracer, name, kind=SpanKind.CLIENT, attributes=attributes, current=False)

    @contextmanager
    def record(self, name: str, spans: Sequence[tuple[str | None, Mapping[str, Value]]]) -> Iterator[set[int]]:
        began = time.time_ns()
        stale: set[int] = set()
        failure = None
        try:
            yield stale
        except BaseException as error:
            failure = error_code(error)
            raise
        finally:
            ended = time.time_ns()
            for place, (parent, attributes) in enumerate(spans):
                span = self._tracer.start_span(
                    name, _parse_context(parent), attributes=_given(attributes), start_time=began
                )
                if failure or place in stale:
                    _mark_failed(span, failure or "stale_write")
                span.end(ended)

    def link(self, traceparents: Sequence[str]) -> None:
        current = trace.get_current_span()
        for link in _make_links(traceparents):
            current.add_link(link.context)

    def close(self) -> None:
        """Send the last spans in another thread. If the collector is slow or down, the process does not wait for it."""
        sending = threading.Thread(target=self._provider.shutdown, name="holdfast-traces", daemon=True)
        sending.start()
        down = self._exporter is not None and self._exporter.failing
        sending.join(CLOSE_SECONDS_WHEN_DOWN if down else CLOSE_SECONDS)
        if sending.is_alive() and self._exporter is not None:
            self._exporter.shutdown()


class OtelSpan:
    """A `Span`. Its parent is the given context; None: the current span."""

    def __init__(
        self,
        tracer: trace.Tracer,
        name: str,
        *,
        kind: SpanKind,
        parent: Context | None = None,
        links: Sequence[str] = (),
        attributes: Mapping[str, Value],
        current: bool = True,
    ) -> None:
        self._tracer = tracer
        self._span = tracer.start_span(
            name, parent, kind=KINDS[kind], links=_make_links(links), attributes=_given(attributes)
        )
        self._current = current
        self._context = trace.set_span_in_context(self._span, context.get_current() if parent is None else parent)
        self._thread = 0
        self._token: Any = None
        self._stage: trace.Span | None = None
        self._stage_token: Any = None

    @property
    def traceparent(self) -> str | None:
        return _format_traceparent(self._span.get_span_context())

    def __enter__(self) -> Self:
        if self._current:
            self._thread = threading.get_ident()
            self._token = context.attach(self._context)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace_: object) -> None:
        self._end_stage()
        if self._token is not None:
            context.detach(self._token)
        if error is not None:
            self.fail(error_code(error))
        self._span.end()

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, attributes: Mapping[str, Value]) -> None:
        self._span.set_attributes(_given(attributes))

    def fail(self, code: str) -> None:
        _mark_failed(self._span, code)

    def stage(self, name: str) -> None:
        if threading.get_ident() != self._thread:  # a context belongs to one thread
            return
        self._end_stage()
        self._stage = self._tracer.start_span(name, self._context)
        self._stage_token = context.attach(trace.set_span_in_context(self._stage, self._context))

    def _end_stage(self) -> None:
        if self._stage is not None:
            context.detach(self._stage_token)
            self._stage.end()
            self._stage = None


def _given(attributes: Mapping[str, Value]) -> dict[str, str | int | bool]:
    return {name: value for name, value in attributes.items() if value is not None}


def _mark_failed(span: trace.Span, code: str) -> None:
    """Set the status without a description, which could contain text of a document."""
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR))


def _parse_context(traceparent: str | None) -> Context | None:
    """Return the context of a remote parent. An unreadable header begins a new trace, as the standard says."""
    return None if traceparent is None else _propagator.extract({TRACEPARENT: traceparent}, context.Context())


def _make_links(traceparents: Sequence[str]) -> list[Link]:
    contexts = (
        trace.get_current_span(_parse_context(traceparent)).get_span_context()
        for traceparent in traceparents[:MAX_LINKS]
    )
    return [Link(found) for found in contexts if found.is_valid]


def _format_traceparent(place: SpanContext) -> str | None:
    if not place.is_valid:
        return None
    return f"00-{trace.format_trace_id(place.trace_id)}-{trace.format_span_id(place.span_id)}-{place.trace_flags:02x}"


def _read_trace_fields() -> Mapping[str, str]:
    """Return the ids of the current span for the lines of the log."""
    place = trace.get_current_span().get_span_context()
    if not place.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(place.trace_id), "span_id": trace.format_span_id(place.span_id)}
