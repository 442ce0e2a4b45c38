"""What people ask of items that are there: index, retry, reindex, cancel, look at the source again.

A container stands for all that is below it. Reindexing is a rebuild from rest: it is refused for a root of which
anything is active or being deleted, and the other roots go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.admission import DEFAULT_PRIORITY, Request, Verdict
from holdfast.core.dependencies import SlotSpec
from holdfast.core.states import Operation, Status
from holdfast.errors import BadRequest
from holdfast.knowledge.adding import SOURCE, Reply
from holdfast.knowledge.selecting import Placed, below, locked, outermost, standing, still_there
from holdfast.library import item_statements as sql
from holdfast.library.catalogue import Kind, base_of, item_of
from holdfast.stores import statements as slots_sql
from holdfast.stores.admitting import LOWEST_PRIORITY
from holdfast.stores.base import LARGEST_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.core.admission import Answer
    from holdfast.knowledge.adding import Adding
    from holdfast.library.catalogue import Base, Item
    from holdfast.stores.database import Transaction
    from holdfast.stores.sql import SqlStore

TERMINAL = frozenset({Status.SUCCESS, Status.DEGRADED, Status.FAILED, Status.NOT_INDEXED})
AGAIN = "again"  # payload of a job that looks at a source: what did not change is indexed again, too


class Manner(NamedTuple):
    """Who asks, and how urgent it is."""

    requester: str = ""
    priority: int = DEFAULT_PRIORITY
    cause: str = "user"


USUAL = Manner()


class Requesting:
    """Asks for work on items."""

    def __init__(self, store: SqlStore, adding: Adding) -> None:
        self._store = store
        self._adding = adding

    def reindex(self, base: Base, ids: Iterable[int], manner: Manner = USUAL) -> list[Reply]:
        """Build items again from their sources; nothing of what is served goes before the new is built."""
        return [self._reindex(base, root, manner) for root in self._roots(base, ids)]

    def look(self, base: Base, ids: Iterable[int], manner: Manner = USUAL) -> list[Reply]:
        """Look at the sources of items again: fetch a page, scan a folder; what did not change costs nothing."""
        roots = self._roots(base, ids)
        for root in roots:
            if root.source is None:
                raise BadRequest(f"{root.name!r} was uploaded; there is no place where it could be looked for again.")
        return [self._asked(base, root, [_look(base.key, root, manner)]) for root in roots]

    def look_due(self, limit: int) -> int:
        """Look at the sources again whose time has come; return how many."""

        def take(tx: Transaction) -> list[Request]:
            due = [item_of(row) for row in tx.run(sql.TAKE_DUE, limit=limit)]
            return [_look(str(item.base), item, Manner(priority=LOWEST_PRIORITY, cause="schedule")) for item in due]

        return len(self._store.admit_with(take))

    def ask(self, base: Base, ids: Iterable[int], operation: Operation, manner: Manner = USUAL) -> list[Reply]:
        """Index, retry, force or cancel items, with all that stands below them, in bounded transactions."""
        if operation in (Operation.CHANGE, Operation.DELETE, Operation.REINDEX):
            raise BadRequest(f"To {operation} an item use the verb of that name; it does more than this one.")
        return [self._each(base, root, operation, manner) for root in self._roots(base, ids)]

    def _roots(self, base: Base, ids: Iterable[int]) -> list[Item]:
        wanted = list(ids)
        if not wanted:
            return []
        with self._store.database.reading() as tx:
            return outermost(tx, base, wanted)

    def _reindex(self, base: Base, root: Item, manner: Manner) -> Reply:
        """Ask for one root; that all of it is at rest is seen in the transaction that admits the work."""
        refused: list[Reply] = []

        def write(tx: Transaction) -> list[Request]:
            refused.clear()
            now = locked(tx, base, building=True)
            tree = below(tx, root.id)
            reason = _unfit(tree)
            if not reason:
                return [self._again(now, tree[0], manner)]
            status = standing(tree)
            refused.append(Reply(verdict=Verdict.REJECTED, reason=reason, status=status, name=root.name, item=root.id))
            row = [now.key, root.key, Operation.REINDEX, Verdict.REJECTED, reason, None, manner.requester, 0.0]
            tx.run(slots_sql.AUDIT, [row])
            return []

        answers = self._store.admit_with(write)
        return refused[0] if refused else _reply(root, answers)

    def _again(self, base: Base, placed: Placed, manner: Manner) -> Request:
        """Ask for one item to be built again; what comes from a source is looked for there."""
        item = placed.item
        if item.source is not None and (item.container or item.kind is Kind.URL):
            return _look(base.key, item, manner, payload=AGAIN)
        return Request(
            base=base.key,
            owner=item.key,
            operation=Operation.INDEX if placed.document is None else Operation.REINDEX,
            slots=self._adding.slots(base),
            requester=manner.requester,
            priority=manner.priority,
            cause=manner.cause,
        )

    def _asked(self, base: Base, root: Item, requests: Sequence[Request]) -> Reply:
        def write(tx: Transaction) -> Sequence[Request]:
            locked(tx, base, building=True)
            return requests

        return _reply(root, self._store.admit_with(write))

    def _each(self, base: Base, root: Item, operation: Operation, manner: Manner) -> Reply:
        """Ask the same of a root and of all that stands below it."""
        with self._store.database.reading() as tx:
            tree = below(tx, root.id)
            now = tx.run(sql.READ_BASES, [[base.id]])
        specs = self._adding.slots(base_of(now[0]) if now else base)
        requests = [
            Request(
                base=base.key,
                owner=owner,
                operation=operation,
                slots=() if operation is Operation.CANCEL else wanted,
                requester=manner.requester,
                priority=manner.priority,
                cause=manner.cause,
            )
            for one in tree
            for owner, wanted in _owners(one, specs, operation)
        ]
        answers: list[Answer] = []
        for first in range(0, len(requests), LARGEST_BATCH):
            portion = requests[first : first + LARGEST_BATCH]

            def write(tx: Transaction, portion: Sequence[Request] = portion) -> Sequence[Request]:
                locked(tx, base, building=operation is not Operation.CANCEL)
                return still_there(tx, portion)

            answers += self._store.admit_with(write)
        return _reply(root, answers)


def _look(base: str, item: Item, manner: Manner, payload: str | None = None) -> Request:
    """Ask for a look at the source of an item."""
    return Request(
        base=base,
        owner=item.source_key,
        operation=Operation.FORCE,
        slots=(SlotSpec(SOURCE),),
        requester=manner.requester,
        priority=manner.priority,
        cause=manner.cause,
        payload=payload,
    )


def _unfit(tree: Sequence[Placed]) -> str:
    """Tell why a tree cannot be reindexed; nothing if it can."""
    if any(one.item.deleting for one in tree):
        return "being_deleted"
    return "not_terminal" if any(one.status not in TERMINAL for one in tree) else ""


def _owners(one: Placed, specs: tuple[SlotSpec, ...], operation: Operation) -> list[tuple[str, tuple[SlotSpec, ...]]]:
    """Return the owners of an item that can be asked, each with what it should have."""
    item = one.item
    if item.deleting or item.problem is not None:
        return []
    found: list[tuple[str, tuple[SlotSpec, ...]]] = []
    if one.source is not None or (item.source is not None and item.digest is None and operation is Operation.INDEX):
        found.append((item.source_key, (SlotSpec(SOURCE),)))
    if one.document is not None or (item.digest is not None and operation is Operation.INDEX):
        found.append((item.key, specs))
    return found


def _reply(root: Item, answers: Sequence[Answer]) -> Reply:
    """Tell what came of a root: the first new work, or else what the first answer says."""
    best = next((one for one in answers if one.accepted), answers[0] if answers else None)
    if best is None:
        return Reply(verdict=Verdict.SKIPPED, reason="nothing_to_do", name=root.name, item=root.id)
    return Reply(
        verdict=best.verdict,
        reason=best.reason,
        status=best.status,
        name=root.name,
        item=root.id,
        job=best.job,
        generation=best.generation,
    )
