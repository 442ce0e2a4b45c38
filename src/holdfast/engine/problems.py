"""Errors and wait reasons in the form that every interface shows: a code, a message and parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from holdfast.clock import Moment, as_datetime
from holdfast.engine.waiting import MOMENT_PARAMS
from holdfast.messages import format_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.slot import Fault
    from holdfast.engine.waiting import WaitReason


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
    message = fault.params.get("message") or format_message(f"problem.{fault.code}", params, otherwise=fault.code)
    return Problem(code=fault.code, message=str(message), params=params)


def describe_reasons(reasons: Sequence[WaitReason], base: str) -> list[Problem]:
    """Return why work in a base is not finished, without duplicates. `base` is the name that users gave the base."""
    problems: dict[str, Problem] = {}
    for reason in reasons:
        params = {
            name: as_datetime(Moment(int(value))).isoformat() if name in MOMENT_PARAMS else str(value)
            for name, value in reason.params.items()
        }
        message = format_wait_reason(reason, base)
        problems.setdefault(message, Problem(code=reason.code, message=message, params={**params, "base": base}))
    return list(problems.values())


def format_wait_reason(reason: WaitReason, base: str) -> str:
    """Return the message of a reason, with times in UTC."""
    shown = {name: _format_moment(value) if name in MOMENT_PARAMS else value for name, value in reason.params.items()}
    return format_message(f"waits.{reason.code}", {**shown, "base": base})


def format_reply(reason: str, status: str, *, accepted: bool) -> str:
    """Return the message for the reason of an admission result."""
    otherwise = format_message("reply.accepted", {}) if accepted else reason
    return format_message(f"reply.{reason}", {"status": status}, otherwise=otherwise)


def _format_moment(value: str | int) -> str:
    return as_datetime(Moment(int(value))).strftime("%Y-%m-%d %H:%M:%S UTC")
