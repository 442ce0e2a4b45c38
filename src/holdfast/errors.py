"""All errors of Holdfast.

HoldfastError
├── BadSettings             the settings are invalid
│   └── MissingExtra        a required package is not installed; names the extra that installs it
├── BadRequest              the request is invalid
│   ├── BadArchive          the file is not a valid archive of a base
│   └── BadBackup           the folder is not a complete backup
├── NotFound                the named thing does not exist
│   └── UnknownOwner, UnknownSlot, UnknownJob, UnknownBase, UnknownItem, UnknownKey, UnknownWebhook, UnknownDelivery,
│       UnknownEntity
├── NameTaken               another base has this name
├── BaseFailed              the base must be repaired first
├── StateConflict           the current state does not allow the operation
│   └── Conflict            a job or a document prevents it, and is named
├── PreconditionFailed      the document has another generation than the caller expected
├── Forbidden               the API key does not permit the operation
│   └── Unauthorized        the API key is missing, unknown, revoked or expired
├── BadSecretKey            the key that encrypts webhook secrets is missing or has changed
├── BadResponse             a server did not respond with the API of Holdfast
├── StaleLease              a write by a worker that no longer holds the slot
├── StoreError
│   ├── StoreBusy           another program keeps the database locked
│   ├── StoreReadOnly       the database is not writable
│   ├── StoreFull           the disk is full
│   ├── StoreUnavailable    the database cannot be reached
│   ├── StoreClosed         the contents of the database move, or have moved, to another one
│   └── StoreTooNew         a newer version of Holdfast wrote the database
├── GuardedWorkFailed       guarded work failed
│   ├── GuardedWorkSuperseded   a newer request replaced it
│   ├── GuardedWorkCancelled    it was cancelled or revoked
│   └── GuardedRequestRejected  the request was rejected
└── WorkError               an indexer raises it
    ├── Transient           a later attempt may succeed; counted
    │   └── Outage          the provider is down for all documents; not counted
    │       └── RetryLater  the circuit breaker blocks the provider until a known time; not counted
    └── Permanent           no attempt can succeed

StopWork is not a HoldfastError: like KeyboardInterrupt it must pass through `except Exception`.
"""

from __future__ import annotations

from enum import IntEnum
from http import HTTPStatus
from typing import TYPE_CHECKING

from holdfast.messages import format_message, make_cause_params

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from holdfast.engine import Fault, Ticket

RESTORING = "being_restored"  # the problem of a base that is being restored
RETRY_AFTER_SECONDS = 2  # by then a busy database or provider may be free


class ExitCode(IntEnum):
    """How a command of the CLI ends; a script can branch on it."""

    OK = 0  # done, or there was nothing to do
    FAILED = 1  # tried, and it did not work
    USAGE = 2  # the command line is invalid
    NOT_FOUND = 3  # no such base, document, job, key or webhook
    CONFLICT = 4  # a job or a document prevents it
    PARTIAL = 5  # some of several requests failed
    TEMPORARY = 75  # busy, unreachable or out of quota: the same command may work later
    DENIED = 77  # the key is missing or does not allow this
    INTERRUPTED = 130  # Ctrl-C


class HoldfastError(Exception):
    """Base class. The message says what happened, why, and what to do next.

    `code` is the same in every interface. Where one code covers several mistakes, `subcode` tells them apart. The
    message is the text `problem.<subcode or code>` of the catalogue with `params` in its placeholders. Only a plug-in,
    or a client that repeats the words of a server, passes its own message.

    Example:
        raise BadRequest("question_too_long", longest=4_000)
    """

    code = "internal_error"
    http_status: HTTPStatus | None = None  # None: not for callers; HTTP reports an internal error
    http_retry_after: int | None = None  # seconds
    exit_code = ExitCode.FAILED

    def __init__(self, subcode: str = "", message: str = "", /, **params: object) -> None:
        self.subcode = subcode
        self.params: Mapping[str, str] = {name: _escape_surrogates(str(value)) for name, value in params.items()}
        super().__init__(
            message or format_message(f"problem.{subcode or self.code}", self.params, otherwise=subcode or self.code)
        )


def _escape_surrogates(text: str) -> str:
    """Escape lone surrogates, which file names may contain, so that every interface can encode the message."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class BadSettings(HoldfastError):
    """The settings are invalid; nothing was started."""

    code = "bad_settings"
    http_status = HTTPStatus.UNPROCESSABLE_ENTITY


class MissingExtra(BadSettings):
    """A required package is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__("missing_extra", package=package, extra=extra)
        self.package = package
        self.extra = extra


