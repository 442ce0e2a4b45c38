"""Classifies errors of paid providers: wait, retry, or fail.

All errors are classified here, those of our own calls and those of guarded tasks. Tasks call providers through many
libraries, so an error is recognised by its shape: status, code and type from the provider, names of its classes. No
library is imported. The first matching row of the table `RULES` decides.

The message of a provider may repeat a key or a document. Only status, code, type, the name of the parameter at fault
and the request id are kept; users see the text of our own code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from holdfast.errors import Outage, Permanent, Transient, WorkError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_RETRY_AFTER = timedelta(hours=1)
DEPTH = 2  # how many causes of the error are examined
# Words joined by punctuation, or a short number. Keys do not match.
CODE = re.compile(r"(?=.{1,64}\Z)[A-Za-z]+(?:[_.-][A-Za-z]+)*|[0-9]{1,6}")
REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

# Databases, brokers and Holdfast: their connection errors and timeouts are not those of a provider.
UNRELATED_PACKAGES = frozenset(
    {"amqp", "asyncpg", "billiard", "celery", "holdfast", "kombu", "psycopg", "psycopg2", "psycopg_pool", "pymysql"}
    | {"redis", "sqlalchemy", "subprocess", "valkey"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    """A row of the table. It matches a status, with one of `words` if there are any, or the name of a class."""

    code: str
    error_type: type[Transient | Permanent]
    statuses: frozenset[int | None] = frozenset()  # None: an error inside a stream has no status
    words: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()

    def matches(self, facts: ErrorFacts) -> bool:
        if facts.status in self.statuses and (not self.words or self.words & facts.words):
            return True
        return any(fnmatchcase(name, pattern) for name in facts.names for pattern in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFacts:
    status: int | None
    code: str | None
    type: str | None
    param: str | None
    names: tuple[str, ...]
    request_id: str | None
    retry_after: timedelta | None

    @property
    def words(self) -> frozenset[str]:
        return frozenset(word.lower() for word in (self.code, self.type) if word is not None)

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


RULES = (
    FailureRule(
        code="quota_exhausted",
        error_type=Permanent,
        statuses=frozenset({429, None}),
        words=frozenset({"insufficient_quota"}),
    ),
    FailureRule(code="quota_exhausted", error_type=Permanent, statuses=frozenset({402})),
    FailureRule(code="rate_limited", error_type=Transient, statuses=frozenset({429})),
    FailureRule(
        code="content_refused",
        error_type=Permanent,
        statuses=frozenset({400, 403, None}),
        words=frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"}),
        names=("ContentFilterFinishReasonError",),
    ),
    FailureRule(code="provider_key_refused", error_type=Permanent, statuses=frozenset({401, 403})),
    FailureRule(
        code="input_too_large",
        error_type=Permanent,
        statuses=frozenset({400, None}),
        words=frozenset({"context_length_exceeded", "string_above_max_length"}),
    ),
    FailureRule(code="input_too_large", error_type=Permanent, statuses=frozenset({413})),
    FailureRule(
        code="model_unknown",
        error_type=Permanent,
        statuses=frozenset({400, None}),
        words=frozenset({"model_not_found"}),
    ),
    FailureRule(code="model_unknown", error_type=Permanent, statuses=frozenset({404})),
    FailureRule(code="bad_provider_request", error_type=Permanent, statuses=frozenset({400, 422})),
    FailureRule(code="provider_down", error_type=Outage, statuses=frozenset({503})),
    FailureRule(code="provider_busy", error_type=Transient, statuses=frozenset({408, 409, 425, *range(500, 600)})),
    FailureRule(code="provider_timeout", error_type=Transient, names=("*Timeout*",)),
    FailureRule(
        code="provider_down",
        error_type=Outage,
        # Python and requests; OpenAI and Anthropic; two of HTTPX; aiohttp; urllib3; name resolution
        names=(
            "ConnectionError",
            "APIConnectionError",
            "NetworkError",
            "ConnectError",
            "ClientConnectionError",
            "NewConnectionError",
            "gaierror",
        ),
    ),
)


BUDGET_SPENT = "budget_spent"  # error code: not sent because of the budget of the base

# Codes that may concern one text of a batch; all others concern the whole request.
SINGLE_TEXT_CODES = frozenset({"bad_provider_request", "content_refused", "input_too_large"})

# Codes that may mean that the provider is down.
OUTAGE_CODES = frozenset({"provider_busy", "provider_down", "provider_timeout", "rate_limited"})


def bad_answer(why: str, detail: str = "") -> Transient:
    """Return the error for an unusable answer.

    `why` is the code of a text `why.*` of the catalogue. `detail` is kept for programs; it must not quote the answer.
    """
    return Transient("bad_answer", params={"why": why, "detail": detail} if detail else {"why": why})


def to_work_error(error: Exception) -> WorkError:
    """Classify an error that is known to come from a provider; unknown errors are `Transient`."""
    return categorise(error) or Transient("provider_error", params=_read(error).params)


def categorise(error: BaseException) -> WorkError | None:
    """Classify an error; None if it is not an error of a provider.

    Example: `categorise(openai.RateLimitError(...)).code == "rate_limited"`
    """
    for cause in _chain(error):
        if isinstance(cause, WorkError):
            return cause
        if not isinstance(cause, Exception) or _is_unrelated(cause):
            return None
        facts = _read(cause)
        for rule in RULES:
            if rule.matches(facts):
                return _build_error(rule, facts)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, since tasks wrap the errors of libraries in their own."""
    cause: BaseException | None = error
    for _ in range(1 + DEPTH):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def _is_unrelated(error: Exception) -> bool:
    return any(kind.__module__.partition(".")[0] in UNRELATED_PACKAGES for kind in type(error).__mro__)


