"""Every error Holdfast raises, under one root.

HoldfastError
├── BadSettings          the settings contradict each other
│   └── MissingExtra     a package that this needs is not installed; names the extra that installs it
├── BadRequest           a request that cannot mean anything
│   └── BadArchive       a file that is no archive of a base, or not whole, or not what it says
├── NotFound
│   ├── UnknownOwner     nothing is known under this base and owner
│   ├── UnknownSlot      the owner has no slot of this kind
│   ├── UnknownJob       no job has this id
│   ├── UnknownBase      there is no such base, or it is being deleted
│   ├── UnknownItem      there is no such item in the base
│   ├── UnknownKey       there is no such key
│   ├── UnknownWebhook   there is no such webhook
│   ├── UnknownDelivery  there is no such delivery of a webhook
│   └── UnknownEntity    no document speaks of it
├── NameTaken            another base has this name
├── BaseFailed           nothing can be added or indexed there until it is repaired
├── NotNow               it cannot be done while things stand as they do
│   └── Conflict         a job or a document stands in the way, and is named
├── ChangedMeanwhile     a document is not as whoever asked last saw it
├── Forbidden            the key does not allow this
│   └── Unauthorized     no key was sent, or one that is not known
├── BadSecretKey         webhook secrets cannot be decrypted with the key that is set
├── BadAnswer            a server did not answer as Holdfast does
├── StaleLease           a write by a worker that no longer holds the slot
├── StoreError
│   ├── StoreBusy        another program keeps the database locked
│   ├── StoreReadOnly    the database cannot be written
│   ├── StoreFull        the disk is full
│   ├── StoreUnavailable the database cannot be reached
│   └── StoreTooNew      written by a newer version of Holdfast
├── WorkFailed           guarded work ended as failed; shown to whoever carried its message
└── WorkError            what an indexer raises
    ├── Transient        try again later, counted
    │   └── Outage       the provider is down for everybody: wait, not counted
    │       └── Paused   nobody asks the provider before a known moment
    └── Permanent        trying again cannot help

StopWork stands outside: like KeyboardInterrupt it must pass through `except Exception`.
"""

from __future__ import annotations

from enum import IntEnum
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from holdfast.engine import Ticket

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
    """Something Holdfast can explain: what happened, why, and what to do next.

    The code is the same in every interface. One code may stand for many mistakes; the subcode tells them apart, and the
    parameters are what the sentence names.
    """

    code = "internal_error"
    http_status: HTTPStatus | None = None  # None: not for callers; HTTP reports an internal error
    http_retry_after: int | None = None  # seconds
    exit_code = ExitCode.FAILED

    def __init__(self, message: str = "", subcode: str = "", /, **params: object) -> None:
        super().__init__(message)
        self.subcode = subcode
        self.params: Mapping[str, str] = {name: str(value) for name, value in params.items()}


class BadSettings(HoldfastError):
    """The settings contradict each other; nothing was started."""

    code = "bad_settings"
    http_status = HTTPStatus.UNPROCESSABLE_ENTITY


