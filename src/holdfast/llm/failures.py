"""What an error of a paid provider means for the work: wait, try again, or call a person.

Errors are sorted here and nowhere else, those of our own calls and those of guarded tasks alike. Tasks speak to
providers through many libraries, so an error is read by its shape: its status, the code and type that the provider
gave, the names of its classes. No library is imported. The table below is read from the top and its
first match wins.

The provider's own words may repeat a key or a document. Nothing of them is kept but status, code, type, the name
of the parameter at fault and the id of the request; what people read stands in the table.
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
DEPTH = 2  # how many causes are looked at below the error itself
# Words joined by signs, or a short number: so codes look, and keys do not.
CODE = re.compile(r"(?=.{1,64}\Z)[A-Za-z]+(?:[_.-][A-Za-z]+)*|[0-9]{1,6}")
REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

# Databases, brokers and ourselves: their connections and time limits say nothing about a provider.
UNRELATED_PACKAGES = frozenset(
    {"amqp", "asyncpg", "billiard", "celery", "holdfast", "kombu", "psycopg", "psycopg2", "psycopg_pool", "pymysql"}
    | {"redis", "sqlalchemy", "subprocess", "valkey"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    """A row of the table: a status, with one of these words if any are named, or a class of one of these names."""

    code: str
    error_type: type[Transient | Permanent]
    message: str
    statuses: frozenset[int | None] = frozenset()  # None: the provider said it in a stream, where no status is
    words: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()

    def matches(self, answer: ErrorFacts) -> bool:
        """Tell whether this row speaks of such an answer."""
        if answer.status in self.statuses and (not self.words or self.words & answer.words):
            return True
        return any(fnmatchcase(name, wanted) for name in answer.names for wanted in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFacts:
    """What can be read from an error, whichever library raised it."""

    status: int | None
    code: str | None
    type: str | None
    param: str | None
    names: tuple[str, ...]
    request_id: str | None
    retry_after: timedelta | None

    @property
    def words(self) -> frozenset[str]:
        """The words by which the provider names what happened."""
        return frozenset(word.lower() for word in (self.code, self.type) if word is not None)

    @property
    def params(self) -> dict[str, str]:
        """What is kept."""
        known = {
            "status": self.status,
            "provider_code": self.code,
            "provider_type": self.type,
            "provider_param": self.param,
            "request_id": self.request_id,
        }
        return {name: str(value) for name, value in known.items() if value is not None}


AGAIN = "then try again"

TOO_LARGE = "The input is larger than the model accepts. Split it into smaller parts or choose a model with more room."
NO_CREDIT = f"The account at the provider has no credit left. Top it up or raise its budget, {AGAIN}."
CONTENT_REFUSED = (
    "The provider refuses this content by its policy. Change the content, or choose a provider that accepts it."
)
NO_MODEL = (
    "The provider does not know this model or address. Check the name of the model and the address of the provider, "
    f"{AGAIN}."
)
DOWN = "The provider cannot be reached or is down. If this lasts, check its address and its status page."

RULES = (
    FailureRule(
        code="quota_exhausted",
        error_type=Permanent,
        statuses=frozenset({429, None}),
        words=frozenset({"insufficient_quota"}),
        message=NO_CREDIT,
    ),
    FailureRule(code="quota_exhausted", error_type=Permanent, statuses=frozenset({402}), message=NO_CREDIT),
    FailureRule(
        code="rate_limited",
        error_type=Transient,
        statuses=frozenset({429}),
        message="The provider takes no more requests for the moment. If this lasts, run fewer workers or ask the "
        "provider for a higher limit.",
    ),
    FailureRule(
        code="content_refused",
        error_type=Permanent,
        statuses=frozenset({400, 403, None}),
        words=frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"}),
        names=("ContentFilterFinishReasonError",),
        message=CONTENT_REFUSED,
    ),
    FailureRule(
        code="provider_key_refused",
        error_type=Permanent,
        statuses=frozenset({401, 403}),
        message=f"The provider refuses the key. Check that it is set, valid and allowed to use this model, {AGAIN}.",
    ),
    FailureRule(
        code="input_too_large",
        error_type=Permanent,
        statuses=frozenset({400, None}),
        words=frozenset({"context_length_exceeded", "string_above_max_length"}),
        message=TOO_LARGE,
    ),
    FailureRule(code="input_too_large", error_type=Permanent, statuses=frozenset({413}), message=TOO_LARGE),
    FailureRule(
        code="model_unknown",
        error_type=Permanent,
        statuses=frozenset({400, None}),
        words=frozenset({"model_not_found"}),
        message=NO_MODEL,
    ),
    FailureRule(code="model_unknown", error_type=Permanent, statuses=frozenset({404}), message=NO_MODEL),
    FailureRule(
        code="bad_provider_request",
        error_type=Permanent,
        statuses=frozenset({400, 422}),
        message="The provider cannot make sense of the request. Check the parameters that are sent; the provider "
        "finds more under the id of the request.",
    ),
    FailureRule(code="provider_down", error_type=Outage, statuses=frozenset({503}), message=DOWN),
    FailureRule(
        code="provider_busy",
        error_type=Transient,
        statuses=frozenset({408, 409, 425, *range(500, 600)}),
        message="The provider failed on its side or is overloaded. If this lasts, check its status page.",
    ),
    FailureRule(
        code="provider_timeout",
        error_type=Transient,
        names=("*Timeout*",),
        message="The provider did not answer in time. If this lasts, send smaller parts or allow more time.",
    ),
    FailureRule(
        code="provider_down",
        error_type=Outage,
        # Python and requests; OpenAI and Anthropic; HTTPX, two; aiohttp; urllib3; the search for a name
        names=(
            "ConnectionError",
            "APIConnectionError",
            "NetworkError",
            "ConnectError",
            "ClientConnectionError",
            "NewConnectionError",
            "gaierror",
        ),
        message=DOWN,
    ),
)


BUDGET_SPENT = "budget_spent"  # the code of a request that was not sent because of the budget of its base

# Codes that may speak of one text among many; any other failure is everybody's.
SINGLE_TEXT_CODES = frozenset({"bad_provider_request", "content_refused", "input_too_large"})


# Codes that may mean that the provider is down for everybody, whatever it was asked.
OUTAGE_CODES = frozenset({"provider_busy", "provider_down", "provider_timeout", "rate_limited"})


def bad_answer(what: str) -> Transient:
    """Say that the provider answered and the answer cannot be used; `what` holds nothing of the answer."""
    return Transient(
        "bad_answer",
        "The provider gave an answer that cannot be used. If this lasts, check that the model and its address fit "
        "together.",
        params={"what": what},
    )


def content_refused() -> Permanent:
    """Say what a provider says that answers without an error: it will not speak about this content."""
    return Permanent("content_refused", CONTENT_REFUSED)


def to_work_error(error: Exception) -> WorkError:
    """Say what an error means that is known to come from a provider, even if it is of no known kind."""
    return categorise(error) or Transient(
        "provider_error",
        "The provider failed in a way that is not known here. If this lasts, the provider finds more under the id of "
        "the request.",
        params=_read(error).params,
    )


def categorise(error: BaseException) -> WorkError | None:
    """Say what a provider's error means for the work; None if this is not a provider's error."""
    for one in _chain(error):
        if isinstance(one, WorkError):
            return one
        if not isinstance(one, Exception) or _is_unrelated(one):
            return None
        answer = _read(one)
        for rule in RULES:
            if rule.matches(answer):
                return _build_error(rule, answer)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Return the error and what it was raised from: people wrap the errors of libraries in their own."""
    one: BaseException | None = error
    for _ in range(1 + DEPTH):
        if one is None:
            return
        yield one
        one = one.__cause__