def _build_error(rule: FailureRule, facts: ErrorFacts) -> WorkError:
    if issubclass(rule.error_type, Transient):
        return rule.error_type(rule.code, params=facts.params, retry_after=facts.retry_after)
    return rule.error_type(rule.code, params=facts.params)


def _read(error: Exception) -> ErrorFacts:
    response = _attribute(error, "response")
    headers = _headers(response) or _headers(error)
    body = _attribute(error, "body")
    details = _entry(body, "error") or body  # some libraries keep the envelope
    return ErrorFacts(
        status=_status(error, response),
        code=_text(CODE, _attribute(error, "code"), _entry(details, "code")),
        type=_text(CODE, _attribute(error, "type"), _entry(details, "type")),
        param=_text(CODE, _attribute(error, "param"), _entry(details, "param")),
        names=tuple(kind.__name__ for kind in type(error).__mro__),
        request_id=_text(REQUEST_ID, _attribute(error, "request_id"), headers.get("x-request-id")),
        retry_after=_retry_after(headers),
    )


def _attribute(thing: object, name: str) -> Any:
    """Return an attribute, or None; properties of foreign classes may raise."""
    with suppress(Exception):
        return getattr(thing, name, None)
    return None


def _entry(thing: object, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else None


def _status(error: Exception, response: object) -> int | None:
    # `code` comes last: in some libraries it is the status, in others the code of the provider.
    for thing, name in ((error, "status_code"), (error, "status"), (response, "status_code"), (error, "code")):
        value = _attribute(thing, name)
        if isinstance(value, int):
            return int(value)
    return None


def _text(shape: re.Pattern[str], *candidates: object) -> str | None:
    """Return the first candidate of this shape; other strings may contain secrets."""
    return next((text for text in candidates if isinstance(text, str) and shape.fullmatch(text)), None)


def _headers(thing: object) -> dict[str, str]:
    """Return headers by lower-case name, since not every library ignores the case."""
    headers = _attribute(thing, "headers")
    with suppress(Exception):
        return {str(name).lower(): str(value) for name, value in headers.items()}
    return {}


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
