"""How a command ends: one table from errors to exit codes, as the server has one from errors to HTTP.

Errors are told by their names, because some live beside what is slow to load; the first name that an error's class has
or inherits decides. The codes are those of the server's problems.
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


MEANINGS: Mapping[str, Meaning] = {
    "BadSettings": Meaning(Exit.FAILED, "bad_settings"),
    "BadRequest": Meaning(Exit.USAGE, "bad_request"),
    "UnknownBase": Meaning(Exit.NOT_FOUND, "unknown_base"),
    "UnknownItem": Meaning(Exit.NOT_FOUND, "unknown_document"),
    "UnknownJob": Meaning(Exit.NOT_FOUND, "unknown_job"),
    "UnknownOwner": Meaning(Exit.NOT_FOUND, "unknown_document"),
    "UnknownSlot": Meaning(Exit.NOT_FOUND, "unknown_index"),
    "UnknownEntity": Meaning(Exit.NOT_FOUND, "unknown_entity"),
    "UnknownKey": Meaning(Exit.NOT_FOUND, "unknown_key"),
    "UnknownWebhook": Meaning(Exit.NOT_FOUND, "unknown_webhook"),
    "UnknownDelivery": Meaning(Exit.NOT_FOUND, "unknown_delivery"),
    "NameTaken": Meaning(Exit.CONFLICT, "name_taken"),
    "BaseFailed": Meaning(Exit.CONFLICT, "base_failed"),
    "NotEnabled": Meaning(Exit.CONFLICT, "not_enabled"),
    "NotNow": Meaning(Exit.CONFLICT, "not_now"),
    "ChangedMeanwhile": Meaning(Exit.CONFLICT, "changed_meanwhile"),
    "StaleLease": Meaning(Exit.CONFLICT, "stale_lease"),
    "BadSecretKey": Meaning(Exit.FAILED, "secret_key"),
    "Forbidden": Meaning(Exit.DENIED, "forbidden"),
    "BadAnswer": Meaning(Exit.TEMPORARY, "bad_answer"),
    "StoreBusy": Meaning(Exit.TEMPORARY, "database_busy"),
    "StoreUnavailable": Meaning(Exit.TEMPORARY, "database_unavailable"),
    "StoreFull": Meaning(Exit.FAILED, "disk_full"),
    "StoreError": Meaning(Exit.FAILED, "database_failed"),
    "Transient": Meaning(Exit.TEMPORARY, "provider_failed"),
    "WorkError": Meaning(Exit.FAILED, "provider_failed"),
    "WorkFailed": Meaning(Exit.FAILED, "work_failed"),
}
UNFORESEEN = Meaning(Exit.FAILED, "internal_error")

LATER = "quota_exhausted"  # the one refusal that time alone lifts


def meaning(error: BaseException) -> Meaning:
    """Return how an error is told."""
    found = next((MEANINGS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in MEANINGS), UNFORESEEN)
    if isinstance(error, errors.NotNow):
        return Meaning(Exit.TEMPORARY if error.reason == LATER else found.exit, error.reason)
    if isinstance(error, errors.WorkError):
        return Meaning(found.exit, error.code)
    return found


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
