"""Errors of every provider library are mapped to the right category, and no secret in them is kept.

The classes below imitate the errors of openai, anthropic, httpx, requests and aiohttp. The code under test recognises
these errors by their attributes only. Errors of Python itself are used as they are.
"""

from __future__ import annotations

import email.message
import socket
import subprocess
import urllib.error
import warnings
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
import redis
import sqlalchemy.exc
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Outage, Permanent, StaleLease, StopWork, StoreUnavailable, Transient, WorkError
from holdfast.llm.failures import RULES, bad_answer, categorise, to_work_error

SECRET = "sk-proj-4f9a1Zx0 of patient Doe"  # noqa: S105 - made up


def written(headers: dict[str, str]) -> dict[str, str]:
    """Return headers spelled as the sender wrote them, which is how some libraries deliver them."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


class OpenAIError(Exception):
    """Imitates openai.APIStatusError: the body is the inner error."""

    def __init__(self, status: int, code: str | None = None, kind: str | None = None, **headers: str) -> None:
        super().__init__(f"Error code: {status} - {SECRET}")
        self.status_code = status
        self.code = code
        self.type = kind
        self.body: object = {"message": SECRET, "code": code, "type": kind}
        self.request_id = "req_0123abc"
        self.response = SimpleNamespace(status_code=status, headers=written(headers))


class AnthropicError(Exception):
    """Imitates anthropic.APIStatusError: the body is the envelope."""

    def __init__(self, status: int, kind: str) -> None:
        super().__init__(SECRET)
        self.status_code = status
        self.body = {"type": "error", "error": {"type": kind, "message": SECRET}}


class FalseResponse:
    """Imitates requests.Response: it is false when the status is an error."""

    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = written(headers)

    def __bool__(self) -> bool:
        return False


class RequestsError(OSError):
    """Imitates requests.HTTPError and httpx.HTTPStatusError: everything is in the response."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"{status} Client Error: {SECRET}")
        self.response = FalseResponse(status, **headers)


