"""What people ask of items that are there: index, retry, reindex, cancel, look at the source again.

A container stands for all that is below it. Reindexing is a rebuild from rest: it is refused for a root of which
anything is active or being deleted, and the other roots go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.admission import DEFAULT_PRIORITY, Request, Verdict
from holdfast.core.dependencies import SlotSpec
from holdfast.core.slot import JobId
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
# What a look at a container brings into it; whatever else stands there was put there by people.
BRINGS = {Kind.DIRECTORY: frozenset({Kind.FILE, Kind.DIRECTORY}), Kind.SITEMAP: frozenset({Kind.URL})}
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

    def look(self, base: Base, ids: Iterable[int], manner: Manner = USUAL, *, stirred: bool = False) -> list[Reply]:
        """Look at the sources of items again: fetch a page, scan a folder; what did not change costs nothing.

        A look that is under way is joined, unless the source `stirred`: then it may have missed that, and is replaced.
        """
        operation = Operation.CHANGE if stirred else Operation.FORCE
        roots = self._roots(base, ids)
        for root in roots:
            if root.source is None:
                raise BadRequest(f"{root.name!r} was uploaded; there is no place where it could be looked for again.")
        return [
            self._gone(base, root, operation, manner)
            if root.deleting
            else self._asked(base, root, [_look(base.key, root, manner, operation)])
            for root in roots
        ]

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
        return [
            self._gone(base, root, operation, manner) if root.deleting else self._each(base, root, operation, manner)
            for root in self._roots(base, ids)
        ]

    def _roots(self, base: Base, ids: Iterable[int]) -> list[Item]:
        wanted = list(ids)
        if not wanted:
            return []
        with self._store.database.reading() as tx:
            return outermost(tx, base, wanted)

    def _reindex(self, base: Base, root: Item, manner: Manner) -> Reply:
        """Ask for one root; that all of it is at rest is seen in the transaction that admits the first of its work."""
        refused: list[Reply] = []
        more: list[Request] = []

        def write(tx: Transaction) -> list[Request]:
            refused.clear()
            now = locked(tx, base, building=True)
            tree = below(tx, root.id)
            reason = _unfit(tree)
            if not reason:
                requests = self._again(now, tree, manner)
                more[:] = requests[LARGEST_BATCH:]
                return requests[:LARGEST_BATCH]
            status = standing(tree)
            job = _busy(tx, now, tree)
            refused.append(
                Reply(verdict=Verdict.REJECTED, reason=reason, status=status, name=root.name, item=root.id, job=job)
            )
            _record(tx, now, root, Operation.REINDEX, manner, reason=reason)
            return []

        answers = self._store.admit_with(write)
        return refused[0] if refused else _reply(root, [*answers, *self._admit(base, more, building=True)])

    def _again(self, base: Base, tree: Sequence[Placed], manner: Manner) -> list[Request]:
        """Ask for a tree to be built again; what a source brought is left to a look at it."""
        slots = self._adding.slots(base)
        bringing: dict[int, frozenset[Kind]] = {}
        requests: list[Request] = []
        for item, document, _ in tree:  # containers before what stands in them
            brought = item.source is not None and item.kind in bringing.get(item.parent, ())
            looks = item.source is not None and (item.container or item.kind is Kind.URL)
            if looks:
                bringing[item.id] = BRINGS.get(item.kind, frozenset())
            if brought:
                continue
            if looks:
                requests.append(_look(base.key, item, manner, payload=AGAIN))
            elif item.digest is not None:
                operation = Operation.INDEX if document is None else Operation.REINDEX
                requests.append(_request(base.key, item.key, operation, slots, manner))
        return requests

    def _gone(self, base: Base, root: Item, operation: Operation, manner: Manner) -> Reply:
        """Refuse what is asked of an item that is being deleted."""
        reason = "being_deleted"

        def write(tx: Transaction) -> None:
            _record(tx, locked(tx, base, building=False), root, operation, manner, reason=reason)

        self._store.database.write(write, durable=False)
        return Reply(verdict=Verdict.REJECTED, reason=reason, status=Status.DELETING, name=root.name, item=root.id)

    def _asked(self, base: Base, root: Item, requests: Sequence[Request]) -> Reply:
        def write(tx: Transaction) -> Sequence[Request]:
            locked(tx, base, building=True)
            return still_there(tx, requests)

        return _reply(root, self._store.admit_with(write))

    def _each(self, base: Base, root: Item, operation: Operation, manner: Manner) -> Reply:
        """Ask the same of a root and of all that stands below it."""
        with self._store.database.reading() as tx:
            tree = below(tx, root.id)
            now = tx.run(sql.READ_BASES, [[base.id]])
        specs = self._adding.slots(base_of(now[0]) if now else base)
        requests = [
            _request(base.key, owner, operation, () if operation is Operation.CANCEL else wanted, manner)
            for one in tree
            for owner, wanted in _owners(one, specs, operation)
        ]
        return _reply(root, self._admit(base, requests, building=operation is not Operation.CANCEL))

    def _admit(self, base: Base, requests: Sequence[Request], *, building: bool) -> list[Answer]:
        """Ask in bounded transactions; what is deleted meanwhile is left alone."""
        answers: list[Answer] = []
        for first in range(0, len(requests), LARGEST_BATCH):
            portion = requests[first : first + LARGEST_BATCH]

            def write(tx: Transaction, portion: Sequence[Request] = portion) -> Sequence[Request]:
                locked(tx, base, building=building)
                return still_there(tx, portion)

            answers += self._store.admit_with(write)
        return answers


def _request(base: str, owner: str, operation: Operation, slots: tuple[SlotSpec, ...], manner: Manner) -> Request:
    """Ask for something about the content and indexes of an item, or about its source."""
    return Request(
        base=base,
        owner=owner,
        operation=operation,
        slots=slots,
        requester=manner.requester,
        priority=manner.priority,
        cause=manner.cause,
    )


def _look(
    base: str, item: Item, manner: Manner, operation: Operation = Operation.FORCE, payload: str | None = None
) -> Request:
    """Ask for a look at the source of an item."""
    return Request(
        base=base,
        owner=item.source_key,
        operation=operation,
        slots=(SlotSpec(SOURCE),),
        requester=manner.requester,
        priority=manner.priority,
        cause=manner.cause,
        payload=payload,
    )


def _record(tx: Transaction, base: Base, root: Item, operation: Operation, manner: Manner, *, reason: str) -> None:
    """Note what was refused, and to whom."""
    row = [base.key, root.key, str(operation), str(Verdict.REJECTED), reason, None, manner.requester, 0.0]
    tx.run(slots_sql.AUDIT, [row])


def _busy(tx: Transaction, base: Base, tree: Sequence[Placed]) -> JobId | None:
    """Name the job that stands in the way of a tree, or one of them."""
    names = [[name] for one in tree if one.status not in TERMINAL for name in (one.item.key, one.item.source_key)]
    found = tx.run(sql.ACTIVE_JOBS, names[:LARGEST_BATCH], base=base.key) if names else []
    return JobId(found[0][0]) if found else None


def _unfit(tree: Sequence[Placed]) -> str:
    """Tell why a tree cannot be reindexed; nothing if it can."""
    if not tree or any(one.item.deleting for one in tree):
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
