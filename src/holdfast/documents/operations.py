"""What people ask of items that are there: index, retry, reindex, cancel, look at the source again.

A container stands for all that is below it. Reindexing is a rebuild from rest: it is refused for a root of which
anything is active or being deleted, and the other roots go on.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from holdfast.catalog import Kind, item_of, read_base
from holdfast.documents import statements as sql
from holdfast.documents.add import SOURCE, Reply
from holdfast.documents.selection import Placed, below, locked, outermost, standing, still_there, unchanged
from holdfast.engine import DEFAULT_PRIORITY, JobId, Operation, Request, SlotSpec, Status, Verdict
from holdfast.engine.store import LARGEST_BATCH, LOWEST_PRIORITY, record_refused
from holdfast.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.documents.add import Adding
    from holdfast.engine import Answer
    from holdfast.engine.store import SqlStore

TERMINAL = frozenset({Status.SUCCESS, Status.DEGRADED, Status.FAILED, Status.NOT_INDEXED})
# What a look at a container brings into it; whatever else stands there was put there by people.
BRINGS = {Kind.DIRECTORY: frozenset({Kind.FILE, Kind.DIRECTORY}), Kind.SITEMAP: frozenset({Kind.URL})}
CLEANED = LARGEST_BATCH // 2  # items whose clean-up is asked for in one transaction; each has two owners at most
AGAIN = "again"  # payload of a job that looks at a source: what did not change is indexed again, too


class Action(StrEnum):
    """What can be done to items.

    This is the only list of them: the API takes its choices from here, and a test compares the buttons of the page.
    """

    INDEX = "index"  # what is not indexed
    REINDEX = "reindex"  # build all of it again, from rest
    REFRESH = "refresh"  # look at its source again
    RETRY = "retry"  # what failed or is lacking; of what is being deleted, the clean-up
    FORCE = "force"  # build all of it, whatever it has
    CANCEL = "cancel"  # stop what is active
    DELETE = "delete"


# Done to a container they concern all that is below it, also what has another status.
SWEEPING = frozenset({Action.REINDEX, Action.FORCE, Action.DELETE})


class Manner(NamedTuple):
    """Who asks, how urgent it is, and which generations an item may have for it."""

    requester: str = ""
    priority: int = DEFAULT_PRIORITY
    cause: str = "user"
    unless_changed: Collection[int] | None = None  # None: any


USUAL = Manner()


class Requesting:
    """Asks for work on items."""

    def __init__(self, store: SqlStore, adding: Adding) -> None:
        self._store = store
        self._adding = adding

    def request(self, base: Base, ids: Iterable[int], action: Action, manner: Manner = USUAL) -> list[Reply]:
        """Ask for an action on items; `Removing` deletes them."""
        if action is Action.REINDEX:
            return self.reindex(base, ids, manner)
        if action is Action.REFRESH:
            return self.look(base, ids, manner)
        return self.ask(base, ids, Operation(action), manner)

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
                raise BadRequest(
                    f"{root.name!r} was uploaded; there is no place where it could be looked for again.",
                    "not_from_a_source",
                    name=root.name,
                )
        return [
            self._gone(base, root, operation, manner)
            if root.deleting
            else self._asked(base, root, [_look(base.key, root, manner, operation)], manner)
            for root in roots
        ]

    def look_due(self, limit: int) -> int:
        """Look at the sources again whose time has come; return how many."""

        def take(tx: Transaction) -> list[Request]:
            due = [item_of(row) for row in tx.run(sql.TAKE_DUE, limit=limit)]
            return [_look(str(item.base), item, Manner(priority=LOWEST_PRIORITY, cause="schedule")) for item in due]

        return len(self._store.admit_with(take))

    def ask(self, base: Base, ids: Iterable[int], operation: Operation, manner: Manner = USUAL) -> list[Reply]:
        """Index, retry, force or cancel items, with all that stands below them, in bounded transactions.

        Of what is being deleted only the clean-up can be tried again.
        """
        if operation in (Operation.CHANGE, Operation.DELETE, Operation.REINDEX):
            raise BadRequest(f"To {operation} an item use the verb of that name; it does more than this one.")
        return [self._one(base, root, operation, manner) for root in self._roots(base, ids)]

    def _one(self, base: Base, root: Item, operation: Operation, manner: Manner) -> Reply:
        if not root.deleting:
            return self._each(base, root, operation, manner)
        if operation is Operation.RETRY:
            return self._clean_up(base, root, manner)
        return self._gone(base, root, operation, manner)

    def of(self, base: Base, items: Iterable[Placed], action: Action, manner: Manner) -> list[list[Request]]:
        """Return what an action asks about each of these items, whatever stands below them; not for a delete."""
        specs = self._adding.slots(base)
        return [_asks(base.key, one, action, specs, manner) for one in items]

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
            unchanged(tx, now, root, manner.unless_changed)
            tree = below(tx, root.id)
            reason = _unfit(tree)
            if not reason:
                requests = _again(now.key, tree, self._adding.slots(now), manner)
                more[:] = requests[LARGEST_BATCH:]
                return requests[:LARGEST_BATCH]
            status = standing(tree)
            job = _busy(tx, now, tree)
            refused.append(
                Reply(verdict=Verdict.REJECTED, reason=reason, status=status, name=root.name, item=root.id, job=job)
            )
            _record(tx, now, refused[0], Operation.REINDEX, manner)
            return []

        answers = self._store.admit_with(write)
        return refused[0] if refused else reply_of(root, [*answers, *self._admit(base, more, building=True)])

    def _gone(self, base: Base, root: Item, operation: Operation, manner: Manner) -> Reply:
        """Answer, of an item that is being deleted, what makes no new work."""
        told = going(root)
        if operation is not Operation.RETRY:
            told = replace(told, verdict=Verdict.REJECTED, reason="being_deleted")

        def write(tx: Transaction) -> None:
            now = locked(tx, base, building=False)
            unchanged(tx, now, root, manner.unless_changed)
            _record(tx, now, told, operation, manner)

        self._store.database.write(write, durable=False)
        return told

    def _clean_up(self, base: Base, root: Item, manner: Manner) -> Reply:
        """Try the clean-up of a deleted item again now, with that of all that stands below it."""
        with self._store.database.reading() as tx:
            ids = [one.item.id for one in below(tx, root.id)]
        answers: list[Answer] = []
        for first in range(0, len(ids), CLEANED):
            portion = ids[first : first + CLEANED]

            def write(tx: Transaction, portion: Sequence[int] = portion) -> Sequence[Request]:
                now = locked(tx, base, building=False)
                if portion[0] == root.id:
                    unchanged(tx, now, root, manner.unless_changed)
                return [request for _, request in clean_ups(tx, portion, manner)]

            answers += self._store.admit_with(write)
        return cleaned(root, answers) or self._gone(base, root, Operation.RETRY, manner)

    def _asked(self, base: Base, root: Item, requests: Sequence[Request], manner: Manner) -> Reply:
        def write(tx: Transaction) -> Sequence[Request]:
            unchanged(tx, locked(tx, base, building=True), root, manner.unless_changed)
            return still_there(tx, requests)

        return reply_of(root, self._store.admit_with(write))

    def _each(self, base: Base, root: Item, operation: Operation, manner: Manner) -> Reply:
        """Ask the same of a root and of all that stands below it."""
        with self._store.database.reading() as tx:
            tree = below(tx, root.id)
            current = read_base(tx, base.id) or base
        requests = [one for some in self.of(current, tree, Action(operation), manner) for one in some]
        building = operation is not Operation.CANCEL

        def first(tx: Transaction) -> Sequence[Request]:
            unchanged(tx, locked(tx, base, building=building), root, manner.unless_changed)
            return still_there(tx, requests[:LARGEST_BATCH])

        asks = requests or manner.unless_changed is not None
        answers = self._store.admit_with(first) if asks else []
        return reply_of(root, [*answers, *self._admit(base, requests[LARGEST_BATCH:], building=building)])

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


def _asks(base: str, one: Placed, action: Action, specs: tuple[SlotSpec, ...], manner: Manner) -> list[Request]:
    """Return what an action asks about one item."""
    if action is Action.REFRESH:
        return [_look(base, one.item, manner)] if one.item.source is not None else []
    if action is Action.REINDEX:
        return _again(base, [one], specs, manner)
    operation = Operation(action)
    return [
        _request(base, owner, operation, () if operation is Operation.CANCEL else wanted, manner)
        for owner, wanted in _owners(one, specs, operation)
    ]


def _again(base: str, tree: Sequence[Placed], specs: tuple[SlotSpec, ...], manner: Manner) -> list[Request]:
    """Ask for a tree to be built again; what a source brought is left to a look at it."""
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
            requests.append(_look(base, item, manner, payload=AGAIN))
        elif item.digest is not None:
            operation = Operation.INDEX if document is None else Operation.REINDEX
            requests.append(_request(base, item.key, operation, specs, manner))
    return requests


def clean_ups(tx: Transaction, ids: Sequence[int], manner: Manner) -> list[tuple[int, Request]]:
    """Ask for the clean-up of deleted items once more, or for the first time where nobody has; name each item.

    An owner that is being deleted never becomes anything else, so a retry brings nothing back.
    """
    return [
        (id_, _request(base, owner, Operation.RETRY if status == Status.DELETING else Operation.DELETE, (), manner))
        for id_, base, owner, status in tx.run(sql.OWNERS_OF_DELETED, [[id_] for id_ in ids])
    ]


def cleaned(root: Item, answers: Sequence[Answer]) -> Reply | None:
    """Tell what came of a clean-up that is tried again; None where it has no slots any more, and goes by itself."""
    left = [answer for answer in answers if answer.reason != "unknown_owner"]
    return reply_of(root, left) if left else None


def going(root: Item) -> Reply:
    """Tell that an item is being deleted already."""
    return Reply(
        verdict=Verdict.JOINED, reason="already_deleting", status=Status.DELETING, name=root.name, item=root.id
    )


def _record(tx: Transaction, base: Base, told: Reply, operation: Operation, manner: Manner) -> None:
    """Note what was refused, and to whom."""
    row = [base.key, str(told.item), str(operation), str(told.verdict), told.reason, None, manner.requester, 0.0]
    record_refused(tx, [row])


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


def reply_of(root: Item, answers: Sequence[Answer]) -> Reply:
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
