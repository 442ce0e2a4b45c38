"""Spans of requests, attempts and provider calls, recorded in memory."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import logs
from holdfast.engine.admission import Verdict
from holdfast.engine.states import Operation
from holdfast.engine.store.statements import SELECT_TRACEPARENTS
from holdfast.engine.store.transitions import StoreBase
from holdfast.errors import StoreError, Transient
from holdfast.llm.batches import BatchLimits
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.logs import JsonFormatter
from holdfast.otel import OtelTracer, QuietExporter, make_tracer
from holdfast.tracing import NO_SPAN, NO_TRACER, is_configured
from holdfast.wiring import open_tracer
from tests.support.harness import Rig
from tests.support.paid_provider import MALFORMED, PaidProvider, unpaid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

    from tests.support.clock import FakeClock

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CANARY = "xylo"


class Recording:
    """A tracer and the spans that it has recorded."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = OtelTracer(provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found


def trace_of(span: ReadableSpan) -> str:
    return f"{span.context.trace_id:032x}"


def below(child: ReadableSpan, parent: ReadableSpan) -> bool:
    return child.parent is not None and child.parent.span_id == parent.context.span_id


def shown(span: ReadableSpan, *names: str) -> tuple[Any, ...]:
    attributes = span.attributes or {}
    return tuple(attributes.get(name) for name in names)


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    monkeypatch.setattr(logs, "_field_sources", [])
    return Recording()


@pytest.fixture
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as paid:
        yield paid


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider, recording: Recording) -> Iterator[Rig]:
    provider = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model))
    indexes = ("vector", "fulltext")
    rig = Rig(database_url, tmp_path / "blobs", clock, provider, tracer=recording.tracer, indexes=indexes)
    yield rig
    rig.close()
    provider.close()


def test_every_attempt_continues_the_trace_of_the_request_with_its_outcome_and_calls(
    rig: Rig, recording: Recording, paid: PaidProvider, clock: FakeClock
) -> None:
    paid.next(MALFORMED)
    with recording.tracer.span("request", parent=TRACEPARENT):
        rig.put(f"{CANARY}.md", f"# {CANARY}\n\n{unpaid()}")
    rig.work()
    clock.advance(timedelta(minutes=5))
    rig.work()
    request = recording.only("request")
    first, second = recording.named("build vector")
    assert {trace_of(span) for span in recording.exporter.get_finished_spans()} == {TRACE}
    assert below(first, request)
    assert below(second, request)
    names = ("holdfast.attempt", "holdfast.fence", "holdfast.outcome", "error.type")
    assert shown(first, *names) == (1, 1, "retry", "bad_answer")
    assert shown(second, *names) == (2, 2, "built", None)
    assert (first.status.is_ok, second.status.is_ok) == (False, True)
    assert first.status.description is None
    failed, answered = recording.named("call provider")
    begun, done = recording.named("embedding")
    assert below(failed, begun)
    assert below(begun, first)
    assert below(answered, done)
    assert below(done, second)
    assert shown(failed, "error.type", "holdfast.texts", "holdfast.kind") == ("bad_answer", 1, "embedding")
    assert shown(answered, "gen_ai.request.model", "error.type") == (paid.embedding_model, None)
    assert [span.name for span in recording.named("publish") if below(span, first)] == ["publish"]
    told = "".join(span.to_json() for span in recording.exporter.get_finished_spans())
    assert CANARY not in told
    assert paid.key not in told


def test_calls_that_run_at_once_in_other_threads_belong_to_their_stage(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider, recording: Recording
) -> None:
    one_text = BatchLimits(texts=1, concurrency=3)
    endpoint = Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model, batching=one_text)
    provider = OpenAIProvider(endpoint)
    rig = Rig(database_url, tmp_path / "blobs", clock, provider, tracer=recording.tracer, indexes=("vector",))
    rig.index("a.md", "\n\n".join(f"# {number}\n\n{unpaid() * 40}" for number in range(5)))
    calls = recording.named("call provider")
    assert len(calls) >= 5
    assert all(below(call, recording.only("embedding")) for call in calls)
    rig.close()
    provider.close()


def test_a_request_that_joins_a_job_links_to_its_trace(rig: Rig, recording: Recording) -> None:
    with recording.tracer.span("first", parent=TRACEPARENT):
        rig.put("a.md", "# A\n\nText.")
    with recording.tracer.span("second"):
        reply = rig.ask("a.md", Operation.INDEX)
    assert reply.verdict != Verdict.ACCEPTED
    (link,) = recording.only("second").links
    assert f"{link.context.trace_id:032x}" == TRACE
    assert recording.only("first").links == ()


