"""Costs, rejected requests, and the health of the stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.auth import Scope
from holdfast.catalog import parse_item_id
from holdfast.clock import as_datetime
from holdfast.db import SecureDeleteStage
from holdfast.doctor.check_erasure import explain_stage
from holdfast.engine import describe_reasons
from holdfast.service.cursors import parse_cursor
from holdfast.service.schemas import (
    BaseUsage,
    ErasureStage,
    ErasureStatus,
    Finding,
    Page,
    RefusalCount,
    RefusedRequest,
    WaitingJob,
)
from holdfast.service.validation import ValidatedOperations

if TYPE_CHECKING:
    from holdfast.catalog import ErasureState, PendingErasure
    from holdfast.service.authorization import Authorization


class LocalUsage(ValidatedOperations):
    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self._library = authorization.library
        self._store = authorization.library.store

    def usage(self, base: str) -> BaseUsage:
        """Return what a base has paid, and what stored answers saved."""
        shelf = self._authorization.find_base(base)
        account = self._library.paid_cache.summarize_base(shelf.key)
        return BaseUsage(
            base=shelf.name,
            spent=account.spent,
            saved=account.saved,
            kinds_spent=account.kinds_spent,
            kinds_saved=account.kinds_saved,
            budget_tokens=shelf.settings.budget_tokens,
        )

    def duplicates(
        self, base: str | None = None, *, cursor: str | None = None, limit: int = 100
    ) -> Page[RefusedRequest]:
        """Return requests that started no new work, newest first: who sent them, why, and what they would have cost."""
        shelf, names = self._authorization.find_base_or_all(base), self._authorization.base_names()
        found = self._store.list_refusals(shelf.key if shelf else None, before=parse_cursor(cursor), limit=limit)
        items = [
            RefusedRequest(
                id=one.id,
                at=as_datetime(one.at),
                base=names.get(one.base, ""),
                document=parse_item_id(one.owner),
                subject=one.owner,
                operation=one.operation,
                verdict=one.verdict,
                reason=one.reason,
                job=one.job,
                requester=one.requester,
                cost=one.cost,
            )
            for one in found
        ]
        return Page(items=items, next_cursor=str(items[-1].id) if len(items) == limit else None)

    def duplicate_counts(self, base: str | None = None) -> list[RefusalCount]:
        """Count requests that started no new work by base, requester and reason, most frequent first."""
        shelf, names = self._authorization.find_base_or_all(base), self._authorization.base_names()
        return [
            RefusalCount(
                base=names.get(one.base, ""),
                requester=one.requester,
                reason=one.reason,
                count=one.times,
                cost=one.cost,
            )
            for one in self._store.count_refusals(shelf.key if shelf else None)
        ]

    def doctor(self, *, fix: bool = False, deep: bool = False) -> list[Finding]:
        """Compare every store with what it should contain; `fix` repairs, `deep` also reads every file."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return self._library.doctor.check(fix=fix, deep=deep)

    def erasure(self) -> ErasureStatus:
        """Return how much of the deleted data is removed from the disk, in both stages."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return _erasure_to_schema(self._library.erasure.read_state())

    def erase(self) -> ErasureStatus:
        """Remove deleted data from the disk now, in both stages; writers wait meanwhile."""
        self._authorization.require_all_bases(Scope.ADMIN)
        return _erasure_to_schema(self._library.erasure.run_now())

    def waiting(self, base: str) -> list[WaitingJob]:
        """Return the jobs of a base that have not ended, each with the reasons."""
        shelf = self._authorization.find_base(base)
        return [
            WaitingJob(
                job=one.listed.job.id,
                base=shelf.name,
                document=one.item,
                name=one.name,
                reasons=[reason.message for reason in describe_reasons(one.reasons, shelf.name)],
            )
            for one in self._library.doctor.waiting(shelf)
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