class AiohttpError(Exception):
    """Imitates aiohttp.ClientResponseError: reading `code` emits a deprecation warning; the error has the headers."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(SECRET)
        self.status = status
        self.headers = written(headers)

    @property
    def code(self) -> int:
        warnings.warn("code property is deprecated, use status instead", DeprecationWarning, stacklevel=2)
        return self.status


class GoogleError(Exception):
    """Imitates google.genai.errors.APIError: `code` is the HTTP status, `status` is a word."""

    code = 429
    status = "RESOURCE_EXHAUSTED"


def named(name: str, *bases: type[Exception]) -> Exception:
    """Return an error that is recognised by the name of its class only."""
    made: Exception = type(name, bases or (Exception,), {"__module__": "library"})(SECRET)
    return made


def understood(error: BaseException) -> WorkError:
    known = categorise(error)
    assert known is not None
    return known


def wait(error: BaseException) -> timedelta | None:
    known = understood(error)
    assert isinstance(known, Transient)
    return known.retry_after


def wrapped(cause: BaseException, levels: int) -> BaseException:
    for level in range(levels):
        outer = RuntimeError(f"level {level}")
        outer.__cause__ = cause
        cause = outer
    return cause


@pytest.mark.parametrize("shape", [OpenAIError, RequestsError, AiohttpError])
@pytest.mark.parametrize(
    ("status", "code", "meaning"),
    [
        (400, "bad_provider_request", Permanent),
        (401, "provider_key_refused", Permanent),
        (402, "quota_exhausted", Permanent),
        (403, "provider_key_refused", Permanent),
        (404, "model_unknown", Permanent),
        (408, "provider_busy", Transient),
        (409, "provider_busy", Transient),
        (413, "input_too_large", Permanent),
        (422, "bad_provider_request", Permanent),
        (425, "provider_busy", Transient),
        (429, "rate_limited", Transient),
        (500, "provider_busy", Transient),
        (502, "provider_busy", Transient),
        (503, "provider_down", Outage),
        (504, "provider_busy", Transient),
        (522, "provider_busy", Transient),
        (529, "provider_busy", Transient),
        (599, "provider_busy", Transient),
    ],
)
def test_a_status_has_its_category_in_the_errors_of_every_library(
    shape: type[Exception], status: int, code: str, meaning: type[WorkError]
) -> None:
    known = understood(shape(status))
    assert (known.code, type(known), known.params["status"]) == (code, meaning, str(status))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OpenAIError(429, "insufficient_quota"), "quota_exhausted"),
        (OpenAIError(429, None, "insufficient_quota"), "quota_exhausted"),
        (OpenAIError(429, "Insufficient_Quota"), "quota_exhausted"),
        (AnthropicError(429, "insufficient_quota"), "quota_exhausted"),
        (OpenAIError(429, "rate_limit_exceeded", "tokens"), "rate_limited"),
        (OpenAIError(400, "context_length_exceeded"), "input_too_large"),
        (OpenAIError(400, "string_above_max_length"), "input_too_large"),
        (OpenAIError(400, "content_filter"), "content_refused"),
        (OpenAIError(403, "content_policy_violation"), "content_refused"),
        (OpenAIError(400, "data_inspection_failed"), "content_refused"),
        (named("ContentFilterFinishReasonError"), "content_refused"),
        (OpenAIError(400, "model_not_found"), "model_unknown"),
        (OpenAIError(403, "model_not_found"), "provider_key_refused"),
        (AnthropicError(400, "context_length_exceeded"), "input_too_large"),
        (AnthropicError(400, "invalid_request_error"), "bad_provider_request"),
        (AnthropicError(529, "overloaded_error"), "provider_busy"),
        (GoogleError(SECRET), "rate_limited"),
    ],
)
def test_an_error_code_of_the_provider_makes_the_category_more_exact(error: Exception, code: str) -> None:
    assert understood(error).code == code


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("insufficient_quota", "quota_exhausted"),
        ("context_length_exceeded", "input_too_large"),
        ("content_filter", "content_refused"),
        ("model_not_found", "model_unknown"),
    ],
)
def test_an_error_code_in_the_middle_of_a_stream_needs_no_status(word: str, code: str) -> None:
    error = named("APIError")
    error.body = {"code": word, "message": SECRET}  # type: ignore[attr-defined]
    known = understood(error)
    assert (known.code, known.params.get("status")) == (code, None)


@pytest.mark.parametrize(
    ("error", "code", "meaning"),
    [
        (TimeoutError(SECRET), "provider_timeout", Transient),
        (named("ReadTimeout"), "provider_timeout", Transient),
        (named("APITimeoutError", type(named("APIConnectionError"))), "provider_timeout", Transient),
        (named("ConnectTimeout", ConnectionError), "provider_timeout", Transient),
        (ConnectionError(SECRET), "provider_down", Outage),
        (ConnectionRefusedError(111, SECRET), "provider_down", Outage),
        (ConnectionResetError(104, SECRET), "provider_down", Outage),
        (socket.gaierror(-2, SECRET), "provider_down", Outage),
        (named("APIConnectionError"), "provider_down", Outage),
        (named("ConnectError"), "provider_down", Outage),
        (named("ReadError", type(named("NetworkError"))), "provider_down", Outage),
        (named("ClientConnectorError", type(named("ClientConnectionError"))), "provider_down", Outage),
        (named("NameResolutionError", type(named("NewConnectionError"))), "provider_down", Outage),
        (named("ConnectionError", OSError), "provider_down", Outage),
    ],
)
def test_a_network_error_is_recognised_by_its_class(error: Exception, code: str, meaning: type[WorkError]) -> None:
    known = understood(error)
    assert (known.code, type(known)) == (code, meaning)


def test_an_http_error_of_the_standard_library_is_categorised() -> None:
    headers = email.message.Message()
    headers["Retry-After"] = "7"
    url = "https://provider.example"
    with urllib.error.HTTPError(url, HTTPStatus.TOO_MANY_REQUESTS, SECRET, headers, None) as error:
        assert understood(error).code == "rate_limited"
        assert understood(error).params["status"] == "429"
        assert wait(error) == timedelta(seconds=7)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("429"),
        KeyError("status_code"),
        RuntimeError("insufficient_quota"),
        AttributeError("response"),
        OSError(28, "No space left on device"),
        FileNotFoundError(2, "missing"),
        AssertionError(),
        RequestsError(200),
        RequestsError(302),
        RequestsError(418),
        OpenAIError(418, "insufficient_quota"),
        named("APIError"),
    ],
)
def test_an_error_that_is_not_of_a_provider_has_no_category(error: Exception) -> None:
    assert categorise(error) is None


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("Error 111 connecting to cache:6379"),
        redis.TimeoutError("Timeout reading from cache:6379"),
        sqlalchemy.exc.TimeoutError("QueuePool limit reached"),
        subprocess.TimeoutExpired("pdftotext", 30),
        StoreUnavailable("The database cannot be reached."),
        StaleLease("complete", []),
    ],
)
def test_errors_of_our_database_broker_and_programs_are_never_errors_of_a_provider(
    error: Exception,
) -> None:
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert categorise(error) is None
    mine = type("Mine", (type(error),), {"__module__": "pipeline", "__init__": Exception.__init__})()
    assert categorise(mine) is None


@pytest.mark.parametrize("error", [SystemExit(404), KeyboardInterrupt(), StopWork("lease_lost", refund=False)])
def test_an_exception_that_ends_the_process_is_no_error_of_a_provider(error: BaseException) -> None:
    error.__cause__ = OpenAIError(404)
    assert categorise(error) is None


@pytest.mark.parametrize(
    "error", [Transient("mine", retry_after=timedelta(seconds=3)), Outage("mine"), Permanent("mine"), WorkError("mine")]
)
def test_a_work_error_keeps_its_category(error: WorkError) -> None:
    assert categorise(error) is error
    assert categorise(wrapped(error, 1)) is error


@pytest.mark.parametrize("levels", [1, 2])
def test_a_wrapped_error_is_found_by_its_cause(levels: int) -> None:
    assert understood(wrapped(OpenAIError(401), levels)).code == "provider_key_refused"


def test_the_search_for_a_cause_is_limited_to_two_levels() -> None:
    assert categorise(wrapped(OpenAIError(401), 3)) is None
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    assert categorise(first) is None


def test_the_outer_error_wins_over_its_cause() -> None:
    error = OpenAIError(503)
    error.__cause__ = TimeoutError()
    assert understood(error).code == "provider_down"


def test_the_context_of_an_error_is_not_its_cause() -> None:
    error = ValueError("a bug in the handler of an error")
    error.__context__ = OpenAIError(401)
    assert categorise(error) is None


@pytest.mark.parametrize("shape", [OpenAIError, RequestsError, AiohttpError])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "20"}, 20),
        ({"retry_after": "1.5"}, 1.5),
        ({"RETRY_AFTER": "0"}, 0),
        ({"retry_after_ms": "250"}, 0.25),
        ({"retry_after_ms": "250", "retry_after": "20"}, 0.25),
        ({"retry_after_ms": "soon", "retry_after": "20"}, 20),
        ({"retry_after_ms": "-1", "retry_after": "20"}, 20),
        ({"retry_after": "3600"}, 3600),
        ({"retry_after": "3601"}, 3600),
        ({"retry_after": "9" * 400}, 3600),
        ({"retry_after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 3600),
    ],
)
def test_the_pause_that_the_provider_asks_for_is_kept_up_to_an_hour(
    shape: type[Exception], headers: dict[str, str], seconds: float
) -> None:
    status: Any = 429
    assert wait(shape(status, **headers)) == timedelta(seconds=seconds)


def test_the_pause_may_be_given_as_a_date() -> None:
    then = datetime.now(UTC) + timedelta(minutes=30)
    pause = wait(OpenAIError(503, retry_after=format_datetime(then, usegmt=True)))
    assert pause is not None
    assert timedelta(minutes=20) < pause <= timedelta(minutes=30)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-1",
        "-0.5",
        "nan",
        "-inf",
        "Fri, 31 Dec 1999 23:59:59 GMT",
        "31 Dec 9999",
        "1; 2",
        "Fri, 99 Foo",
        "Fri, 31 Dec 99999999999999999999 23:59:59 GMT",
    ],
)
def test_an_invalid_or_past_pause_is_ignored(text: str) -> None:
    assert wait(OpenAIError(429, retry_after=text)) is None


@given(st.text() | st.dates(max_value=datetime(9999, 12, 30, tzinfo=UTC).date()).map("{:%a, %d %b %Y 10:00:00}".format))
def test_a_pause_is_never_negative_or_longer_than_an_hour_and_parsing_never_raises(text: str) -> None:
    pause = wait(OpenAIError(429, retry_after=text))
    assert pause is None or timedelta() <= pause <= timedelta(hours=1)


def test_only_the_status_the_error_codes_and_the_request_id_are_kept() -> None:
    known = understood(OpenAIError(429, "rate_limit_exceeded", "tokens"))
    assert known.params == {
        "status": "429",
        "provider_code": "rate_limit_exceeded",
        "provider_type": "tokens",
        "request_id": "req_0123abc",
    }
    assert str(known) == (
        "The provider accepts no more requests for the moment. If this lasts, run fewer workers, or ask the provider "
        "for a higher limit."
    )


def test_error_codes_are_found_without_a_body() -> None:
    error = OpenAIError(429, "Insufficient_Quota", "Insufficient_Quota")
    error.body = None
    assert understood(error).code == "quota_exhausted"
    assert understood(error).params["provider_code"] == "Insufficient_Quota"
    assert understood(error).params["provider_type"] == "Insufficient_Quota"


def test_the_id_of_the_request_is_found_in_the_headers() -> None:
    assert understood(RequestsError(500, X_Request_ID="b7:1-f.2_e")).params["request_id"] == "b7:1-f.2_e"


def test_a_number_may_be_the_code_of_the_provider() -> None:
    assert understood(OpenAIError(429, "1113")).params["provider_code"] == "1113"


@pytest.mark.parametrize("hidden", [SECRET, "sk-proj-4f9a1Zx0", "a" * 65, "rate_limit\n", "", 7, None, [SECRET]])
@pytest.mark.parametrize("place", ["code", "type"])
def test_a_value_that_does_not_look_like_an_error_code_is_not_kept(place: str, hidden: object) -> None:
    error = OpenAIError(429)
    setattr(error, place, hidden)
    error.body = {"message": SECRET, place: hidden}
    assert set(understood(error).params) == {"status", "request_id"}


@pytest.mark.parametrize("hidden", [SECRET, "a" * 129, "req\n", ""])
def test_a_value_that_does_not_look_like_a_request_id_is_not_kept(hidden: str) -> None:
    error = OpenAIError(429, x_request_id=hidden)
    error.request_id = hidden
    assert "request_id" not in understood(error).params


def test_the_message_of_the_provider_is_not_kept() -> None:
    errors = [
        OpenAIError(400),
        AnthropicError(401, SECRET),
        RequestsError(500),
        AiohttpError(403),
        TimeoutError(SECRET),
    ]
    for error in errors:
        known = understood(error)
        assert SECRET not in f"{known} {known!r} {known.args} {vars(known)}"


class Thorny(Exception):
    """An error whose attributes all raise."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


