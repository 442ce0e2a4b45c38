"""One trace from a request to a web server, through a worker in another process, to the webhook."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.support.collector import Collector
from tests.support.paid_provider import PaidProvider
from tests.support.processes import Running, until
from tests.support.receiver import Receiver
from tests.support.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.collector import Received

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
TEXT, NAME = "xylotext", "xyloname"


@pytest.fixture
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as paid:
        yield paid


def start(folder: Path, role: str, paid: PaidProvider, *options: str) -> Running:
    settings = {
        "home": folder / "home",
        "workers": 1,
        "log": "info",
        "log_format": "json",
        "webhook_allow": "127.0.0.1",
        "embedding_url": paid.url,
        "embedding_key": paid.key,
        "embedding_model": paid.embedding_model,
    }
    return Running(["-m", "holdfast.cli", role, *options], folder / f"{role}.log", settings)


def address_of(server: Running) -> str:
    until(lambda: "http://" in server.log.read_text(), "the web server does not start")
    return next(line for line in server.log.read_text().splitlines() if line.startswith("http://")) + "/api/v1"


def upload(http: httpx2.Client, document: str = NAME) -> int:
    answer = http.post(
        "/bases/sea/documents",
        params={"name": f"{document}.md"},
        content=f"# Tide of {document}\n\n{TEXT} rises.".encode(),
        headers={"traceparent": TRACEPARENT},
    )
    assert answer.status_code == 202, answer.text
    found: int = answer.json()["replies"][0]["document"]
    return found


@pytest.mark.smoke
def test_a_document_is_one_trace_from_its_upload_to_its_webhook(
    tmp_path: Path, paid: PaidProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector() as collector, Receiver() as receiver:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        with start(tmp_path, "web", paid, "--port", "0") as web, start(tmp_path, "worker", paid) as worker:
            with httpx2.Client(base_url=address_of(web), trust_env=False, timeout=60) as http:
                http.post("/bases", json={"name": "sea", "indexes": ["vector", "fulltext"]}).raise_for_status()
                hook = {"url": receiver.url("/hook"), "types": ["job.success"]}
                http.post("/webhooks", json=hook).raise_for_status()
                document = upload(http)
                until(lambda: receiver.got, "the webhook is not delivered")
                told = http.get(f"/bases/sea/documents/{document}").json()
            assert (web.finish(), worker.finish()) == (0, 0)
    spans = [span for span in collector.spans if span.trace == TRACE]
    request = only(spans, "POST /bases/{base}/documents")
    content, vector = only(spans, "build content"), only(spans, "build vector")
    assert request.parent == CALLER
    assert {request.attributes["http.response.status_code"], request.attributes["http.request.method"]} == {202, "POST"}
    assert {content.parent, vector.parent, only(spans, "build fulltext").parent} == {request.id}
    assert [only(spans, stage).parent for stage in ("reading", "chunking")] == [content.id, content.id]
    embedding, call = only(spans, "embedding"), only(spans, "call provider")
    assert (embedding.parent, call.parent) == (vector.id, embedding.id)
    published = {span.parent for span in spans if span.name == "publish"}
    assert published == {content.id, vector.id, only(spans, "build fulltext").id}
    assert (
        vector.attributes.items()
        >= {
            "holdfast.owner": str(document),
            "holdfast.kind": "vector",
            "holdfast.generation": 1,
            "holdfast.fence": 1,
            "holdfast.attempt": 1,
            "holdfast.outcome": "built",
        }.items()
    )
    assert call.attributes["gen_ai.request.model"] == paid.embedding_model
    assert (call.attributes["holdfast.texts"], call.attributes["gen_ai.usage.input_tokens"] > 0) == (1, True)
    delivery = only(spans, "deliver webhook")
    assert delivery.parent == request.id
    assert receiver.got[0].headers["traceparent"] == f"00-{TRACE}-{delivery.id}-01"
    assert {span.service for span in spans} == {"holdfast"}
    assert told["status"] == "success"
    assert not any(word in span.text.lower() for span in collector.spans for word in ("xylo", paid.key.lower()))


def only(spans: list[Received], name: str) -> Received:
    (found,) = (span for span in spans if span.name == name)
    return found


def test_without_a_collector_work_succeeds_with_one_line_and_processes_end_quickly(
    tmp_path: Path, paid: PaidProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with start(tmp_path, "web", paid, "--port", "0") as web, start(tmp_path, "worker", paid) as worker:
        with httpx2.Client(base_url=address_of(web), trust_env=False, timeout=60) as http:
            http.post("/bases", json={"name": "sea", "indexes": ["vector", "fulltext"]}).raise_for_status()
            for number in range(3):
                document = upload(http, str(number))
                rested = http.get(f"/bases/sea/documents/{document}", params={"wait": 60}).json()
                assert rested["status"] == "success"
        for process in (web, worker):
            until(lambda log=process.log: "traces.not_sent" in log.read_text(), "the failure is not logged")  # type: ignore[misc]
        began = time.monotonic()
        assert (web.finish(), worker.finish()) == (0, 0)
        assert time.monotonic() - began < 10
    for process in (web, worker):
        lines = process.log.read_text().splitlines()
        assert len([line for line in lines if "traces.not_sent" in line]) == 1
        assert not any("opentelemetry" in line or "Traceback" in line for line in lines)


def test_the_environment_of_this_test_names_no_collector() -> None:
    """Otherwise other tests would send spans."""
    assert not [name for name in os.environ if name.startswith("OTEL_")]