def _is_unrelated(error: Exception) -> bool:
    return any(kind.__module__.partition(".")[0] in UNRELATED_PACKAGES for kind in type(error).__mro__)


def _build_error(rule: FailureRule, answer: ErrorFacts) -> WorkError:
    if issubclass(rule.error_type, Transient):
        return rule.error_type(rule.code, rule.message, params=answer.params, retry_after=answer.retry_after)
    return rule.error_type(rule.code, rule.message, params=answer.params)


def _read(error: Exception) -> ErrorFacts:
    response = _attribute(error, "response")
    headers = _headers(response) or _headers(error)
    body = _attribute(error, "body")
    said = _entry(body, "error") or body  # the error itself, or the envelope around it
    return ErrorFacts(
        status=_status(error, response),
        code=_text(CODE, _attribute(error, "code"), _entry(said, "code")),
        type=_text(CODE, _attribute(error, "type"), _entry(said, "type")),
        param=_text(CODE, _attribute(error, "param"), _entry(said, "param")),
        names=tuple(kind.__name__ for kind in type(error).__mro__),
        request_id=_text(REQUEST_ID, _attribute(error, "request_id"), headers.get("x-request-id")),
        retry_after=_retry_after(headers),
    )


def _attribute(thing: object, name: str) -> Any:
    """Return an attribute; other people's properties may raise."""
    with suppress(Exception):
        return getattr(thing, name, None)
    return None


def _entry(thing: object, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else None


def _status(error: Exception, response: object) -> int | None:
    # The code comes last: with some libraries it is the status, with others the provider's word.
    for thing, name in ((error, "status_code"), (error, "status"), (response, "status_code"), (error, "code")):
        value = _attribute(thing, name)
        if isinstance(value, int):
            return int(value)
    return None


def _text(shape: re.Pattern[str], *candidates: object) -> str | None:
    """Return the first text of this shape; another shape may hide anything."""
    return next((one for one in candidates if isinstance(one, str) and shape.fullmatch(one)), None)


def _headers(thing: object) -> dict[str, str]:
    """Return headers under small letters; not every library's mapping ignores the case."""
    headers = _attribute(thing, "headers")
    with suppress(Exception):
        return {str(name).lower(): str(value) for name, value in headers.items()}
    return {}


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return how long the provider wants us to wait, at most an hour; None if it does not say so readably."""
    for name, seconds_each in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _seconds(headers.get(name, ""), seconds_each)
        if seconds is not None and seconds >= 0:
            return timedelta(seconds=min(seconds, MAX_RETRY_AFTER.total_seconds()))
    return None


def _seconds(text: str, each: float) -> float | None:
    with suppress(ValueError):
        return float(text) * each
    with suppress(ValueError, TypeError, OverflowError):  # not a date, one of no time zone, one beyond all calendars
        return (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    return None
