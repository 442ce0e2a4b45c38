"""A collector of traces: a real OTLP/HTTP server on loopback that decodes the spans it receives."""

from __future__ import annotations

import gzip
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.processes import until

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Received:
    """One span, as the collector received it."""

    name: str
    trace: str
    id: str
    parent: str
    failed: bool
    attributes: Mapping[str, Any]
    links: tuple[str, ...]  # ids of traces
    service: str
    text: str  # everything that was sent for it


@dataclass
class Collector:
    """Receives spans until the block ends. `status` is the answer to each request."""

    status: int = 200
    spans: list[Received] = field(default_factory=list)

    def __enter__(self) -> Self:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                if collector.status == 200:
                    assert self.path == "/v1/traces"
                    collector.spans += _decode(body)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def handle(self) -> None:
                with suppress(OSError):  # the sender closed the connection
                    super().handle()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a program that sends its spans here soon after they end."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def until_named(self, name: str) -> Received:
        """Wait for a span, and return it."""
        until(lambda: self.named(name), f"no span {name!r} arrives, only {[span.name for span in self.spans]}")
        (found,) = self.named(name)
        return found


def _decode(body: bytes) -> list[Received]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        Received(
            name=span.name,
            trace=span.trace_id.hex(),
            id=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            failed=span.status.code == span.status.STATUS_CODE_ERROR,
            attributes={pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in span.attributes},
            links=tuple(link.trace_id.hex() for link in span.links),
            service=next(
                pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name"
            ),
            text=f"{resource} {span}",
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