class BadRequest(HoldfastError):
    """The request is invalid; nothing was written."""

    code = "bad_request"
    http_status = HTTPStatus.UNPROCESSABLE_ENTITY
    exit_code = ExitCode.USAGE


class BadArchive(BadRequest):
    """The file is not an archive of a base, is incomplete, or has unexpected contents; nothing of it is kept."""


class BadBackup(BadRequest):
    """The folder is not a backup, is incomplete or damaged, or cannot be used; nothing was restored."""


class NotFound(HoldfastError):
    """The parent of all errors about something that does not exist."""

    http_status = HTTPStatus.NOT_FOUND
    exit_code = ExitCode.NOT_FOUND


class UnknownOwner(NotFound):
    code = "unknown_document"

    def __init__(self, base: str, owner: str) -> None:
        super().__init__("unknown_owner", base=base, owner=owner)


class UnknownSlot(NotFound):
    code = "unknown_index"

    def __init__(self, base: str, owner: str, kind: str) -> None:
        super().__init__(base=base, owner=owner, kind=kind)


class UnknownJob(NotFound):
    code = "unknown_job"

    def __init__(self, job: str) -> None:
        super().__init__(job=job)


class UnknownBase(NotFound):
    """The base does not exist, or is being deleted."""

    code = "unknown_base"

    def __init__(self, base: str) -> None:
        super().__init__(base=base)


class NameTaken(HoldfastError):
    """Another base has this name."""

    code = "name_taken"
    http_status = HTTPStatus.CONFLICT
    exit_code = ExitCode.CONFLICT

    def __init__(self, base: str) -> None:
        super().__init__(base=base)


class UnknownItem(NotFound):
    code = "unknown_document"

    def __init__(self, base: str, items: Sequence[object]) -> None:
        super().__init__(base=base, document=", ".join(str(item) for item in items))


class UnknownKey(NotFound):
    code = "unknown_key"

    def __init__(self, key: int) -> None:
        super().__init__(key=key)


class UnknownWebhook(NotFound):
    code = "unknown_webhook"

    def __init__(self, webhook: int) -> None:
        super().__init__(webhook=webhook)


class UnknownDelivery(NotFound):
    code = "unknown_delivery"

    def __init__(self, delivery: int) -> None:
        super().__init__(delivery=delivery)


class UnknownEntity(NotFound):
    """No visible document mentions the entity."""

    code = "unknown_entity"

    def __init__(self, base: str, entity: str) -> None:
        super().__init__(base=base, entity=entity)


class BaseFailed(HoldfastError):
    """The base accepts no documents until it is repaired. It can be deleted.

    The message contains the problem of the base. A base that is being restored has its own message, because it cannot
    be repaired.
    """

    code = "base_failed"
    http_status = HTTPStatus.CONFLICT
    exit_code = ExitCode.CONFLICT

    def __init__(self, base: str, problem: Fault | WorkError) -> None:
        if problem.code == RESTORING:
            super().__init__(RESTORING, base=base)
        else:
            super().__init__(**{**make_cause_params(problem.code, problem.params), "base": base})


class StateConflict(HoldfastError):
    """The current state does not allow the operation; nothing was changed."""

    code = "not_now"
    http_status = HTTPStatus.CONFLICT
    exit_code = ExitCode.CONFLICT

    def __init__(self, reason: str, message: str = "", /, **params: object) -> None:
        self.code = self.reason = reason
        super().__init__("", message, **params)


