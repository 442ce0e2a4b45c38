"""Logs at any level contain no texts, names, questions, answers or secrets of users."""

from __future__ import annotations

import json
import logging
import traceback
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from holdfast.auth import Scope
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.service.opening import open_library
from holdfast.settings import Settings
from holdfast.sources.address_policy import Reach
from holdfast.webhooks.http_post import PostOptions
from holdfast.webhooks.sender import Sender
from tests.support.collector import Collector
from tests.support.harness import Rig
from tests.support.http_site import HttpSite, problem
from tests.support.paid_provider import PaidProvider
from tests.support.processes import until
from tests.support.receiver import Receiver, say
from tests.support.serve_process import Serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from tests.support.clock import FakeClock

TEXT, NAME, QUERY, ANSWER = "xylotext", "xyloname", "xyloquery", "xyloanswer"
WRONG, HOOK, REASON = "hf_xylowrong", "xylohook", "xyloreason"
CANARY = "xylo"
OUR_CLIENT = {"httpx2", "httpcore2.connection", "httpcore2.http11"}  # loggers of the HTTP client of this test
WHALES = f"# Whales\n\nThe {TEXT} whale eats krill with Xylotext Whale Company.\n"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Capture the log at DEBUG level."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "holdfast")
    return caplog


@pytest.fixture
def model() -> Iterator[PaidProvider]:
    with PaidProvider() as paid:
        paid.reply = lambda asked: "{}" if "response_format" in asked else f"Krill, says {ANSWER}. [1]"
        yield paid


@pytest.fixture
def unwell() -> Iterator[Receiver]:
    """Start a provider that repeats the request in its error messages."""
    error = {"message": f"not {TEXT} {REASON}", "code": None, "type": "invalid_request_error"}
    refusal = say(400, json.dumps({"error": error}).encode(), content_type="application/json")
    with Receiver() as provider:
        provider.before = lambda _: provider.answers.append(refusal)
        yield provider


@pytest.fixture
def site(
    database_url: str, tmp_path: Path, clock: FakeClock, model: PaidProvider, unwell: Receiver
) -> Iterator[HttpSite]:
    """Start a server whose language model answers and whose embedding provider fails."""
    speaker = OpenAIProvider(Endpoint(base_url=model.url, key=model.key, chat_model=model.chat_model))
    embedder = OpenAIProvider(Endpoint(base_url=unwell.url("/v1"), key="sk-xylokey", embedding_model="m"))
    kinds = ("vector", "fulltext", "graph")
    here = {"webhook_allow": "127.0.0.1"}
    rig = Rig(database_url, tmp_path / "blobs", clock, embedder, speaker=speaker, settings=here, indexes=kinds)
    site = HttpSite(rig, needs_key=True)
    yield site
    site.close()
    rig.close()
    speaker.close()
    embedder.close()


def told(caplog: pytest.LogCaptureFixture) -> str:
    """Return the whole log with tracebacks, as a log file would contain it."""
    form = logging.Formatter("%(name)s %(levelname)s %(message)s")
    return "\n".join(form.format(record) for record in caplog.records if record.name not in OUR_CLIENT)


def spared(log: str, *secrets: str) -> None:
    """Check that a log contains no user data and none of these secrets."""
    leaked = [line for line in log.splitlines() if any(word in line.lower() for word in (CANARY, *secrets))]
    assert leaked == []


