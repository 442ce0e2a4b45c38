"""How a command ends: one table from errors to exit codes, as the server has one from errors to HTTP.

Errors are told by their names, because some live beside what is slow to load; the first name that an error's class has
or inherits decides. Their codes are in `holdfast.errors`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import errors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class ExitCode(IntEnum):
    """What a script can branch on."""

    OK = 0  # done, or there was nothing to do
    FAILED = 1  # it was tried and did not work
    USAGE = 2  # the command cannot mean anything
    NOT_FOUND = 3  # no such base, document, job, key, webhook
    CONFLICT = 4  # a job or a document stands in the way
    PARTIAL = 5  # of several things some worked
    TEMPORARY = 75  # busy, unreachable or out of quota: the same command may work later
    DENIED = 77  # the key is missing or does not allow this
    INTERRUPTED = 130  # Ctrl-C


class ErrorExit(NamedTuple):
    """How one kind of error is told."""

    exit: ExitCode
    code: str


EXIT_CODES: Mapping[str, ExitCode] = {
    "BadSettings": ExitCode.FAILED,
    "BadRequest": ExitCode.USAGE,
    "UnknownBase": ExitCode.NOT_FOUND,
    "UnknownItem": ExitCode.NOT_FOUND,
    "UnknownJob": ExitCode.NOT_FOUND,
    "UnknownOwner": ExitCode.NOT_FOUND,
    "UnknownSlot": ExitCode.NOT_FOUND,
    "UnknownEntity": ExitCode.NOT_FOUND,
    "UnknownKey": ExitCode.NOT_FOUND,
    "UnknownWebhook": ExitCode.NOT_FOUND,
    "UnknownDelivery": ExitCode.NOT_FOUND,
    "NameTaken": ExitCode.CONFLICT,
    "BaseFailed": ExitCode.CONFLICT,
    "NotEnabled": ExitCode.CONFLICT,
    "StateConflict": ExitCode.CONFLICT,
    "PreconditionFailed": ExitCode.CONFLICT,
    "StaleLease": ExitCode.CONFLICT,
    "BadSecretKey": ExitCode.FAILED,
    "Unauthorized": ExitCode.DENIED,
    "Forbidden": ExitCode.DENIED,
    "BadResponse": ExitCode.TEMPORARY,
    "StoreBusy": ExitCode.TEMPORARY,
    "StoreUnavailable": ExitCode.TEMPORARY,
    "StoreFull": ExitCode.FAILED,
    "StoreError": ExitCode.FAILED,
    "Transient": ExitCode.TEMPORARY,
    "WorkError": ExitCode.FAILED,
    "GuardedWorkFailed": ExitCode.FAILED,
}
UNEXPECTED = ErrorExit(ExitCode.FAILED, "internal_error")

QUOTA_EXHAUSTED = "quota_exhausted"  # the one refusal that time alone lifts


def classify_error(error: BaseException) -> ErrorExit:
    """Return how an error is told."""
    if not isinstance(error, errors.HoldfastError):
        return UNEXPECTED
    exit_ = next(
        (EXIT_CODES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in EXIT_CODES), ExitCode.FAILED
    )
    return ErrorExit(ExitCode.TEMPORARY if error.code == QUOTA_EXHAUSTED else exit_, error.code)


def error_to_dict(error: errors.HoldfastError) -> dict[str, Any]:
    """Return an error as `--json` tells it; a conflict names what stands in the way."""
    exit_, code = classify_error(error)
    said: dict[str, Any] = {"code": code, "message": str(error), "exit": int(exit_)}
    if isinstance(error, errors.Conflict):
        said |= {"verdict": error.verdict, "status": error.status, "document": error.document, "job": error.job}
    return {"error": said}


def reply_exit_code(verdict: str, reason: str) -> ExitCode:
    """Tell how a command ends that got this answer about one thing."""
    if verdict in ("accepted", "skipped"):
        return ExitCode.OK
    return ExitCode.TEMPORARY if reason == QUOTA_EXHAUSTED else ExitCode.CONFLICT


def combine_exit_codes(ends: Collection[ExitCode]) -> ExitCode:
    """Tell how a command about several things ends: as all of them did, or partly."""
    different = set(ends)
    if len(different) <= 1:
        return different.pop() if different else ExitCode.OK
    return ExitCode.PARTIAL if ExitCode.OK in different or ExitCode.PARTIAL in different else ExitCode.FAILED
