"""What works have spent, and how much of their quotas is used, for the commands and the page of a guard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from holdfast.clock import Moment, as_datetime, micros
from holdfast.guard.answers import Plain

if TYPE_CHECKING:
    from holdfast.engine import QuotaScope, QuotaUnit
    from holdfast.guard.guard import Guard

DAY = micros(timedelta(days=1))


class SpendingGroup(StrEnum):
    """What spending is summed by."""

    WORK = "work"
    REQUESTER = "requester"
    PROJECT = "project"
    DAY = "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingLine(Plain):
    """What the jobs of one requester and project have spent on one day."""

    day: str
    work: str
    requester: str
    project: str
    jobs: int
    tokens: int
    price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingTotal(Plain):
    """What all jobs of one work, requester, project or day have spent."""

    group: SpendingGroup
    name: str
    jobs: int
    tokens: int
    price: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; the name is called after the group, such as `requester`."""
        return {str(self.group): self.name, "jobs": self.jobs, "tokens": self.tokens, "price": self.price}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLine(Plain):
    """A quota, and the key, requester or project that has used most of it today."""

    work: str
    scope: QuotaScope
    unit: QuotaUnit
    per_day: float
    used: float
    used_by: str  # empty for a quota of the whole work


def sum_spending(guard: Guard, days: int) -> list[SpendingLine]:
    """Sum the spending of so many days, today included; newest day first."""
    return [
        SpendingLine(
            day=as_datetime(one.day).date().isoformat(),
            work=one.work,
            requester=one.requester,
            project=one.project,
            jobs=one.jobs,
            tokens=one.tokens,
            price=one.price,
        )
        for one in guard.store.sum_spending(Moment(_today(guard) - (days - 1) * DAY))
    ]


def total_spending(lines: list[SpendingLine], group: SpendingGroup) -> list[SpendingTotal]:
    """Add up spending by work, requester or project, highest price first, or by day, newest first."""
    by_name: dict[str, list[SpendingLine]] = {}
    for line in lines:
        by_name.setdefault(getattr(line, group), []).append(line)
    totals = [
        SpendingTotal(
            group=group,
            name=name,
            jobs=sum(one.jobs for one in many),
            tokens=sum(one.tokens for one in many),
            price=sum(one.price for one in many),
        )
        for name, many in by_name.items()
    ]
    if group is SpendingGroup.DAY:
        return sorted(totals, key=lambda one: one.name, reverse=True)
    return sorted(totals, key=lambda one: (-one.price, -one.tokens, -one.jobs, one.name))


def list_quotas(guard: Guard, work: str | None = None) -> list[QuotaLine]:
    """Return the quotas of the works that are registered in this process, or of one."""
    with guard.store.database.shared_reading():
        return [
            QuotaLine(
                work=quota.work,
                scope=quota.scope,
                unit=quota.unit,
                per_day=quota.per_day,
                used=use.amount,
                used_by=use.name,
            )
            for name in guard.works
            if work in (None, name)
            for quota in guard.store.work_quotas(name)
            for use in (guard.store.largest_quota_use(quota, Moment(_today(guard))),)
        ]


def _today(guard: Guard) -> Moment:
    """Return the last midnight in UTC."""
    now = guard.clock.now()
    return Moment(now - now % DAY)