def test_no_log_has_texts_names_questions_answers_or_secrets(
    site: HttpSite, lines: pytest.LogCaptureFixture, model: PaidProvider
) -> None:
    key = site.key("admin", name="xylokeeper")
    site.http.headers.update(key)
    with Receiver() as receiver:
        receiver.answers.append(say(500, b"xylobody"))
        reach = Reach.parse("127.0.0.1")
        sender = Sender(site.rig.library.deliveries, PostOptions(reach=reach), chance=lambda: 0.0)
        hook, signing = site.rig.library.webhooks.create(receiver.url(f"/{HOOK}"), ["*"])
        document = site.index(f"{NAME}.md", WHALES)
        broken = site.index(f"{NAME}.pdf", f"%PDF-1.4 {TEXT} broken")
        states = [site.http.get(f"/bases/shelf/documents/{one}").json()["status"] for one in (document, broken)]
        assert states == ["degraded", "failed"]
        assert site.upload(f"{NAME}.md", WHALES).status_code == 409
        assert site.http.post("/bases/shelf/search", json={"query": f"{QUERY} whale"}).json()["hits"]
        answered = site.http.post("/bases/shelf/answers", json={"question": f"What eats the {TEXT} {QUERY} whale?"})
        assert ANSWER in answered.text
        streamed = site.http.post("/bases/shelf/answers:stream", json={"question": f"{QUERY} {TEXT} whale?"})
        assert ANSWER in streamed.text
        site.http.get(f"/bases/shelf/graph/entities/{TEXT}")
        site.http.get(f"/bases/shelf/documents?text={NAME}")
        assert site.http.get("/bases", headers={"Authorization": f"Bearer {WRONG}"}).status_code == 401
        assert site.http.post("/session", json={"key": WRONG}).status_code == 401
        assert site.http.post("/bases/shelf/documents/notes", json={"name": NAME, "txt": TEXT}).status_code == 422
        site.http.delete(f"/bases/shelf/documents/{document}")
        site.http.post(f"/bases/shelf/documents/{broken}:retry")
        site.rig.work()
        site.rig.sweep()
        while site.rig.library.deliveries.collect_events() is not None:
            pass
        sender.step()
        sender.close()
        assert receiver.got, hook
    assert "work.failed" in told(lines)
    assert "slot.changed verb=completed" in told(lines)
    assert "webhook." in told(lines)
    spared(told(lines), key["Authorization"].split("hf_")[1].lower(), signing.removeprefix("whsec_").lower(), model.key)