class MissingExtra(BadSettings):
    """A package that this needs is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"This needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'holdfast[{extra}]'"
        )
        self.package = package
        self.extra = extra


class BadRequest(HoldfastError):
    """A request that cannot mean anything; nothing was written."""

    code = "bad_request"
    http_status = HTTPStatus.UNPROCESSABLE_ENTITY
    exit_code = ExitCode.USAGE


class BadArchive(BadRequest):
    """A file that is no archive of a base, or not whole, or not what it says; nothing of it is kept."""


class NotFound(HoldfastError):
    """The parent of all errors about something that does not exist."""

    http_status = HTTPStatus.NOT_FOUND
    exit_code = ExitCode.NOT_FOUND


class UnknownOwner(NotFound):
    """Nothing is known under this base and owner."""

    code = "unknown_document"

    def __init__(self, base: str, owner: str) -> None:
        super().__init__(
            f"There is no {owner!r} in base {base!r}. It was never added or has been deleted; "
            "add it with the operation 'index' or 'change'."
        )


class UnknownSlot(NotFound):
    """The owner has no slot of this kind."""

    code = "unknown_index"

    def __init__(self, base: str, owner: str, kind: str) -> None:
        super().__init__(
            f"{owner!r} in base {base!r} has no slot {kind!r}. "
            "Request it once with the operation 'index'; it is built then."
        )


class UnknownJob(NotFound):
    """No job has this id."""

    code = "unknown_job"

    def __init__(self, job: str) -> None:
        super().__init__(
            f"There is no job {job!r}. Finished jobs are kept for the retention time and then removed; "
            "the status of its owner tells what stands now."
        )


class UnknownBase(NotFound):
    """There is no such base, or it is being deleted."""

    code = "unknown_base"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no base {name!r}; it was never created or has been deleted. Create it first.")


class NameTaken(HoldfastError):
    """Another base has this name."""

    code = "name_taken"
    http_status = HTTPStatus.CONFLICT
    exit_code = ExitCode.CONFLICT

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a base {name!r} already; choose another name. Nothing was changed.")


class UnknownItem(NotFound):
    """There is no such item in the base."""

    code = "unknown_document"

    def __init__(self, base: str, items: Sequence[object]) -> None:
        names = ", ".join(repr(item) for item in items)
        super().__init__(f"There is no item {names} in base {base!r}; it was never added or has been deleted.")


class UnknownKey(NotFound):
    """There is no such key."""

    code = "unknown_key"

    def __init__(self, key: int) -> None:
        super().__init__(f"There is no key {key}; list the keys to see which there are.")


class UnknownWebhook(NotFound):
    """There is no such webhook."""

    code = "unknown_webhook"

    def __init__(self, webhook: int) -> None:
        super().__init__(f"There is no webhook {webhook}; it was never created or has been deleted.")


class UnknownDelivery(NotFound):
    """There is no such delivery of a webhook."""

    code = "unknown_delivery"

    def __init__(self, delivery: int) -> None:
        super().__init__(
            f"There is no delivery {delivery}; deliveries are kept for the retention time and then removed, and go "
            "with their webhook."
        )


class UnknownEntity(NotFound):
    """No document that is served speaks of it."""

    code = "unknown_entity"

    def __init__(self, base: str, key: str) -> None:
        super().__init__(f"No document of base {base!r} speaks of {key!r}; search its entities for another name.")


class BaseFailed(HoldfastError):
    """Nothing can be added or indexed in a base until it is repaired; deleting is possible."""

    code = "base_failed"
    http_status = HTTPStatus.CONFLICT
    exit_code = ExitCode.CONFLICT

    def __init__(self, base: str, reason: str) -> None:
        super().__init__(f"Base {base!r} has failed: {reason} Repair it, or delete it; nothing was changed.")


class StateConflict(HoldfastError):
    """Something cannot be done while things stand as they do."""

    code = "not_now"
    http_status = HTTPStatus.CONFLICT
    exit_code = ExitCode.CONFLICT

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = self.reason = reason


class Conflict(StateConflict):
    """A request made no new work, because of a job or a document that it names; nothing was changed."""

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
    """A document has another generation than whoever asked has seen; nothing was changed."""

    code = "changed_meanwhile"
    http_status = HTTPStatus.PRECONDITION_FAILED
    exit_code = ExitCode.CONFLICT

    def __init__(self, generation: int) -> None:
        super().__init__(f"The document has changed: its generation is {generation} now. Read it again.")
        self.generation = generation


class Forbidden(HoldfastError):
    """The key does not allow this."""

    code = "forbidden"
    http_status = HTTPStatus.FORBIDDEN
    exit_code = ExitCode.DENIED


class Unauthorized(Forbidden):
    """A key is needed, and none was sent, or one that is not known, was revoked or has expired."""

    code = "unauthorized"
    http_status = HTTPStatus.UNAUTHORIZED


class BadSecretKey(HoldfastError):
    """The key that encrypts webhook secrets is missing or is not the one they were encrypted with."""

    code = "secret_key"
    http_status = HTTPStatus.CONFLICT


class BadResponse(HoldfastError):
    """A server did not answer as Holdfast does, or not at all."""

    code = "bad_answer"
    exit_code = ExitCode.TEMPORARY


class StaleLease(HoldfastError):
    """Writes refused because the worker no longer holds these slots; the others were written."""

    code = "stale_lease"
    exit_code = ExitCode.CONFLICT

    def __init__(self, verb: str, tickets: Sequence[Ticket]) -> None:
        self.verb = verb
        self.tickets = tuple(tickets)
        names = ", ".join(str(ticket) for ticket in self.tickets)
        super().__init__(
            f"The write {verb!r} was refused for {names}: the slot was superseded, cancelled, deleted or "
            "taken over. Drop the result and release the slot."
        )


class StoreError(HoldfastError):
    """The database did not do what was asked; nothing was half-written."""

    code = "database_failed"
    http_status = HTTPStatus.SERVICE_UNAVAILABLE
    http_retry_after: int | None = RETRY_AFTER_SECONDS


class StoreBusy(StoreError):
    """Another program keeps the database locked."""

    code = "database_busy"
    exit_code = ExitCode.TEMPORARY


class StoreReadOnly(StoreError):
    """The database cannot be written."""


class StoreFull(StoreError):
    """The disk is full."""

    code = "disk_full"
    http_status = HTTPStatus.INSUFFICIENT_STORAGE
    http_retry_after = None


class StoreUnavailable(StoreError):
    """The database cannot be reached."""

    code = "database_unavailable"
    exit_code = ExitCode.TEMPORARY


class StoreTooNew(StoreError):
    """The database was written by a newer version of Holdfast."""


class GuardedWorkFailed(HoldfastError):
    """Guarded work ended as failed; raised so that whoever carried its message shows it so."""

    code = "work_failed"


class WorkError(HoldfastError):
    """A reason, as code and parameters, why a build did not come about."""

    code = "provider_failed"
    http_status = HTTPStatus.BAD_GATEWAY

    def __init__(self, code: str, message: str = "", *, params: Mapping[str, str] | None = None) -> None:
        super().__init__(message or code)
        self.code = code
        self.params = dict(params or {})
        if message:
            self.params.setdefault("message", message)


class Transient(WorkError):
    """The same work may succeed later; the attempt is counted."""

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
    """The provider is down for everybody: wait, and do not hold it against this slot."""


class RetryLater(Outage):
    """Nobody asks the provider for now: wait exactly `retry_after`, and do not hold it against this slot."""


class Permanent(WorkError):
    """The same work cannot succeed; a person, new content or new settings must change something."""


class StopWork(BaseException):
    """Raised at a checkpoint: stop now, the slot is no longer yours or the process is going down."""

    def __init__(self, reason: str, *, refund: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refund = refund
