"""What was spent, what was spared, who asked in vain, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.access.callers import Scope
from holdfast.front.checking import Checked
from holdfast.front.cursors import place
from holdfast.front.sentences import waiting, when
from holdfast.front.values import Balance, Finding, Page, Refusal, Refused, Spent, Waiting
from holdfast.library.catalogue import number

if TYPE_CHECKING:
    from holdfast.front.reception import Reception
    from holdfast.library.memos import Spent as Summed


class LocalAccounts(Checked):
    """The books of a database."""

    def __init__(self, reception: Reception) -> None:
        self._at = reception
        self._library = reception.library
        self._store = reception.library.store

    def usage(self, base: str) -> Balance:
        """Tell what a base has paid, and what it was spared because an answer was known."""
        shelf = self._at.open(base)
        total, kinds = self._library.memos.balance(shelf.key), self._library.memos.spent(shelf.key)
        return Balance(
            base=shelf.name,
            spent=spent_of(total.spent),
            saved=spent_of(total.saved),
            kinds_spent=[spent_of(one) for one in kinds if one.paid],
            kinds_saved=[spent_of(one) for one in kinds if not one.paid],
            budget_tokens=shelf.settings.budget_tokens,
        )

    def duplicates(self, base: str | None = None, *, cursor: str | None = None, limit: int = 100) -> Page[Refusal]:
        """Return requests that made no new work, newest first: who asked, and what stood in the way."""
        shelf, names = self._at.one(base), self._at.names()
        found = self._store.list_refusals(shelf.key if shelf else None, before=place(cursor), limit=limit)
        items = [
            Refusal(
                id=one.id,
                at=when(one.at),
                base=names.get(one.base, ""),
                document=number(one.owner),
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
        return [
            Finding(
                code=one.code,
                where=one.where,
                count=one.count,
                sentence=one.sentence,
                examples=list(one.examples),
                fixable=one.fixable,
                fixed=one.fixed,
            )
            for one in self._library.doctor.check(fix=fix, deep=deep)
        ]

    def waiting(self, base: str) -> list[Waiting]:
        """Tell of each job of a base that has not ended why it has not."""
        shelf = self._at.open(base)
        return [
            Waiting(
                job=one.listed.job.id,
                base=shelf.name,
                document=one.item,
                name=one.name,
                reasons=[reason.message for reason in waiting(one.reasons, shelf.name)],
            )
            for one in self._library.doctor.waiting(shelf)
        ]


def spent_of(one: Summed) -> Spent:
    """Return a sum of bills."""
    return Spent(
        kind=one.kind,
        texts=one.texts,
        tokens_in=one.tokens_in,
        tokens_out=one.tokens_out,
        price=one.price,
        unpriced=one.unpriced,
        estimated=one.estimated,
    )
