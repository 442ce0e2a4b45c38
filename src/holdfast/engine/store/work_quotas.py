"""Daily quotas of guarded work, what it has spent, and what a refused request would have cost.

A quota counts the jobs, tokens or money of jobs that were requested on the present day in UTC: for the work as a whole,
or separately for each key, requester or project.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import BigInteger, Float, bindparam, cast, delete, func, insert, literal_column, select

from holdfast.clock import Moment
from holdfast.db import batch, int_param, text_literal, text_param
from holdfast.engine.admission import QUOTA_EXHAUSTED, WORK_QUOTA_REASONS
from holdfast.engine.queue import DAY
from holdfast.engine.states import QuotaScope, QuotaUnit
from holdfast.engine.store.statements import SELECT_NOW
from holdfast.engine.store.tables import job_details, work_quotas
from holdfast.engine.store.transitions import StoreBase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.db import Transaction
    from holdfast.engine.store.admission import AdmissionCase

LAST_RUNS = 20  # runs whose mean price is the estimate

_row = batch(work=str)
LOCK_WORK_QUOTAS = (
    select(work_quotas)
    .where(work_quotas.c.work.in_(select(_row.c.work)))
    .order_by(work_quotas.c.work, work_quotas.c.scope, work_quotas.c.unit)
    .with_for_update(of=work_quotas)
)
SELECT_WORK_QUOTAS = (
    select(work_quotas)
    .where(work_quotas.c.work == text_param("work"))
    .order_by(work_quotas.c.scope, work_quotas.c.unit)
)
DELETE_WORK_QUOTA = delete(work_quotas).where(
    work_quotas.c.work == text_param("work"),
    work_quotas.c.scope == text_param("scope"),
    work_quotas.c.unit == text_param("unit"),
)
INSERT_WORK_QUOTA = insert(work_quotas).from_select(
    ["work", "scope", "unit", "per_day"],
    select(
        text_param("work"), text_param("scope"), text_param("unit"),
        cast(bindparam("per_day", type_=Float()), Float()),
    ),
)  # fmt: skip
_of_work = (job_details.c.work == text_param("work"), job_details.c.created_at >= int_param("since"))
_sums = (
    func.count(),
    cast(func.coalesce(func.sum(job_details.c.tokens), 0), BigInteger),  # PostgreSQL sums integers as decimal numbers
    func.coalesce(func.sum(job_details.c.price), 0.0),
)
_scopes = {
    QuotaScope.KEY: job_details.c.key,
    QuotaScope.REQUESTER: job_details.c.requester,
    QuotaScope.PROJECT: job_details.c.project,
}
SUM_OF_SCOPE = {
    QuotaScope.WORK: select(*_sums).where(*_of_work),
    **{scope: select(*_sums).where(*_of_work, column == text_param("name")) for scope, column in _scopes.items()},
}
_amounts = dict(zip((QuotaUnit.JOBS, QuotaUnit.TOKENS, QuotaUnit.PRICE), _sums, strict=True))
LARGEST_USE = {
    (scope, unit): select(column, amount).where(*_of_work).group_by(column).order_by(amount.desc(), column).limit(1)
    for scope, column in _scopes.items()
    for unit, amount in _amounts.items()
} | {(QuotaScope.WORK, unit): select(text_literal(""), amount).where(*_of_work) for unit, amount in _amounts.items()}
_day = job_details.c.created_at - job_details.c.created_at % literal_column(str(DAY))
SUM_SPENDING = (
    select(job_details.c.work, job_details.c.requester, job_details.c.project, _day.label("day"), *_sums)
    .where(job_details.c.created_at >= int_param("since"))
    .group_by(job_details.c.work, job_details.c.requester, job_details.c.project, _day)
    .order_by(_day.desc(), job_details.c.work, job_details.c.requester, job_details.c.project)
)
_last = (
    select(job_details.c.price)
    .where(job_details.c.work == text_param("work"), job_details.c.price > 0)
    .order_by(job_details.c.created_at.desc())
    .limit(LAST_RUNS)
    .subquery()
)
MEAN_PRICE = select(func.avg(_last.c.price))


class WorkQuota(NamedTuple):
    """A limit of one work for a day."""

    work: str
    scope: QuotaScope
    unit: QuotaUnit
    per_day: float


class QuotaUse(NamedTuple):
    """How much of a quota is used, by the key, requester or project that has used most of it."""

    name: str
    amount: float


class Spending(NamedTuple):
    """What the jobs of one requester and project in one work and on one day have spent."""

    work: str
    requester: str
    project: str
    day: Moment
    jobs: int
    tokens: int
    price: float


class WorkQuotaStore(StoreBase):
    """Reads and changes the quotas of works, and sums what they spend."""

    def set_work_quota(self, work: str, scope: QuotaScope, unit: QuotaUnit, per_day: float | None) -> None:
        """Set a quota, or remove it with None."""
        names = {"work": work, "scope": str(scope), "unit": str(unit)}

        def change(tx: Transaction) -> None:
            tx.run(DELETE_WORK_QUOTA, **names)
            if per_day is not None:
                tx.run(INSERT_WORK_QUOTA, **names, per_day=per_day)

        self.database.write(change, durable=True)

    def work_quotas(self, work: str) -> list[WorkQuota]:
        return [_quota_from_row(row) for row in self._read(SELECT_WORK_QUOTAS, work=work)]

    def largest_quota_use(self, quota: WorkQuota, since: Moment) -> QuotaUse:
        """Return the largest use of a quota by jobs that were requested since then."""
        rows = self._read(LARGEST_USE[quota.scope, quota.unit], work=quota.work, since=since)
        return QuotaUse(rows[0][0], float(rows[0][1])) if rows else QuotaUse("", 0.0)

    def sum_spending(self, since: Moment) -> list[Spending]:
        """Sum what jobs have spent that were requested since then, by work, requester, project and day."""
        return [Spending(*row) for row in self._read(SUM_SPENDING, since=since)]


def estimate_from_last_runs(tx: Transaction, owners: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], float]:
    """Return the mean price of the last runs of the work, for each owner of a refused request."""
    prices = {work: tx.run(MEAN_PRICE, work=work)[0][0] for work in {base for base, _ in owners}}
    return {(base, owner): float(prices[base]) for base, owner in owners if prices[base] is not None}


def refuse_beyond_work_quotas(tx: Transaction, builds: Sequence[AdmissionCase]) -> None:
    """Refuse guarded requests beyond a quota of their work. Quotas are locked until the commit."""
    works = sorted({case.request.base for case in builds})
    quotas = [_quota_from_row(row) for row in tx.run(LOCK_WORK_QUOTAS, [[work] for work in works])]
    if not quotas:
        return
    ((now,),) = tx.run(SELECT_NOW)
    accepted: list[AdmissionCase] = []  # of this batch; their rows are not written yet
    for case in builds:
        exceeded = next(
            (
                quota
                for quota in quotas
                if quota.work == case.request.base and _is_used_up(tx, quota, case, accepted, now)
            ),
            None,
        )
        if exceeded is None:
            accepted.append(case)
        else:
            case.rule = replace(QUOTA_EXHAUSTED, reason=WORK_QUOTA_REASONS[exceeded.scope])
            case.retry_at = Moment(now - now % DAY + DAY)


def _is_used_up(
    tx: Transaction, quota: WorkQuota, case: AdmissionCase, accepted: Sequence[AdmissionCase], now: Moment
) -> bool:
    name = _name(quota.scope, case)
    params = {} if quota.scope is QuotaScope.WORK else {"name": name}
    ((jobs, tokens, price),) = tx.run(SUM_OF_SCOPE[quota.scope], work=quota.work, since=now - now % DAY, **params)
    jobs += sum(one.request.base == quota.work and _name(quota.scope, one) == name for one in accepted)
    used = {QuotaUnit.JOBS: jobs, QuotaUnit.TOKENS: tokens, QuotaUnit.PRICE: price}[quota.unit]
    return bool(used >= quota.per_day)


def _name(scope: QuotaScope, case: AdmissionCase) -> str:
    """Return the key, requester or project of a request; a quota of the whole work has one name."""
    request = case.request
    project = request.details.project if request.details is not None else ""
    names = {QuotaScope.KEY: request.owner, QuotaScope.REQUESTER: request.requester, QuotaScope.PROJECT: project}
    return names.get(scope, "")


def _quota_from_row(row: Sequence[object]) -> WorkQuota:
    work, scope, unit, per_day = row
    return WorkQuota(str(work), QuotaScope(str(scope)), QuotaUnit(str(unit)), float(str(per_day)))