def test_work_on_many_documents_belongs_to_their_trace_or_links_to_all(rig: Rig, recording: Recording) -> None:
    with recording.tracer.span("both"):
        for name in ("a.md", "b.md"):
            rig.put(name, f"# {name}\n\n{unpaid()}")
    rig.work()
    prepared = recording.only("prepare vector")
    assert below(prepared, recording.only("both"))
    assert below(recording.only("call provider"), prepared)
    recording.exporter.clear()
    for name in ("c.md", "d.md"):
        with recording.tracer.span(name):
            rig.put(name, f"# {name}\n\n{unpaid()}")
    rig.work()
    requests = {trace_of(recording.only(name)) for name in ("c.md", "d.md")}
    prepared = recording.only("prepare vector")
    assert {f"{link.context.trace_id:032x}" for link in prepared.links} == requests
    assert {trace_of(span) for span in recording.named("build vector")} == requests


def test_a_removal_of_many_documents_is_a_span_in_the_trace_of_each(rig: Rig, recording: Recording) -> None:
    for name in ("a.md", "b.md"):
        rig.index(name, f"# {name}\n\n{unpaid()}")
    recording.exporter.clear()
    with recording.tracer.span("delete", parent=TRACEPARENT):
        rig.delete("a.md", "b.md")
    rig.work()
    removed = recording.named("remove content")
    assert [trace_of(span) for span in removed] == [TRACE, TRACE]
    assert {shown(span, "holdfast.owner") for span in removed} == {("1",), ("2",)}


