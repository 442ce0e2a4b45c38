"""Reads the facts about a failed call from the errors of any provider library, and from answers.

Libraries keep them in different places: openai and anthropic in attributes, google-genai in `details`, HTTPX and
requests in the response, botocore in a dictionary. A property of a foreign class may raise, which means no fact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

MAX_RETRY_AFTER = timedelta(hours=1)
FIRST_ERROR_STATUS = 400
# Words joined by punctuation, or a short number. Keys do not match.
CODE = re.compile(r"(?=.{1,64}\Z)[A-Za-z]+(?:[_.-][A-Za-z]+)*|[0-9]{1,6}")
REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
MAX_BODY = 100_000  # characters of an answer that are parsed
MAX_MESSAGE = 2_000  # characters of a message that rules search
QUOTA_OF_A_DAY = "quota_of_a_day"  # our word for a quota of Google that waiting does not restore before the next day
# Operations of Amazon Bedrock. An error of another service of Amazon, such as a missing object, is not of a provider.
BEDROCK_OPERATIONS = frozenset(
    {"ApplyGuardrail", "Converse", "ConverseStream", "CountTokens", "InvokeModel", "InvokeModelWithResponseStream"}
    | {"InvokeModelWithBidirectionalStream", "StartAsyncInvoke", "Retrieve", "RetrieveAndGenerate", "InvokeAgent"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFacts:
    status: int | None
    code: str | None
    type: str | None
    param: str | None
    names: tuple[str, ...]
    request_id: str | None
    retry_after: timedelta | None
    reasons: frozenset[str] = frozenset()  # further words of the provider, in lower case
    message: str = ""  # for rules only; may contain secrets, so it is never kept

    @property
    def words(self) -> frozenset[str]:
        return self.reasons | {word.lower() for word in (self.code, self.type) if word is not None}

    @property
    def params(self) -> dict[str, str]:
        """The facts that are stored with the error."""
        facts = {
            "status": self.status,
            "provider_code": self.code,
            "provider_type": self.type,
            "provider_param": self.param,
            "request_id": self.request_id,
        }
        return {name: str(value) for name, value in facts.items() if value is not None}


def read_error(error: Exception) -> ErrorFacts:
    """Read the facts from an error of a library."""
    response = _attribute(error, "response")
    if isinstance(response, Mapping):
        return _read_botocore(error, response)
    headers = _headers(response) or _headers(error)
    body = _attribute(error, "body") or _google_body(error) or _parse_body(response)
    return _make_facts(error, _status(error, response), body, headers)


def read_response(status: int, body: str | bytes | Mapping[str, Any], headers: object) -> ErrorFacts:
    """Read the facts from an answer."""
    parsed = body if isinstance(body, Mapping) else _parse_json(body)
    items: Any = {} if headers is None else headers
    return _make_facts(None, status, parsed, _lower_names(items))


def _make_facts(error: Exception | None, status: int | None, body: object, headers: Mapping[str, str]) -> ErrorFacts:
    body = body[0] if isinstance(body, list) and body else body  # Google sends a list for streams
    details = _entry(body, "error")
    if not isinstance(details, Mapping):  # some libraries drop the envelope
        details = body
    google, after = _google_details(details), _retry_after(headers)
    return ErrorFacts(
        status=status,
        code=_text(CODE, _attribute(error, "code"), _entry(details, "code"), _entry(details, "status")),
        type=_text(CODE, _attribute(error, "type"), _entry(details, "type"), headers.get("x-amzn-errortype")),
        param=_text(CODE, _attribute(error, "param"), _entry(details, "param")),
        names=tuple(kind.__name__ for kind in type(error).__mro__) if error is not None else (),
        request_id=_text(
            REQUEST_ID, _attribute(error, "request_id"), *(headers.get(name) for name in ("x-request-id", "request-id"))
        ),
        retry_after=_google_retry(google) if after is None else after,
        reasons=_google_reasons(google),
        message=_message(details),
    )


def _read_botocore(error: Exception, response: Mapping[str, Any]) -> ErrorFacts:
    """Read a `ClientError`. Its names match no rule: for another service than Bedrock it has no facts."""
    is_bedrock = _attribute(error, "operation_name") in BEDROCK_OPERATIONS
    details = (_entry(response, "Error") or {}) if is_bedrock else {}
    metadata = (_entry(response, "ResponseMetadata") or {}) if is_bedrock else {}
    status = _entry(metadata, "HTTPStatusCode")
    return ErrorFacts(
        status=status if isinstance(status, int) and status >= FIRST_ERROR_STATUS else None,
        code=_text(CODE, _entry(details, "Code")),
        type=None,
        param=None,
        names=(),
        request_id=_text(REQUEST_ID, _entry(metadata, "RequestId")),
        retry_after=_retry_after(_lower_names(_entry(metadata, "HTTPHeaders") or {})),
        message=str(_entry(details, "Message") or "")[:MAX_MESSAGE],
    )


def _attribute(thing: object, name: str) -> Any:
    """Return an attribute, or None; properties of foreign classes may raise."""
    with suppress(Exception):
        return getattr(thing, name, None)
    return None


def _entry(thing: object, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else None


def _status(error: Exception, response: object) -> int | None:
    """Return the status, if it is one of an error: a stream begins with 200 and may end with an error."""
    # `code` comes last: in some libraries it is the status, in others the code of the provider.
    for thing, name in ((error, "status_code"), (error, "status"), (response, "status_code"), (error, "code")):
        value = _attribute(thing, name)
        if isinstance(value, int):
            return int(value) if value >= FIRST_ERROR_STATUS else None
    return None


def _text(shape: re.Pattern[str], *candidates: object) -> str | None:
    """Return the first candidate of this shape; other strings may contain secrets."""
    return next((text for text in candidates if isinstance(text, str) and shape.fullmatch(text)), None)


def _message(details: object) -> str:
    message = _entry(details, "message") or _entry(details, "error") or ""
    return message[:MAX_MESSAGE] if isinstance(message, str) else ""


def _parse_body(response: object) -> object:
    """Parse the body of a response that its library has already read; reading the rest could block."""
    if response is None or _attribute(response, "_content_consumed") is False:  # requests
        return None
    return _parse_json(_attribute(response, "content"))  # HTTPX raises if the body was not read


def _parse_json(body: object) -> object:
    if not isinstance(body, str | bytes) or not body or len(body) > MAX_BODY:
        return None
    with suppress(ValueError, RecursionError):
        return json.loads(body)
    return None


def _headers(thing: object) -> dict[str, str]:
    """Return headers by lower-case name, since not every library ignores the case."""
    return _lower_names(_attribute(thing, "headers"))


def _lower_names(headers: Any) -> dict[str, str]:
    with suppress(Exception):
        return {str(name).lower(): str(value) for name, value in headers.items()}
    return {}


def _google_body(error: Exception) -> object:
    """Return the body that `google.genai.errors.APIError` keeps."""
    details = _attribute(error, "details")
    return details if isinstance(details, Mapping | list) else None


def _google_details(details: object) -> list[Mapping[str, Any]]:
    found = _entry(details, "details")
    if not isinstance(found, Sequence) or isinstance(found, str):
        return []
    return [detail for detail in found if isinstance(detail, Mapping)]


def _google_reasons(details: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the reasons of a refusal, and our word for a quota of a day."""
    reasons = {reason.lower() for detail in details if (reason := _text(CODE, detail.get("reason")))}
    violations = (violation for detail in details for violation in detail.get("violations") or ())
    if any("PerDay" in str(_entry(violation, "quotaId")) for violation in violations):
        reasons.add(QUOTA_OF_A_DAY)
    return frozenset(reasons)


def _google_retry(details: Sequence[Mapping[str, Any]]) -> timedelta | None:
    """Return the wait of a `RetryInfo`, such as "34s"."""
    for detail in details:
        delay = detail.get("retryDelay")
        if isinstance(delay, str) and delay.endswith("s"):
            with suppress(ValueError):
                return min(timedelta(seconds=max(0.0, float(delay[:-1]))), MAX_RETRY_AFTER)
    return None


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return the wait that the provider demands, at most an hour; None if there is none or it is unreadable."""
    for name, seconds_each in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _seconds(headers.get(name, ""), seconds_each)
        if seconds is not None and seconds >= 0:
            return timedelta(seconds=min(seconds, MAX_RETRY_AFTER.total_seconds()))
    return None


def _seconds(text: str, each: float) -> float | None:
    with suppress(ValueError):
        return float(text) * each
    with suppress(ValueError, TypeError, OverflowError):  # not a date, no time zone, or out of range
        return (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    return None