def test_an_unexpected_error_is_logged_with_the_request_id_of_the_response(
    site: HttpSite, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("it broke")

    monkeypatch.setattr(site.rig.library.graph_queries, "describe_entity", fail)
    answer = site.http.get(f"/bases/shelf/graph/entities/{TEXT}", headers=site.key("admin"))
    assert (answer.status_code, problem(answer)["code"]) == (500, "internal_error")
    (line,) = (one for one in told(lines).splitlines() if "api.failed" in one)
    assert problem(answer)["request_id"] in line
    assert "RuntimeError: it broke" in told(lines)
    spared(told(lines))


def test_a_database_error_does_not_contain_the_values_of_the_statement(site: HttpSite) -> None:
    statement = text("INSERT INTO nowhere VALUES (:words)")
    with pytest.raises(Exception, match="nowhere") as raised:
        site.rig.store.database.write(
            lambda tx: tx.connection.execute(statement, {"words": f"{TEXT} krill"}), durable=False
        )
    spared("".join(traceback.format_exception(raised.value)))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def serving(
    tmp_path: Path, log_format: str, model: PaidProvider, unwell: Receiver, collector: Collector
) -> Iterator[Serving]:
    """Start `holdfast serve` at debug level, with traces, a key, a language model, and embeddings that fail."""
    home = tmp_path / "home"
    library = open_library(Settings(home=str(home)))
    _, secret = library.keys.create("xylokeeper", Scope.ADMIN)
    library.store.close()
    serving = Serving(
        home,
        environment={
            "HOLDFAST_LOG": "debug",
            "HOLDFAST_LOG_FORMAT": log_format,
            "HOLDFAST_KEYS": "on",
            "HOLDFAST_WEBHOOK_ALLOW": "127.0.0.1",
            "HOLDFAST_CHAT_URL": model.url,
            "HOLDFAST_CHAT_KEY": model.key,
            "HOLDFAST_CHAT_MODEL": model.chat_model,
            "HOLDFAST_EMBEDDING_URL": unwell.url("/v1"),
            "HOLDFAST_EMBEDDING_KEY": "sk-xylokey",
            "HOLDFAST_EMBEDDING_MODEL": "m",
            **collector.environment,
        },
    )
    serving.http.headers["Authorization"] = f"Bearer {secret}"
    yield serving
    if serving.process.returncode is None:
        serving.end()


@pytest.mark.parametrize("log_format", ["json", pytest.param("text", marks=pytest.mark.proof)])
def test_no_process_of_a_server_logs_or_traces_texts_names_questions_answers_or_secrets(
    serving: Serving, log_format: str, model: PaidProvider, collector: Collector
) -> None:
    with Receiver() as receiver:
        signing, key = live_through(serving, receiver)
    assert serving.end() == 0
    log = "".join(serving.errors)
    for event in ("slot.changed verb=completed", "work.failed", "webhook.attempted outcome=again"):
        assert event in log
    spared(log, key, signing, model.key.lower())
    traced = {span.name for span in collector.spans}
    assert traced >= {"POST /bases/{base}/search", "build vector", "remove content", "call provider", "deliver webhook"}
    assert all(span.parent for span in collector.spans if span.name == "call provider"), "also those of other threads"
    spared("\n".join(span.text for span in collector.spans), key, signing, model.key.lower())
    if log_format == "json":
        told = [json.loads(line) for line in serving.errors]
        assert any(line.keys() >= {"request", "trace_id", "span_id"} for line in told)
        failed = [line for line in told if line.get("event") == "work.failed"]
        assert {(line["kind"], line["code"]) for line in failed} == {
            ("content", "unreadable"),
            ("vector", "bad_provider_request"),
            ("graph", "too_much_missing"),
        }
        needed = {"time", "level", "job", "base", "owner", "generation", "fence", "holder", "attempt"}
        assert all(line.keys() >= needed for line in failed)
        assert {line["logger"] for line in told} >= {"holdfast", "uvicorn.error"}


def live_through(serving: Serving, receiver: Receiver) -> tuple[str, str]:
    """Let documents fail, succeed, be found and deleted. Return the secret of the webhook and the key."""
    http, base = serving.http, "/bases/xylobase"
    receiver.answers.append(say(500, b"xylobody"))
    address = receiver.url(f"/{HOOK}")
    hook = http.post("/webhooks", json={"url": address, "types": ["*"]}).raise_for_status().json()
    http.post("/bases", json={"name": "xylobase", "indexes": ["vector", "fulltext", "graph"]}).raise_for_status()
    document, broken = (
        http.post(f"{base}/documents", params={"name": name}, content=content).json()["replies"][0]["document"]
        for name, content in ((f"{NAME}.md", WHALES.encode()), (f"{NAME}.pdf", f"%PDF-1.4 {TEXT}".encode()))
    )
    note = {"name": f"{NAME} note", "text": TEXT, "metadata": {"xylofield": "xylovalue"}}
    (reply,) = http.post(f"{base}/documents/notes", json=note).raise_for_status().json()["replies"]
    told = [serving.rested(f"{base}/documents/{one}")["status"] for one in (document, broken, reply["document"])]
    assert told == ["degraded", "failed", "degraded"]
    http.post(f"{base}/documents/{broken}:retry").raise_for_status()
    assert serving.rested(f"{base}/documents/{broken}")["status"] == "failed"
    assert http.post(f"{base}/search", json={"query": f"{QUERY} whale"}).raise_for_status().json()["hits"]
    asked = {"question": f"What eats the {TEXT} {QUERY} whale?"}
    for path in ("answers", "answers:stream"):
        assert ANSWER in http.post(f"{base}/{path}", json=asked).text
    assert http.get(f"{base}/documents", params={"text": NAME}).status_code == 200
    assert http.post("/session", json={"key": WRONG}).status_code == 401
    assert http.post(f"{base}/documents/notes", json={"name": NAME, "txt": TEXT}).status_code == 422
    for one in (document, broken):
        job = http.delete(f"{base}/documents/{one}").raise_for_status().json()["job"]
        assert serving.rested(f"/jobs/{job}")["state"] == "success"
    until(lambda: len(receiver.got) > 5, "no webhook is delivered")
    key = http.headers["Authorization"].split("hf_")[1].lower()
    return hook["secret"].removeprefix("whsec_").lower(), key