def test_a_failed_removal_of_many_documents_is_marked_with_its_code(
    rig: Rig, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.md", "b.md"):
        rig.index(name, f"# {name}\n\n{unpaid()}")

    def fail(_: object) -> None:
        raise Transient("timeout")

    monkeypatch.setattr(rig.indexers["content"], "remove_all", fail)
    rig.delete("a.md", "b.md")
    rig.work()
    assert {shown(span, "error.type") for span in recording.named("remove content")} == {("timeout",)}


def test_a_result_that_is_refused_as_stale_is_marked(
    rig: Rig, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put("a.md", "# A\n\nText.")
    settle = rig.store.complete

    def cancel_before(*given: Any) -> None:
        monkeypatch.undo()
        rig.ask("a.md", Operation.CANCEL)
        settle(*given)

    monkeypatch.setattr(rig.store, "complete", cancel_before)
    rig.work()
    assert shown(recording.only("publish"), "error.type") == ("stale_write",)


def test_work_goes_on_if_the_traces_cannot_be_read(
    rig: Rig, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = rig.store._read

    def fail(statement: Any, *given: Any, **more: Any) -> Any:
        if statement is SELECT_TRACEPARENTS:
            raise StoreError("database_error")
        return read(statement, *given, **more)

    with recording.tracer.span("request"):
        rig.put("a.md", "# A\n\nText.")
    monkeypatch.setattr(rig.store, "_read", fail)
    with recording.tracer.span("second"):
        rig.ask("a.md", Operation.INDEX)
    rig.work()
    assert rig.slot("a.md", "content").state == "ready"
    assert recording.only("build content").parent is None


def test_without_a_tracer_nothing_is_stored_or_read(
    database_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",))
    monkeypatch.delattr(StoreBase, "find_traceparents")
    reply = rig.put("a.md", "# A\n\nText.")
    rig.work()
    assert rig.slot("a.md", "fulltext").state == "ready"
    assert rig.store.job(reply.job or "").traceparent is None
    assert rig.put("a.md", "# A\n\nText.").verdict != Verdict.ACCEPTED
    rig.close()


def test_an_unreadable_traceparent_begins_a_new_trace(recording: Recording) -> None:
    for given in ("", "nonsense", f"00-{'0' * 32}-b7ad6b7169203331-01", "00-xy-1-1"):
        with recording.tracer.span("request", parent=given) as span:
            assert span.traceparent is not None
        assert recording.exporter.get_finished_spans()[-1].parent is None


def test_a_parent_that_is_not_sampled_records_nothing_and_is_passed_on(recording: Recording) -> None:
    with recording.tracer.span("request", parent=f"00-{TRACE}-b7ad6b7169203331-00"):
        passed = recording.tracer.traceparent()
    assert passed is not None
    assert (passed[3:35], passed[-2:]) == (TRACE, "00")
    assert recording.exporter.get_finished_spans() == ()


def test_an_error_that_leaves_a_span_shows_its_type_and_no_text(recording: Recording) -> None:
    def fail() -> None:
        with recording.tracer.span("request") as span:
            span.stage("reading")
            raise ValueError(CANARY)

    with pytest.raises(ValueError, match=CANARY):
        fail()
    request = recording.only("request")
    assert shown(request, "error.type") == ("ValueError",)
    assert request.events == ()
    assert CANARY not in request.to_json()
    assert below(recording.only("reading"), request)


def test_stages_end_in_order_and_another_thread_cannot_begin_one(recording: Recording) -> None:
    with recording.tracer.span("build") as span:
        span.stage("reading")
        thread = threading.Thread(target=span.stage, args=("elsewhere",))
        thread.start()
        thread.join()
        span.stage("chunking")
        with recording.tracer.call("call provider", {}):
            pass
    assert recording.tracer.traceparent() is None
    assert [one.name for one in recording.exporter.get_finished_spans()] == [
        "reading", "call provider", "chunking", "build"
    ]  # fmt: skip
    assert below(recording.only("call provider"), recording.only("chunking"))


def test_json_lines_inside_a_span_have_its_ids(recording: Recording) -> None:
    record = logging.LogRecord("holdfast", logging.INFO, "", 0, "work.failed", (), None)
    with recording.tracer.span("build", parent=TRACEPARENT) as span:
        told = json.loads(JsonFormatter().format(record))
        assert span.traceparent == f"00-{told['trace_id']}-{told['span_id']}-01"
    assert told["trace_id"] == TRACE
    assert "trace_id" not in json.loads(JsonFormatter().format(record))


class Broken(SpanExporter):
    """A collector that is down, or does not answer until it is released."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.released = threading.Event()
        if not hangs:
            self.released.set()

    def export(self, _: Any) -> SpanExportResult:
        self.released.wait(60)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.released.set()


def test_a_collector_that_is_down_is_logged_once_a_minute_with_the_lost_spans(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("holdfast.otel.time.monotonic", lambda: now[0])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    exporter = QuietExporter(Broken())
    spans: list[Any] = [object(), object()]
    for _ in range(3):
        exporter.export(spans)
    now[0] += 61
    exporter.export(spans)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "traces.not_sent spans=2 endpoint=http://127.0.0.1:1",
        "traces.not_sent spans=6 endpoint=http://127.0.0.1:1",
    ]


def test_a_process_that_ends_does_not_wait_for_a_collector_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.otel.CLOSE_SECONDS", 0.1)
    broken = Broken(hangs=True)
    exporter = QuietExporter(broken)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    tracer = OtelTracer(provider, exporter)
    with tracer.span("build"):
        pass
    began = time.monotonic()
    tracer.close()
    assert time.monotonic() - began < 5
    assert broken.released.is_set()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_the_standard_variables_turn_traces_on(environment: dict[str, str], *, expected: bool) -> None:
    assert is_configured(environment) is expected


def test_without_a_collector_nothing_of_opentelemetry_is_imported() -> None:
    program = "import sys; from holdfast.wiring import open_tracer; open_tracer(); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {name for name in ran.stdout.split() if name.startswith("opentelemetry") or name == "holdfast.otel"}


def test_without_the_extra_a_process_logs_what_to_install_and_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.delitem(sys.modules, "holdfast.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert open_tracer() is NO_TRACER
    assert "pip install 'holdfast[otel]'" in caplog.text


@pytest.mark.parametrize(("given", "expected"), [("", "holdfast"), ("search", "search")])
def test_the_service_is_called_holdfast_unless_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch, given: str, expected: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_SERVICE_NAME", given) if given else monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    tracer = make_tracer("1.2.3")
    assert (
        tracer._provider.resource.attributes.items() >= {"service.name": expected, "service.version": "1.2.3"}.items()
    )
    tracer.close()


def test_the_tracer_that_is_off_returns_one_shared_span() -> None:
    assert NO_TRACER.span("build", parent=TRACEPARENT) is NO_SPAN
    assert NO_TRACER.call("call provider", {}) is NO_SPAN
