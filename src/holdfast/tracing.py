"""The contract of a tracer, and the tracer that does nothing, which is used unless the operator asks for traces.

`otel.py` implements the contract with OpenTelemetry; nothing else imports it. A place in a trace is passed on as the
text of the W3C header `traceparent`. Names and attributes of spans contain ids, numbers and codes, never text of users.

    with tracer.span("build vector", parent=traceparent, attributes={"holdfast.job": job}) as span:
        span.fail("timeout")
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Value = str | int | bool | None  # None: the attribute is left out


ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class SpanKind(StrEnum):
    """The kinds of OpenTelemetry: who waits for whom."""

    SERVER = "server"
    CLIENT = "client"
    CONSUMER = "consumer"
    INTERNAL = "internal"


class Span(Protocol):
    """A part of the work with its duration. It ends with its block; an error that leaves the block marks it failed."""

    @property
    def traceparent(self) -> str | None:
        """The place in the trace, for work elsewhere that continues here."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...

    def rename(self, name: str) -> None: ...

    def set(self, attributes: Mapping[str, Value]) -> None: ...

    def fail(self, code: str) -> None:
        """Mark the span as failed with the code of an error, which contains no text."""
        ...

    def stage(self, name: str) -> None:
        """End the stage before, and begin this one as a child of the span. The last one ends with the span."""
        ...


class Tracer(Protocol):
    """Records spans. It is safe in any thread, never blocks and never raises."""

    @property
    def enabled(self) -> bool:
        """Whether it records anything; otherwise callers need not look up what only spans show."""
        ...

    def traceparent(self) -> str | None:
        """Return the place of the current span of this thread or asynchronous task."""
        ...

    def span(
        self,
        name: str,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
        links: Sequence[str] = (),
        attributes: Mapping[str, Value] | None = None,
    ) -> Span:
        """Return a span that is the current one inside its block. Without a parent it begins a new trace."""
        ...

    def call(self, name: str, attributes: Mapping[str, Value]) -> Span:
        """Return a span for one request to another program, below the current span. It never becomes current.

        So its block may be in a generator, whose caller runs in between.
        """
        ...

    def record(
        self, name: str, spans: Sequence[tuple[str | None, Mapping[str, Value]]]
    ) -> AbstractContextManager[set[int]]:
        """Record work that many traces share: one span for each parent and its attributes, all as long as the block.

        The block may add positions of spans to the set; these are marked as stale.
        """
        ...

    def link(self, traceparents: Sequence[str]) -> None:
        """Link the current span to other traces, such as that of the job which a request joined."""
        ...

    def close(self) -> None:
        """Send what is recorded, for a short time at most."""
        ...


class NoSpan:
    """The span of the tracer that is off."""

    __slots__ = ()
    traceparent = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        pass

    def rename(self, name: str) -> None:
        pass

    def set(self, attributes: Mapping[str, Value]) -> None:
        pass

    def fail(self, code: str) -> None:
        pass

    def stage(self, name: str) -> None:
        pass


NO_SPAN = NoSpan()


class NoTracer:
    """A tracer that is off."""

    __slots__ = ()
    enabled = False

    def traceparent(self) -> str | None:
        return None

    def span(self, name: str, **_: object) -> Span:  # noqa: ARG002 - off
        return NO_SPAN

    def call(self, name: str, attributes: Mapping[str, Value]) -> Span:  # noqa: ARG002 - off
        return NO_SPAN

    def record(
        self,
        name: str,  # noqa: ARG002 - off
        spans: Sequence[tuple[str | None, Mapping[str, Value]]],  # noqa: ARG002 - off
    ) -> AbstractContextManager[set[int]]:
        return nullcontext(set())

    def link(self, traceparents: Sequence[str]) -> None:
        pass

    def close(self) -> None:
        pass


NO_TRACER = NoTracer()


def error_code(error: BaseException) -> str:
    """Return what a span shows of an error: its code or its type, never its text."""
    return error.code if isinstance(error, HoldfastError) else type(error).__name__


def is_configured(environment: Mapping[str, str]) -> bool:
    """Return whether the environment names a collector and does not turn traces off."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return (
        any(environment.get(name) for name in ENDPOINT_VARIABLES)
        and not disabled
        and environment.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    )
