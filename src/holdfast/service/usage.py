"""What was spent, what was spared, who asked in vain, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.auth import Scope
from holdfast.catalog import item_of_owner
from holdfast.clock import as_datetime
from holdfast.db import Stage
from holdfast.doctor.check_erasure import explain
from holdfast.engine import waiting_for
from holdfast.service.cursors import place
from holdfast.service.schemas import (
    Balance,
    Erasure,
    ErasureStage,
    Finding,
    Page,
    Refusal,
    Refused,
    Waiting,
)
from holdfast.service.validation import Checked

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.catalog import Pending, State
    from holdfast.clock import Moment
    from holdfast.service.authorization import Authorization


class LocalAccounts(Checked):
    """The books of a database."""

    def __init__(self, authorization: Authorization) -> None:
        self._at = authorization
        self._library = authorization.library
        self._store = authorization.library.store

    def usage(self, base: str) -> Balance:
        """Tell what a base has paid, and what it was spared because an answer was known."""
        shelf = self._at.open(base)
        account = self._library.memos.account(shelf.key)
        return Balance(
            base=shelf.name,
            spent=account.spent,
            saved=account.saved,
            kinds_spent=account.kinds_spent,
            kinds_saved=account.kinds_saved,
            budget_tokens=shelf.settings.budget_tokens,
        )

    def duplicates(self, base: str | None = None, *, cursor: str | None = None, limit: int = 100) -> Page[Refusal]:
        """Return requests that made no new work, newest first: who asked, and what stood in the way."""
        shelf, names = self._at.one(base), self._at.names()
        found = self._store.list_refusals(shelf.key if shelf else None, before=place(cursor), limit=limit)
        items = [
            Refusal(
                id=one.id,
                at=as_datetime(one.at),
                base=names.get(one.base, ""),
                document=item_of_owner(one.owner),
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

    def duplicate_counts(self, base: str | None = None) -> list[Refused]:
        """Count such requests by base, requester and reason."""
        shelf, names = self._at.one(base), self._at.names()
        return [
            Refused(
                base=names.get(one.base, ""),
                requester=one.requester,
                reason=one.reason,
                count=one.times,
                cost=one.cost,
            )
            for one in self._store.count_refusals(shelf.key if shelf else None)
        ]

    def doctor(self, *, fix: bool = False, deep: bool = False) -> list[Finding]:
        """Compare every store with what should be there; `fix` repairs, `deep` also reads every file."""
        self._at.everywhere(Scope.ADMIN)
        return self._library.doctor.check(fix=fix, deep=deep)

    def erasure(self) -> Erasure:
        """Tell how much of the deleted data is removed from the disk, in both stages."""
        self._at.everywhere(Scope.ADMIN)
        return _erasure(self._library.erasure.state())

    def erase(self) -> Erasure:
        """Remove deleted data from the disk now, in both stages; writers wait meanwhile."""
        self._at.everywhere(Scope.ADMIN)
        return _erasure(self._library.erasure.run_now())

    def waiting(self, base: str) -> list[Waiting]:
        """Tell of each job of a base that has not ended why it has not."""
        shelf = self._at.open(base)
        return [
            Waiting(
                job=one.listed.job.id,
                base=shelf.name,
                document=one.item,
                name=one.name,
                reasons=[reason.message for reason in waiting_for(one.reasons, shelf.name)],
            )
            for one in self._library.doctor.waiting(shelf)
        ]


def _erasure(state: State) -> Erasure:
    return Erasure(
        overwrite=_stage(Stage.OVERWRITE, state.overwrite),
        compact=_stage(Stage.COMPACT, state.compact),
    )


def _stage(stage: Stage, pending: Pending | None) -> ErasureStage:
    def at(moment: Moment | None) -> datetime | None:
        return None if moment is None else as_datetime(moment)

    return ErasureStage(
        complete=pending is None,
        documents=pending.documents if pending else 0,
        since=at(pending.since) if pending else None,
        obstacle=pending.obstacle if pending else None,
        blocked_since=at(pending.blocked_since) if pending else None,
        sentence=explain(stage, pending),
    )
