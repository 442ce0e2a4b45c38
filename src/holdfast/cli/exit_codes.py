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


class Exit(IntEnum):
    """What a script can branch on."""

    OK = 0  # done, or there was nothing to do
    FAILED = 1  # it was tried and did not work
    USAGE = 2  # the command cannot mean anything
    NOT_FOUND = 3  # no such base, document, job, key, webhook
    CONFLICT = 4  # a job or a document stands in the way
    PARTLY = 5  # of several things some worked
    TEMPORARY = 75  # busy, unreachable or out of quota: the same command may work later
    DENIED = 77  # the key is missing or does not allow this
    INTERRUPTED = 130  # Ctrl-C


class Meaning(NamedTuple):
    """How one kind of error is told."""

    exit: Exit
    code: str


EXITS: Mapping[str, Exit] = {
    "BadSettings": Exit.FAILED,
    "BadRequest": Exit.USAGE,
    "UnknownBase": Exit.NOT_FOUND,
    "UnknownItem": Exit.NOT_FOUND,
    "UnknownJob": Exit.NOT_FOUND,
    "UnknownOwner": Exit.NOT_FOUND,
    "UnknownSlot": Exit.NOT_FOUND,
    "UnknownEntity": Exit.NOT_FOUND,
    "UnknownKey": Exit.NOT_FOUND,
    "UnknownWebhook": Exit.NOT_FOUND,
    "UnknownDelivery": Exit.NOT_FOUND,
    "NameTaken": Exit.CONFLICT,
    "BaseFailed": Exit.CONFLICT,
    "NotEnabled": Exit.CONFLICT,
    "NotNow": Exit.CONFLICT,
    "ChangedMeanwhile": Exit.CONFLICT,
    "StaleLease": Exit.CONFLICT,
    "BadSecretKey": Exit.FAILED,
    "Unauthorized": Exit.DENIED,
    "Forbidden": Exit.DENIED,
    "BadAnswer": Exit.TEMPORARY,
    "StoreBusy": Exit.TEMPORARY,
    "StoreUnavailable": Exit.TEMPORARY,
    "StoreFull": Exit.FAILED,
    "StoreError": Exit.FAILED,
    "Transient": Exit.TEMPORARY,
    "WorkError": Exit.FAILED,
    "WorkFailed": Exit.FAILED,
}
UNFORESEEN = Meaning(Exit.FAILED, "internal_error")

LATER = "quota_exhausted"  # the one refusal that time alone lifts


def meaning(error: BaseException) -> Meaning:
    """Return how an error is told."""
    if not isinstance(error, errors.HoldfastError):
        return UNFORESEEN
    exit_ = next((EXITS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in EXITS), Exit.FAILED)
    return Meaning(Exit.TEMPORARY if error.code == LATER else exit_, error.code)


def told(error: errors.HoldfastError) -> dict[str, Any]:
    """Return an error as `--json` tells it; a conflict names what stands in the way."""
    exit_, code = meaning(error)
    said: dict[str, Any] = {"code": code, "message": str(error), "exit": int(exit_)}
    if isinstance(error, errors.Conflict):
        said |= {"verdict": error.verdict, "status": error.status, "document": error.document, "job": error.job}
    return {"error": said}


def answer(verdict: str, reason: str) -> Exit:
    """Tell how a command ends that got this answer about one thing."""
    if verdict in ("accepted", "skipped"):
        return Exit.OK
    return Exit.TEMPORARY if reason == LATER else Exit.CONFLICT


def together(ends: Collection[Exit]) -> Exit:
    """Tell how a command about several things ends: as all of them did, or partly."""
    different = set(ends)
    if len(different) <= 1:
        return different.pop() if different else Exit.OK
    return Exit.PARTLY if Exit.OK in different or Exit.PARTLY in different else Exit.FAILED