class Conflict(StateConflict):
    """A request started no work because of an existing job or document, which the error names."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        verdict: str = "rejected",
        status: str = "not_indexed",
        document: int | None = None,
        job: str | None = None,
    ) -> None:
        super().__init__(reason, message)
        self.verdict = verdict
        self.status = status
        self.document = document
        self.job = job


class PreconditionFailed(HoldfastError):
    """The document has another generation than the caller expected; nothing was changed."""

    code = "changed_meanwhile"
    http_status = HTTPStatus.PRECONDITION_FAILED
    exit_code = ExitCode.CONFLICT

    def __init__(self, generation: int) -> None:
        super().__init__(generation=generation)
        self.generation = generation


class Forbidden(HoldfastError):
    """The API key does not permit the operation."""

    code = "forbidden"
    http_status = HTTPStatus.FORBIDDEN
    exit_code = ExitCode.DENIED


class Unauthorized(Forbidden):
    """The API key is missing, unknown, revoked or expired."""

    code = "unauthorized"
    http_status = HTTPStatus.UNAUTHORIZED


class BadSecretKey(HoldfastError):
    """The key that encrypts webhook secrets is missing or has changed."""

    code = "secret_key"
    http_status = HTTPStatus.CONFLICT


class BadResponse(HoldfastError):
    """A server did not respond, or not with the API of Holdfast."""

    code = "bad_answer"
    exit_code = ExitCode.TEMPORARY


class StaleLease(HoldfastError):
    """The worker no longer holds these slots, so their writes were rejected. Writes for other slots were kept."""

    code = "stale_lease"
    exit_code = ExitCode.CONFLICT

    def __init__(self, verb: str, tickets: Sequence[Ticket]) -> None:
        self.verb = verb
        self.tickets = tuple(tickets)
        super().__init__(verb=verb, slots=", ".join(str(ticket.key) for ticket in self.tickets))


class StoreError(HoldfastError):
    """A database operation failed and was rolled back."""

    code = "database_failed"
    http_status = HTTPStatus.SERVICE_UNAVAILABLE
    http_retry_after: int | None = RETRY_AFTER_SECONDS


class StoreBusy(StoreError):
    """Another program keeps the database locked."""

    code = "database_busy"
    exit_code = ExitCode.TEMPORARY


class StoreReadOnly(StoreError):
    """The database is not writable."""


class StoreFull(StoreError):
    """The disk is full."""

    code = "disk_full"
    http_status = HTTPStatus.INSUFFICIENT_STORAGE
    http_retry_after = None


class StoreUnavailable(StoreError):
    """The database cannot be reached."""

    code = "database_unavailable"
    exit_code = ExitCode.TEMPORARY


class StoreClosed(StoreError):
    """The contents of the database move to another database, have moved there, or are not complete yet."""

    code = "database_closed"
    http_retry_after = None


class StoreTooNew(StoreError):
    """A newer version of Holdfast wrote the database."""


class GuardedWorkFailed(HoldfastError):
    """Guarded work failed. Raised so that the task queue that runs it shows the task as failed."""

    code = "work_failed"


class GuardedWorkSuperseded(GuardedWorkFailed):
    """A newer request replaced the work before it was done."""

    code = "work_superseded"


class GuardedWorkCancelled(GuardedWorkFailed):
    """The work was cancelled, revoked or deleted before it was done."""

    code = "work_cancelled"


class GuardedRequestRejected(GuardedWorkFailed):
    """The guard rejected the request, so there is no work."""

    code = "request_rejected"


class WorkError(HoldfastError):
    """An indexer raises this to fail an attempt, with a code and parameters.

    An index from another package uses its own codes, with a message.
    """

    code = "provider_failed"
    http_status = HTTPStatus.BAD_GATEWAY

    def __init__(self, code: str, message: str = "", *, params: Mapping[str, str] | None = None) -> None:
        self.code = code
        super().__init__("", message, **(params or {}))
        if message:
            self.params = {"message": message, **self.params}


class Transient(WorkError):
    """A later attempt may succeed. This attempt is counted.

    Example:
        raise Transient("rate_limited", retry_after=timedelta(seconds=30))
    """

    http_status = HTTPStatus.SERVICE_UNAVAILABLE
    http_retry_after: int | None = RETRY_AFTER_SECONDS
    exit_code = ExitCode.TEMPORARY

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        params: Mapping[str, str] | None = None,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(code, message, params=params)
        self.retry_after = retry_after


class Outage(Transient):
    """The provider is down for all documents. A later attempt may succeed; this one is not counted."""


class RetryLater(Outage):
    """The circuit breaker blocks the provider.

    The next attempt is exactly after `retry_after`; this one is not counted.
    """


class Permanent(WorkError):
    """No attempt can succeed until a person, new content or new settings change something."""


class StopWork(BaseException):
    """Raised at a checkpoint: the worker must stop, because it lost the slot or the process shuts down.

    Not an `Exception`, so that `except Exception` in an indexer does not catch it.
    """

    def __init__(self, reason: str, *, refund: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refund = refund
