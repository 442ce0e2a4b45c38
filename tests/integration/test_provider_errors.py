"""Errors of the real client libraries, against an HTTP server that answers in the format of each provider."""

from __future__ import annotations

import asyncio
import socket
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import anthropic
import boto3
import httpx
import httpx2
import openai
import pytest
import requests
from botocore.config import Config

from holdfast.errors import Outage, Permanent, Transient, WorkError
from holdfast.guard import Guard
from holdfast.llm import categorise, classify_response
from holdfast.settings import Settings
from tests.support.provider_answers import (
    Answer,
    anthropic_error,
    bedrock_error,
    google_error,
    openai_error,
    provider,
)

if TYPE_CHECKING:
    from collections.abc import Callable

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its source has an invalid escape
    from google import genai
    from google.genai import types

SECONDS = 10.0

RATE = openai_error(429, "rate_limit_exceeded", "requests", headers={"Retry-After": "7"})
QUOTA = openai_error(429, "insufficient_quota", "insufficient_quota")
TOO_LONG = openai_error(400, "context_length_exceeded")
KEY = openai_error(401, "invalid_api_key")
REFUSED = openai_error(400, "content_filter")
MODEL = openai_error(404, "model_not_found")
DOWN = Answer(status=503, body={"detail": "starting"})

PER_MINUTE = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}],
}
PER_DAY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}
BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


def ask_openai(url: str) -> Any:
    with openai.OpenAI(base_url=url, api_key="sk-secret", max_retries=0, timeout=SECONDS) as client:
        return client.embeddings.create(model="m", input="text")


def ask_anthropic(url: str) -> Any:
    with anthropic.Anthropic(base_url=url, api_key="sk-secret", max_retries=0, timeout=SECONDS) as client:
        return client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "text"}])


def ask_google(url: str) -> Any:
    options = types.HttpOptions(base_url=url, timeout=int(SECONDS * 1000))
    with genai.Client(api_key="sk-secret", http_options=options) as client:
        return client.models.generate_content(model="m", contents="text")


def ask_bedrock(url: str) -> Any:
    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="eu-central-1",
        aws_access_key_id="a",
        aws_secret_access_key="sk-secret",  # noqa: S106 - made up
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=SECONDS, read_timeout=SECONDS),
    )
    try:
        return client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "text"}]}])
    finally:
        client.close()


def ask_httpx(url: str) -> Any:
    return httpx.post(url, json={}, timeout=SECONDS).raise_for_status()


def ask_httpx2(url: str) -> Any:
    return httpx2.post(url, json={}, timeout=SECONDS).raise_for_status()


def ask_requests(url: str) -> Any:
    requests.post(url, json={}, timeout=SECONDS).raise_for_status()


def ask_aiohttp(url: str) -> Any:
    """Call as the documents recommend: aiohttp drops the body."""

    async def ask() -> None:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS)) as session,
            session.post(url, json={}) as response,
        ):
            if not response.ok:
                raise classify_response(response.status, await response.text(), response.headers)
            await response.read()

    asyncio.run(ask())


def fail(ask: Callable[[str], Any], answer: Answer) -> WorkError:
    """Return the category of the error that the library raises."""
    with provider(answer) as url, pytest.raises(Exception) as raised:  # noqa: PT011 - each library has its own
        ask(url)
    known = categorise(raised.value)
    assert known is not None, repr(raised.value)
    assert "sk-secret" not in f"{known} {known.params}"
    return known


def unused_address() -> str:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{held.getsockname()[1]}"


SPEAK_OPENAI = [ask_openai, ask_httpx, ask_httpx2, ask_requests, ask_aiohttp]


@pytest.mark.parametrize("ask", SPEAK_OPENAI)
@pytest.mark.parametrize(
    ("answer", "code", "kind"),
    [
        (RATE, "rate_limited", Transient),
        (QUOTA, "quota_exhausted", Permanent),
        (TOO_LONG, "input_too_large", Permanent),
        (KEY, "provider_key_refused", Permanent),
        (REFUSED, "content_refused", Permanent),
        (MODEL, "model_unknown", Permanent),
        (DOWN, "provider_down", Outage),
        (Answer(status=502, body="<html>"), "provider_busy", Transient),
    ],
)
def test_an_error_in_the_format_of_openai_has_the_same_category_in_every_library(
    ask: Callable[[str], Any], answer: Answer, code: str, kind: type[WorkError]
) -> None:
    known = fail(ask, answer)
    assert (known.code, type(known)) == (code, kind)
    if answer is RATE:
        assert isinstance(known, Transient)
        assert known.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("answer", "code", "kind"),
    [
        (anthropic_error(429, "rate_limit_error", headers={"retry-after": "7"}), "rate_limited", Transient),
        (anthropic_error(529, "overloaded_error"), "provider_busy", Transient),
        (anthropic_error(402, "billing_error"), "quota_exhausted", Permanent),
        (
            anthropic_error(
                400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."
            ),
            "quota_exhausted",
            Permanent,
        ),
        (
            anthropic_error(400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
            "input_too_large",
            Permanent,
        ),
        (anthropic_error(413, "request_too_large"), "input_too_large", Permanent),
        (anthropic_error(401, "authentication_error"), "provider_key_refused", Permanent),
        (anthropic_error(404, "not_found_error"), "model_unknown", Permanent),
        (anthropic_error(400, "invalid_request_error"), "bad_provider_request", Permanent),
    ],
)
@pytest.mark.parametrize("ask", [ask_anthropic, ask_httpx])
def test_errors_of_anthropic(ask: Callable[[str], Any], answer: Answer, code: str, kind: type[WorkError]) -> None:
    known = fail(ask, answer)
    assert (known.code, type(known)) == (code, kind)


