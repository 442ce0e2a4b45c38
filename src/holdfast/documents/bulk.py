"""The same done to all items that a filter lets through, however many there are.

They are read as a list reads them, the oldest first, and each batch is chosen in the transaction that asks for its
work: what ceased to fit meanwhile is left alone, and what comes meanwhile is not met. A container stands for all that
is below it, which is not asked a second time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.catalog import CONTAINERS, Kind
from holdfast.documents import statements as sql
from holdfast.documents.lists import count_ids, ids_behind, newest_id
from holdfast.documents.operations import CLEANED, SWEEPING, USUAL, Action, clean_ups, cleaned, going, reply_of
from holdfast.documents.selection import locked, outermost, placed
from holdfast.engine import Summary
from holdfast.errors import BadRequest, UnknownItem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.documents.add import Reply
    from holdfast.documents.lists import Filter
    from holdfast.documents.operations import Manner, Requesting
    from holdfast.documents.remove import Removing
    from holdfast.documents.selection import Placed
    from holdfast.engine import Answer, Request, Verdict
    from holdfast.engine.store import SqlStore


class Matching:
    """Asks for work on all items that fit."""

    def __init__(self, store: SqlStore, requesting: Requesting, removing: Removing) -> None:
        self._store = store
        self._requesting = requesting
        self._removing = removing

    def ask(
        self, base: Base, action: Action, filter_: Filter, manner: Manner = USUAL, *, dry_run: bool = False
    ) -> Summary:
        """Do the same to all that fit; return how many they were, and what came of those that stand below no other."""
        meant = _meant(action, filter_)
        with self._store.database.reading() as tx:
            if meant.parent and any(item.deleting for item in outermost(tx, base, [meant.parent])):
                raise UnknownItem(base.name, [meant.parent])
            found = count_ids(tx, base, meant)
            newest = newest_id(tx, base, meant)
        answers: Counter[tuple[Verdict, str]] = Counter()
        if not dry_run:
            course = _Course(base, action, meant, manner, newest)
            while not course.over:
                answers.update((one.verdict, one.reason) for one in self._batch(course))
        return Summary(found=found, answers=dict(answers))

    def _batch(self, course: _Course) -> list[Reply]:
        """Go one step, in one transaction; containers follow each for itself."""
        if course.action is Action.DELETE:
            replies = self._removing.delete_with(course.base, course.roots, requester=course.manner.requester)
        elif course.filter.deleting:
            replies = self._clean_up(course)
        else:
            replies = self._build(course)
        for item in course.advance():
            if course.action is not Action.DELETE:
                replies += self._container(course, item)
        return replies

    def _clean_up(self, course: _Course) -> list[Reply]:
        asked: list[tuple[int, Request]] = []

        def write(tx: Transaction) -> Sequence[Request]:
            locked(tx, course.base, building=False)
            asked[:] = clean_ups(tx, [item.id for item in course.roots(tx)], course.manner)
            return [request for _, request in asked]

        answers = self._store.admit_with(write)
        by_item = _grouped([id_ for id_, _ in asked], answers)
        return [cleaned(one.item, by_item.get(one.item.id, [])) or going(one.item) for one in course.chosen]

    def _build(self, course: _Course) -> list[Reply]:
        owners: list[int] = []

        def write(tx: Transaction) -> Sequence[Request]:
            now = locked(tx, course.base, building=course.action is not Action.CANCEL)
            course.roots(tx)
            alone = course.documents
            asked = self._requesting.of(now, alone, course.action, course.manner)
            owners[:] = [one.item.id for one, some in zip(alone, asked, strict=True) for _ in some]
            return [request for some in asked for request in some]

        by_item = _grouped(owners, self._store.admit_with(write))
        return [reply_of(one.item, by_item.get(one.item.id, [])) for one in course.documents]

    def _container(self, course: _Course, item: Item) -> list[Reply]:
        """Ask as if it had been named alone; one that is gone meanwhile is left out."""
        base, manner = course.base, course.manner
        try:
            if course.action is Action.REFRESH and not item.source:
                return [reply_of(item, [])]
            return self._requesting.request(base, [item.id], course.action, manner)
        except UnknownItem:
            return []


class _Course:
    """How far one request for many has come. It is told of a step only after its transaction, which may run twice."""

    def __init__(self, base: Base, action: Action, filter_: Filter, manner: Manner, newest: int) -> None:
        self.base = base
        self.action = action
        self.filter = filter_
        self.manner = manner
        self.chosen: list[Placed] = []  # for this step, those that stand below no other
        self._newest = newest
        self._place = self._reached = 0
        self._whole: set[int] = set()  # containers that were asked with all below them

    @property
    def over(self) -> bool:
        """Everything that was there at the beginning was met."""
        return self._place >= self._newest

    @property
    def documents(self) -> list[Placed]:
        """What is asked together in this step."""
        return [one for one in self.chosen if not one.item.container]

    def roots(self, tx: Transaction) -> list[Item]:
        """Choose the next ones."""
        ids = [id_ for id_ in ids_behind(tx, self.base, self.filter, self._place, CLEANED) if id_ <= self._newest]
        self._reached = ids[-1] if len(ids) == CLEANED else self._newest
        found = [placed(row) for row in tx.run(sql.PLACED, [[id_] for id_ in ids])]
        if not self.filter.deleting:  # there each is cleaned up by itself
            whole = self._whole | {one.item.id for one in found if one.item.container}
            inside = {item for item, ancestor in tx.run(sql.ABOVE, [[id_] for id_ in ids]) if ancestor in whole}
            found = [one for one in found if one.item.id not in inside]
        self.chosen = found
        return [one.item for one in found]

    def advance(self) -> list[Item]:
        """Note that a step is done; return the containers of it, which stand for all below them."""
        self._place = self._reached
        containers = [] if self.filter.deleting else [one.item for one in self.chosen if one.item.container]
        self._whole |= {item.id for item in containers}
        return containers


def _meant(action: Action, filter_: Filter) -> Filter:
    """Return the filter as an action means it; refuse what nobody can mean."""
    if filter_.deleting and action is not Action.RETRY:
        raise BadRequest("What is being deleted can be tried again, and nothing else.", "only_retry")
    if action is Action.DELETE and filter_.empty:
        raise BadRequest(
            "A delete needs a filter; to delete every document of a base, clear it.", "delete_needs_filter"
        )
    if action in SWEEPING and filter_.states is not None and filter_.kinds is None:
        return replace(filter_, kinds=frozenset(Kind) - CONTAINERS)
    return filter_


def _grouped(items: Sequence[int], answers: Sequence[Answer]) -> dict[int, list[Answer]]:
    found: dict[int, list[Answer]] = {}
    for item, answer in zip(items, answers, strict=True):
        found.setdefault(item, []).append(answer)
    return found