@pytest.mark.parametrize("headers", [None, 7, [("Retry-After", "5")], SimpleNamespace(items=lambda: 7)])
def test_an_error_with_unexpected_attributes_is_read_as_far_as_possible(headers: object) -> None:
    assert categorise(Thorny()) is None
    error = OpenAIError(429)
    error.body = Thorny()
    error.response.headers = headers
    assert wait(error) is None


@pytest.mark.parametrize(("param", "kept"), [("max_tokens", "max_tokens"), (SECRET, None), ("input[0]", None)])
def test_the_name_of_the_parameter_at_fault_is_kept(param: str, kept: str | None) -> None:
    error = OpenAIError(400)
    error.body = {"message": SECRET, "param": param}
    assert understood(error).params.get("provider_param") == kept


def test_an_unknown_error_of_a_provider_is_transient() -> None:
    known = to_work_error(OpenAIError(418))
    assert (known.code, type(known), known.params["status"]) == ("provider_error", Transient, "418")
    assert SECRET not in f"{known} {vars(known)}"
    assert to_work_error(OpenAIError(401)).code == "provider_key_refused"


def test_errors_about_an_answer_have_a_readable_message() -> None:
    known = [bad_answer("vector_count"), to_work_error(OpenAIError(418))]
    assert [(one.code, type(one)) for one in known] == [("bad_answer", Transient), ("provider_error", Transient)]
    assert known[0].params == {"why": "vector_count"}
    assert "it does not contain one vector for each text" in str(known[0])
    assert bad_answer("answer_form", "it is a list").params == {"why": "answer_form", "detail": "it is a list"}
    assert all(str(one).endswith(".") and ". " in str(one) for one in known)


def test_every_rule_has_a_message_with_a_cause_and_a_next_step() -> None:
    for rule in RULES:
        message = str(rule.error_type(rule.code))
        assert len(message.split(". ")) >= 2, rule.code
        assert message.endswith("."), rule.code
        assert "…" not in message, rule.code  # none needs a parameter that an error may lack
