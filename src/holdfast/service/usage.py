"""Operations on costs, refused requests, the doctor, and the erasure of deleted data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.auth import Scope
from holdfast.catalog import parse_item_id
from holdfast.clock import as_datetime
from holdfast.db import SecureDeleteStage
from holdfast.doctor import explain_stage
from holdfast.engine import Operation, describe_reasons
from holdfast.llm import UsageTotal
from holdfast.paging import Page
from holdfast.service.cursors import parse_cursor
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from holdfast.catalog import ErasureState, PendingErasure
    from holdfast.doctor import Finding
    from holdfast.service.authorization import Authorization


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A job that has not ended, and the reasons why it waits."""

    job: str
    base: str
    document: int | None
    name: str
    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseUsage:
    """What a base has paid, and what cached answers saved."""

    base: str
    spent: UsageTotal
    saved: UsageTotal
    kinds_spent: list[UsageTotal]
    kinds_saved: list[UsageTotal]
    budget_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRequest:
    """A request that started no new work: who sent it, and why."""

    id: int
    at: datetime
    base: str
    document: int | None
    subject: str
    operation: Operation
    verdict: str
    reason: str
    job: str | None
    requester: str
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount:
    """How many requests of one requester in one base started no work for one reason, and the avoided cost."""

    base: str
    requester: str
    reason: str
    count: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureStage:
    """The progress of one stage of the erasure of deleted data."""

    complete: bool
    documents: int  # deleted or changed documents whose data this stage has not erased yet
    since: datetime | None  # time of the first of these deletes and changes
    obstacle: str | None  # why the last attempt failed
    blocked_since: datetime | None  # time of the first failed attempt
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureStatus:
    """How much of the deleted data is erased from the disk."""

    overwrite: ErasureStage  # deleted rows in the database file and its log
    compact: ErasureStage  # copies of these rows that the database made internally


class LocalUsage(ValidatedOperations):
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._library = authorization.library
        self._store = authorization.library.store

    def usage(self, base: str) -> BaseUsage:
        """Return what a base has paid, and what cached answers saved."""
        target = self._authorization.find_base(base)
        ledger = self._library.paid_cache.summarize_base(target.key)
        return BaseUsage(
            base=target.name,
            spent=ledger.spent,
            saved=ledger.saved,
            kinds_spent=ledger.kinds_spent,
            kinds_saved=ledger.kinds_saved,
            budget_tokens=target.settings.budget_tokens,
        )

    def duplicates(
        self, base: str | None = None, *, cursor: str | None = None, limit: int = 100
    ) -> Page[RefusedRequest]:
        """Return requests that started no new work, newest first: the requester, the reason, and the avoided cost."""
        target, names = self._authorization.find_base_or_all(base), self._authorization.base_names()
        refusals = self._store.list_refusals(target.key if target else None, before=parse_cursor(cursor), limit=limit)
        items = [
            RefusedRequest(
                id=refusal.id,
                at=as_datetime(refusal.at),
                base=names.get(refusal.base, ""),
                document=parse_item_id(refusal.owner),
                subject=refusal.owner,
                operation=refusal.operation,
                verdict=refusal.verdict,
                reason=refusal.reason,
                job=refusal.job,
                requester=refusal.requester,
                cost=refusal.cost,
            )
            for refusal in refusals
        ]
        return Page(items=items, next_cursor=str(items[-1].id) if len(items) == limit else None)

    def duplicate_counts(self, base: str | None = None) -> list[RefusalCount]:
        """Count requests that started no new work by base, requester and reason, most frequent first."""
        target, names = self._authorization.find_base_or_all(base), self._authorization.base_names()
        return [
            RefusalCount(
                base=names.get(refusal.base, ""),
                requester=refusal.requester,
                reason=refusal.reason,
                count=refusal.times,
                cost=refusal.cost,
            )
            for refusal in self._store.count_refusals(target.key if target else None)
        ]

    def doctor(self, *, fix: bool = False, deep: bool = False) -> list[Finding]:
        """Check that every store has the expected content. `fix` repairs what it can; `deep` also reads every file."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._library.doctor.check(fix=fix, deep=deep)

    def erasure(self) -> ErasureStatus:
        """Return how much of the deleted data is erased from the disk, for both stages."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return _erasure_to_schema(self._library.erasure.read_state())

    def erase(self) -> ErasureStatus:
        """Erase deleted data from the disk now, in both stages. Other writes wait meanwhile."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return _erasure_to_schema(self._library.erasure.run_now())

    def waiting(self, base: str) -> list[WaitingJob]:
        """Return the jobs of a base that have not ended, each with the reasons why it waits."""
        target = self._authorization.find_base(base)
        return [
            WaitingJob(
                job=waiting.listed.job.id,
                base=target.name,
                document=waiting.item,
                name=waiting.name,
                reasons=[reason.message for reason in describe_reasons(waiting.reasons, target.name)],
            )
            for waiting in self._library.doctor.waiting(target)
        ]


def _erasure_to_schema(state: ErasureState) -> ErasureStatus:
    return ErasureStatus(
        overwrite=_stage_to_schema(SecureDeleteStage.OVERWRITE, state.overwrite),
        compact=_stage_to_schema(SecureDeleteStage.COMPACT, state.compact),
    )


def _stage_to_schema(stage: SecureDeleteStage, pending: PendingErasure | None) -> ErasureStage:
    return ErasureStage(
        complete=pending is None,
        documents=pending.documents if pending else 0,
        since=as_datetime(pending.since) if pending else None,
        obstacle=pending.obstacle if pending else None,
        blocked_since=as_datetime(pending.blocked_since) if pending else None,
        sentence=explain_stage(stage, pending),
    )
