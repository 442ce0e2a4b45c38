"""Classifies errors of paid providers: wait, retry, or fail.

All errors are classified here, those of our own calls and those of guarded tasks. Tasks call providers through many
libraries, so an error is recognised by its shape: status, code and type from the provider, names of its classes. No
library is imported. The first matching row of the table `RULES` decides.

The message of a provider may repeat a key or a document. Rules may match it, but only status, code, type, the name of
the parameter at fault and the request id are kept; users see the text of our own code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from holdfast.errors import Outage, Permanent, Transient, WorkError
from holdfast.llm.error_facts import QUOTA_OF_A_DAY, read_error, read_response

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.llm.error_facts import ErrorFacts

DEPTH = 2  # how many causes of the error are examined

# Databases, brokers and Holdfast: their connection errors and timeouts are not those of a provider.
UNRELATED_PACKAGES = frozenset(
    {"amqp", "asyncpg", "billiard", "celery", "holdfast", "kombu", "psycopg", "psycopg2", "psycopg_pool", "pymysql"}
    | {"redis", "sqlalchemy", "subprocess", "valkey"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    """A row of the table.

    It matches a status, with one of `words` or with `phrase` in the message if the rule has them, or the name of a
    class.
    """

    code: str
    error_type: type[Transient | Permanent]
    statuses: frozenset[int | None] = frozenset()  # None: an error inside a stream has no status
    words: frozenset[str] = frozenset()
    phrase: re.Pattern[str] | None = None
    names: tuple[str, ...] = ()

    def matches(self, facts: ErrorFacts) -> bool:
        if facts.status in self.statuses and self._is_explained(facts):
            return True
        return any(fnmatchcase(name, pattern) for name in facts.names for pattern in self.names)

    def _is_explained(self, facts: ErrorFacts) -> bool:
        if not self.words and self.phrase is None:
            return True
        found = self.phrase is not None and self.phrase.search(facts.message) is not None
        return found or bool(self.words & facts.words)


MODEL_STARTS = frozenset({"modelnotreadyexception"})  # Bedrock
TOO_LONG = re.compile(
    "prompt is too long|maximum context length|context (length|window)|input token count .{1,40}exceeds"
    "|input is too long|too many input tokens",
    re.IGNORECASE,
)
RULES = (
    FailureRule(
        code="quota_exhausted",
        error_type=Permanent,
        statuses=frozenset({400, 403, 429, None}),
        words=frozenset({"insufficient_quota", "billing_error", "servicequotaexceededexception", QUOTA_OF_A_DAY}),
        phrase=re.compile("credit balance is too low", re.IGNORECASE),  # Anthropic, with a general type
    ),
    FailureRule(code="quota_exhausted", error_type=Permanent, statuses=frozenset({402})),
    FailureRule(code="provider_busy", error_type=Transient, statuses=frozenset({429}), words=MODEL_STARTS),
    FailureRule(code="rate_limited", error_type=Transient, statuses=frozenset({429})),
    FailureRule(
        code="rate_limited",
        error_type=Transient,
        statuses=frozenset({400, None}),
        words=frozenset({"rate_limit_error", "rate_limit_exceeded", "throttlingexception"}),
    ),
    FailureRule(
        code="content_refused",
        error_type=Permanent,
        statuses=frozenset({400, 403, None}),
        words=frozenset({"content_filter", "content_policy_violation", "data_inspection_failed"}),
        names=("ContentFilterFinishReasonError",),
    ),
    FailureRule(
        code="provider_key_refused",
        error_type=Permanent,
        statuses=frozenset({400}),
        words=frozenset({"api_key_invalid", "unrecognizedclientexception", "expiredtokenexception"}),
        names=("NoCredentialsError", "PartialCredentialsError"),
    ),
    FailureRule(code="provider_key_refused", error_type=Permanent, statuses=frozenset({401, 403})),
    FailureRule(
        code="input_too_large",
        error_type=Permanent,
        statuses=frozenset({400, 422, None}),
        words=frozenset({"context_length_exceeded", "string_above_max_length", "request_too_large"}),
        phrase=TOO_LONG,
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
    FailureRule(
        code="provider_busy",
        error_type=Transient,
        statuses=frozenset({None}),
        words=frozenset({"overloaded_error", "api_error", "internalserverexception", "modelstreamerrorexception"}),
    ),
    FailureRule(
        code="provider_busy",
        error_type=Transient,
        statuses=frozenset({408, 409, 424, 425, *range(500, 600)}),
        # HTTPX, requests, aiohttp and Python: the provider ended the connection within an answer
        names=("RemoteProtocolError", "ChunkedEncodingError", "ClientPayloadError", "IncompleteRead"),
    ),
    FailureRule(code="provider_timeout", error_type=Transient, names=("*Timeout*",)),
    FailureRule(
        code="provider_down",
        error_type=Outage,
        # Python, requests and botocore; OpenAI and Anthropic; two of HTTPX; aiohttp; urllib3; name resolution
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


def classify_response(status: int, body: str | bytes | Mapping[str, Any] = "", headers: Any = None) -> WorkError:
    """Classify an answer of a provider by status, body and headers, for libraries whose errors lack the body.

    Example:
        if response.status != 200:  # aiohttp
            raise classify_response(response.status, await response.text(), response.headers)
    """
    facts = read_response(status, body, headers)
    for rule in RULES:
        if rule.matches(facts):
            return _build_error(rule, facts)
    return Transient("provider_error", params=facts.params)


def to_work_error(error: Exception) -> WorkError:
    """Classify an error that is known to come from a provider; unknown errors are `Transient`."""
    return categorise(error) or Transient("provider_error", params=read_error(error).params)


def categorise(error: BaseException) -> WorkError | None:
    """Classify an error; None if it is not an error of a provider.

    Example: `categorise(openai.RateLimitError(...)).code == "rate_limited"`
    """
    for cause in _chain(error):
        if isinstance(cause, WorkError):
            return cause
        if not isinstance(cause, Exception) or _is_unrelated(cause):
            return None
        facts = read_error(cause)
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