def test_an_error_in_a_stream_of_anthropic_has_a_category() -> None:
    """The stream begins with the status 200."""
    words = 'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "No."}}\n\n'

    def ask(url: str) -> None:
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
            stream = client.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "text"}], stream=True
            )
            for _ in stream:
                pass

    answer = Answer(status=200, body=words, headers={"Content-Type": "text/event-stream"})
    assert fail(ask, answer).code == "provider_busy"


@pytest.mark.parametrize(
    ("answer", "code", "kind", "wait"),
    [
        (google_error(429, "RESOURCE_EXHAUSTED", details=[PER_MINUTE, RETRY]), "rate_limited", Transient, 34),
        (google_error(429, "RESOURCE_EXHAUSTED", details=[PER_DAY, RETRY]), "quota_exhausted", Permanent, None),
        (
            google_error(
                400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed"
            ),
            "input_too_large",
            Permanent,
            None,
        ),
        (google_error(400, "INVALID_ARGUMENT", details=[BAD_KEY]), "provider_key_refused", Permanent, None),
        (google_error(400, "INVALID_ARGUMENT"), "bad_provider_request", Permanent, None),
        (google_error(404, "NOT_FOUND"), "model_unknown", Permanent, None),
        (google_error(503, "UNAVAILABLE"), "provider_down", Outage, None),
    ],
)
@pytest.mark.parametrize("ask", [ask_google, ask_requests])
def test_errors_of_google(
    ask: Callable[[str], Any], answer: Answer, code: str, kind: type[WorkError], wait: int | None
) -> None:
    known = fail(ask, answer)
    assert (known.code, type(known)) == (code, kind)
    if wait is not None:
        assert isinstance(known, Transient)
        assert known.retry_after == timedelta(seconds=wait)


@pytest.mark.parametrize(
    ("answer", "code", "kind"),
    [
        (bedrock_error(429, "ThrottlingException"), "rate_limited", Transient),
        (bedrock_error(400, "ThrottlingException"), "rate_limited", Transient),
        (bedrock_error(400, "ServiceQuotaExceededException"), "quota_exhausted", Permanent),
        (bedrock_error(429, "ModelNotReadyException"), "provider_busy", Transient),
        (bedrock_error(408, "ModelTimeoutException"), "provider_busy", Transient),
        (bedrock_error(424, "ModelErrorException"), "provider_busy", Transient),
        (
            bedrock_error(400, "ValidationException", "Input is too long for requested model."),
            "input_too_large",
            Permanent,
        ),
        (bedrock_error(400, "ValidationException"), "bad_provider_request", Permanent),
        (bedrock_error(403, "AccessDeniedException"), "provider_key_refused", Permanent),
        (bedrock_error(404, "ResourceNotFoundException"), "model_unknown", Permanent),
        (bedrock_error(503, "ServiceUnavailableException"), "provider_down", Outage),
    ],
)
def test_errors_of_bedrock(answer: Answer, code: str, kind: type[WorkError]) -> None:
    known = fail(ask_bedrock, answer)
    assert (known.code, type(known)) == (code, kind)


def test_an_error_of_another_service_of_amazon_is_not_of_a_provider() -> None:
    with provider(Answer(status=404, body="")) as url:
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="eu-central-1",
            aws_access_key_id="a",
            aws_secret_access_key="b",  # noqa: S106 - made up
        )
        with pytest.raises(client.exceptions.ClientError) as raised:
            client.get_object(Bucket="bucket", Key="missing")
        client.close()
    assert categorise(raised.value) is None


EVERY = [*SPEAK_OPENAI, ask_anthropic, ask_google, ask_bedrock]


@pytest.mark.parametrize("ask", EVERY)
def test_a_provider_that_cannot_be_reached_is_down(ask: Callable[[str], Any]) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each library has its own
        ask(unused_address())
    known = categorise(raised.value)
    assert known is not None, repr(raised.value)
    assert (known.code, type(known)) == ("provider_down", Outage)


@pytest.mark.parametrize("ask", [*SPEAK_OPENAI, ask_anthropic, ask_google])
def test_an_answer_that_ends_early_is_tried_again(ask: Callable[[str], Any]) -> None:
    known = fail(ask, Answer(status=200, body={"ok": True}, cut=True))
    assert isinstance(known, Transient)


def test_a_response_that_was_not_read_is_not_waited_for() -> None:
    """Reading the rest of a body could block for as long as the provider likes."""
    with provider(QUOTA) as url:
        with httpx.Client() as client, client.stream("POST", url) as response:
            error = httpx.HTTPStatusError("no", request=response.request, response=response)
            assert categorise(error).code == "rate_limited"  # type: ignore[union-attr]
        with requests.post(url, stream=True, timeout=SECONDS) as streamed:
            raised = requests.HTTPError(response=streamed)
            assert categorise(raised).code == "rate_limited"  # type: ignore[union-attr]
            assert not streamed._content_consumed


def test_guarded_work_with_plain_httpx_gives_up_when_the_quota_is_used_up(sqlite_url: str) -> None:
    """Before, this was a rate limit, and four attempts were made."""
    guard = Guard(Settings(database=sqlite_url))
    work = guard.work("cards")
    with provider(QUOTA) as url:
        done = work.perform(str(work.admit("42").job), lambda _run: ask_httpx(url))
    assert (done.outcome, done.reason) == ("failed", "quota_exhausted")
    guard.close()
