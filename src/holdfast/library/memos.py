"""Paid answers, each kept under what was asked, so that nobody pays twice for the same text.

An answer is stored the moment it arrives and used only as read back: whoever stored first is believed by all. A memo
lives as long as a chunk uses it; one that was made from several documents goes with the first of them. Storing needs
a chunk that is still there, of a document that is not being deleted, and nothing else: a worker that was superseded
still saves what it paid for. One call may carry texts of many documents, so entries name the work they were paid for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import Permanent
from holdfast.library import statements as sql
from holdfast.stores.base import LARGEST_BATCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.slot import Ticket
    from holdfast.library.catalogue import Base
    from holdfast.stores.database import Database, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What one call cost, or what it would have cost."""

    kind: str
    model: str
    texts: int
    tokens_in: int = 0
    tokens_out: int = 0
    price: float | None = None  # None where it is not known
    paid: bool = True  # False: the answer was known


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The sum of many bills."""

    kind: str
    paid: bool
    texts: int
    tokens_in: int
    tokens_out: int
    price: float | None


class Entry(NamedTuple):
    """A paid answer on its way to the memos: for whose work it was paid, and which of its chunks use it."""

    ticket: Ticket
    key: str
    value: bytes
    chunks: Sequence[int]


class Use(NamedTuple):
    """An answer that is looked for: by whom, and for which chunks."""

    ticket: Ticket
    key: str
    chunks: Sequence[int]


def memo_key(kind: str, recipe: str, text: str) -> str:
    """Return the name of an answer: what was asked, by which recipe, about which text."""
    asked = f"{kind}\0{recipe}\0{text}".encode("utf-8", "surrogatepass")
    return blake2b(asked, digest_size=32).hexdigest()


class Memos:
    """Keeps paid answers for one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def recall(self, tenant: str, uses: Sequence[Use], bill: Bill) -> dict[str, bytes]:
        """Return what is known of these answers; note who uses them, and what each saved."""
        known: dict[str, bytes] = {}
        for first in range(0, len(uses), LARGEST_BATCH):
            known |= self._recall(tenant, uses[first : first + LARGEST_BATCH], bill)
        return known

    def _recall(self, tenant: str, uses: Sequence[Use], bill: Bill) -> dict[str, bytes]:
        with self._database.reading() as tx:  # most often nothing is known, and nobody need wait for a turn to write
            if not tx.run(sql.KNOWN_MEMOS, _keys(uses), tenant=tenant):
                return {}

        def work(tx: Transaction) -> dict[str, bytes]:
            tx.lock({use.ticket.owner for use in uses})
            known = _used(tx, tenant, uses)
            saved = Counter(use.ticket for use in uses if use.key in known)
            tx.run(sql.CHARGE, [_charge(who, replace(bill, texts=texts, paid=False)) for who, texts in saved.items()])
            return known

        return self._database.write(work, durable=False)

    def keep(
        self, tenant: str, entries: Sequence[Entry], bills: Mapping[Ticket, Bill], *, joint: bool = False
    ) -> dict[str, bytes]:
        """Store answers and what they cost; return them as they are now known.

        One made from several documents is stored only if all of them are still there.
        """

        def work(tx: Transaction) -> dict[str, bytes]:
            tx.lock({entry.ticket.owner for entry in entries} | (_owners(tx, entries) if joint else set()))
            living = _living(tx, entries)
            spoilt = {one.key for one in entries if joint and not living.issuperset(one.chunks)}
            kept = [one for one in entries if one.key not in spoilt and not living.isdisjoint(one.chunks)]
            tx.run(sql.KEEP_MEMOS, [[one.key, one.value, int(joint)] for one in kept], tenant=tenant)
            tx.run(sql.CHARGE, [_charge(ticket, bill) for ticket, bill in bills.items()])
            return _used(tx, tenant, [Use(one.ticket, one.key, one.chunks) for one in entries])

        return self._database.write(work, durable=True)

    def spent(self, base: str) -> list[Spent]:
        """Sum up what a base has paid and saved."""
        with self._database.reading() as tx:
            return [
                Spent(kind=kind, paid=bool(paid), texts=texts, tokens_in=tin, tokens_out=tout, price=price)
                for kind, paid, texts, tin, tout, price in tx.run(sql.SPENT, base=base)
            ]


def _owners(tx: Transaction, entries: Sequence[Entry]) -> set[int]:
    """Return whose chunks answers were made from."""
    return {owner for _, owner in tx.run(sql.OWNERS_OF, [[chunk] for one in entries for chunk in one.chunks])}


def allow(memos: Memos, base: Base, tokens: int) -> None:
    """Stop before the budget of a base is exceeded: nothing is asked that could cost more than is left."""
    budget = base.settings.budget_tokens
    if budget is None:
        return
    spent = sum(one.tokens_in + one.tokens_out for one in memos.spent(base.key) if one.paid)
    if spent + tokens > budget:
        raise Permanent(
            "budget_spent",
            f"The base {base.name!r} may spend {budget} tokens, has spent {spent}, and this would need about {tokens} "
            "more. Raise its budget and retry; what was paid for is kept.",
        )


def forget_uses(tx: Transaction, chunks: Sequence[int]) -> None:
    """End the uses of chunks that go, and remove the memos that nobody uses any more."""
    touched = [[memo] for memo in {memo for (memo,) in tx.run(sql.END_USES, [[chunk] for chunk in chunks])}]
    tx.run(sql.END_JOINT, touched)
    tx.run(sql.REMOVE_MEMOS, touched)


def _used(tx: Transaction, tenant: str, uses: Sequence[Use]) -> dict[str, bytes]:
    """Read answers, and note which chunks use them, of those that are still there."""
    rows = {key: (memo, value) for key, memo, value in tx.run(sql.KNOWN_MEMOS, _keys(uses), tenant=tenant)}
    found = [use for use in uses if use.key in rows]
    living = _living(tx, found)
    tx.run(sql.USE_MEMOS, [[rows[use.key][0], chunk] for use in found for chunk in use.chunks if chunk in living])
    return {key: bytes(value) for key, (_, value) in rows.items()}


def _keys(uses: Sequence[Use]) -> list[list[str]]:
    return [[key] for key in {use.key for use in uses}]


def _living(tx: Transaction, uses: Sequence[Use] | Sequence[Entry]) -> set[int]:
    """Return the chunks among these that are there and whose document is not being deleted."""
    chunks = {chunk for use in uses for chunk in use.chunks}
    return {chunk for (chunk,) in tx.run(sql.LIVING_CHUNKS, [[chunk] for chunk in chunks])}


def _charge(ticket: Ticket, bill: Bill) -> list[object]:
    return [
        ticket.key.base, ticket.key.owner, ticket.job, ticket.generation, bill.kind, bill.model, int(bill.paid),
        bill.texts, bill.tokens_in, bill.tokens_out, bill.price,
    ]  # fmt: skip
