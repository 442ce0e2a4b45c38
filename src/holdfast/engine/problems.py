"""Errors and wait reasons in the form that every interface shows: a code, a message and parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from holdfast.clock import Moment, as_datetime
from holdfast.engine.waiting import MOMENT_PARAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.slot import Fault
    from holdfast.engine.waiting import WaitReason

# Codes that the engine itself stores. Other faults contain their message.
FAULT_MESSAGES = {
    "attempts_spent": "It was tried {attempts} times and never came to an end; the last time: {last}. Try again when "
    "that is mended.",
    "needed_slot_failed": "It is built from {kind}, which failed.",
    "no_result": "The indexer gave no result for it, which is a fault of the indexer.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A code for programs and a message for people."""

    code: str
    message: str
    params: dict[str, str] = field(default_factory=dict)


@overload
def describe_fault(fault: Fault) -> Problem: ...


@overload
def describe_fault(fault: Fault | None) -> Problem | None: ...


def describe_fault(fault: Fault | None) -> Problem | None:
    if fault is None:
        return None
    params = {name: str(value) for name, value in fault.params.items() if name != "message"}
    message = fault.params.get("message") or FAULT_MESSAGES.get(fault.code, fault.code).format_map(params)
    return Problem(code=fault.code, message=str(message), params=params)


def describe_reasons(reasons: Sequence[WaitReason], base: str) -> list[Problem]:
    """Return why work in a base is not finished, without duplicates."""
    problems: dict[str, Problem] = {}
    for reason in reasons:
        params = {
            name: as_datetime(Moment(int(value))).isoformat() if name in MOMENT_PARAMS else str(value)
            for name, value in reason.params.items()
        }
        message = reason.format_message(base)
        problems.setdefault(message, Problem(code=reason.code, message=message, params={**params, "base": base}))
    return list(problems.values())
