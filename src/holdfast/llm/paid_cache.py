"""Paid answers, each kept under what was asked, so that nobody pays twice for the same text.

An answer is stored the moment it arrives and used only as read back: whoever stored first is believed by all. A memo
lives as long as a chunk uses it; one that was made from several documents goes with the first of them. Storing needs
a chunk that is still there, of a document that is not being deleted, and nothing else: a worker that was superseded
still saves what it paid for. One call may carry texts of many documents, so entries name the work they were paid for.

A query belongs to no document: its answer is remembered by the process that asked, and not stored.

The ledger is kept here as well: what was paid, written request by request (`llm.metering`), and what was saved.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from holdfast.catalog import Base, BaseSettings, lock_base, read_chunk_owners
from holdfast.engine.store import LARGEST_BATCH
from holdfast.errors import BadRequest, Permanent
from holdfast.llm import statements as sql
from holdfast.llm.failures import BUDGET_SPENT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine import Ticket
    from holdfast.llm.prices import Price

T = TypeVar("T")

MAX_CACHED_QUERIES = 256  # queries whose answers are kept in memory
NO_PRICES: Mapping[str, Price] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one call cost, or what it would have cost."""

    kind: str
    model: str
    texts: int
    tokens_in: int = 0
    tokens_out: int = 0
    price: float | None = None  # None where it is not known
    paid: bool = True  # False: the answer was known
    estimated: bool = False  # the provider did not report its tokens

    def add_usage(self, texts: int, tokens_in: int, tokens_out: int) -> Charge:
        """Return this bill with more on it."""
        return replace(
            self,
            texts=self.texts + texts,
            tokens_in=self.tokens_in + tokens_in,
            tokens_out=self.tokens_out + tokens_out,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """A sum of paid calls, or of those that were spared."""

    kind: str  # "" for all kinds
    texts: int
    tokens_in: int
    tokens_out: int
    price: float | None  # of those whose price was known
    unpriced: int  # texts whose price was not
    estimated: int = 0  # tokens among these that no provider reported: of requests under way, or that broke off

    @property
    def tokens(self) -> int:
        """All tokens, read and written."""
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSummary:
    """What was paid, and what was spared because an answer was known: in total and by kind of work."""

    spent: UsageTotal
    saved: UsageTotal
    kinds_spent: list[UsageTotal]
    kinds_saved: list[UsageTotal]


class PaidAnswer(NamedTuple):
    """A paid answer on its way to the memos: for whose work it was paid, and which of its chunks use it."""

    ticket: Ticket
    key: str
    value: bytes
    chunks: Sequence[int]
    tokens_in: int = 0
    tokens_out: int = 0


class AnswerLookup(NamedTuple):
    """An answer that is looked for: by whom, and for which chunks."""

    ticket: Ticket
    key: str
    chunks: Sequence[int]


def answer_key(kind: str, recipe: str, text: str) -> str:
    """Return the name of an answer: what was asked, by which recipe, about which text."""
    asked = f"{kind}\0{recipe}\0{text}".encode("utf-8", "surrogatepass")
    return blake2b(asked, digest_size=32).hexdigest()


class PaidAnswerCache:
    """Keeps paid answers for one database; `prices` are those of the models, by name."""

    def __init__(self, database: Database, prices: Mapping[str, Price] = NO_PRICES) -> None:
        self._database = database
        self.prices = prices
        self._queries: OrderedDict[Hashable, object] = OrderedDict()
        self._mutex = threading.Lock()

    def find_answers(self, tenant: str, uses: Sequence[AnswerLookup], bill: Charge) -> dict[str, bytes]:
        """Return what is known of these answers; note who uses them, and what each saved."""
        known: dict[str, bytes] = {}
        for first in range(0, len(uses), LARGEST_BATCH):
            known |= self._find_batch(tenant, uses[first : first + LARGEST_BATCH], bill)
        return known

    def _find_batch(self, tenant: str, uses: Sequence[AnswerLookup], bill: Charge) -> dict[str, bytes]:
        with self._database.reading() as tx:  # most often nothing is known, and nobody need wait for a turn to write
            if not tx.run(sql.SELECT_MEMOS, _keys(uses), tenant=tenant):
                return {}

        def work(tx: Transaction) -> dict[str, bytes]:
            tx.lock_owners({use.ticket.owner for use in uses})
            known = _read_and_record_uses(tx, tenant, uses)
            saved: dict[Ticket, Charge] = {}
            for use in uses:
                if use.key in known:
                    before = saved.get(use.ticket) or replace(bill, texts=0, tokens_in=0, tokens_out=0, paid=False)
                    saved[use.ticket] = before.add_usage(1, known[use.key].tokens_in, known[use.key].tokens_out)
            tx.run(sql.INSERT_CHARGES, [self._charge(who.key.base, who, one) for who, one in saved.items()])
            return {key: one.value for key, one in known.items()}

        return self._database.write(work, durable=False)

    def store_answers(self, tenant: str, entries: Sequence[PaidAnswer], *, joint: bool = False) -> dict[str, bytes]:
        """Store answers; return them as they are now known.

        One made from several documents is stored only if all of them are still there.
        """

        def work(tx: Transaction) -> dict[str, bytes]:
            tx.lock_owners({entry.ticket.owner for entry in entries} | (_owners(tx, entries) if joint else set()))
            living = _live_chunks(tx, entries)
            spoilt = {one.key for one in entries if joint and not living.issuperset(one.chunks)}
            kept = [one for one in entries if one.key not in spoilt and not living.isdisjoint(one.chunks)]
            rows = [[one.key, one.value, int(joint), one.tokens_in, one.tokens_out] for one in kept]
            tx.run(sql.INSERT_MEMOS, rows, tenant=tenant)
            stored = _read_and_record_uses(
                tx, tenant, [AnswerLookup(one.ticket, one.key, one.chunks) for one in entries]
            )
            return {key: one.value for key, one in stored.items()}

        return self._database.write(work, durable=True)

    def get_query_answer(self, asked: Hashable, ask: Callable[[], T]) -> T:
        """Return the answer to a query; what was asked lately is not asked again."""
        with self._mutex:
            if asked in self._queries:
                self._queries.move_to_end(asked)
                return cast("T", self._queries[asked])
        answer = ask()
        with self._mutex:
            self._queries[asked] = answer
            while len(self._queries) > MAX_CACHED_QUERIES:
                self._queries.popitem(last=False)
        return answer

    def find_paying_base(self, recipe: int) -> Base:
        """Return the base that pays for queries about rows of this recipe."""
        with self._database.reading() as tx:
            for id_, name, settings in tx.run(sql.SELECT_BASE_OF_RECIPE, recipe=recipe):
                return Base(id=id_, name=name, settings=BaseSettings.from_json(settings))
        raise BadRequest("Nothing can be asked of a base that has been deleted.")

    # ------------------------------------------------------------ the ledger

    def reserve(self, base: Base, bills: Sequence[tuple[Ticket | None, Charge]]) -> list[int]:
        """Write what a request may cost at most, if the budget allows it; return the rows, in order of the bills."""

        def work(tx: Transaction) -> list[int]:
            if base.settings.budget_tokens is not None:
                lock_base(tx, base.id)  # others that check the same budget wait here
                spent = _summarize(tx.run(sql.SUM_CHARGES, base=base.key)).spent.tokens
                _raise_if_over_budget(base, spent, sum(bill.tokens_in + bill.tokens_out for _, bill in bills))
            rows = [self._charge(base.key, ticket, bill) for ticket, bill in bills]
            return sorted(row for (row,) in tx.run(sql.INSERT_CHARGES, rows))

        return self._database.write(work, durable=False)

    def settle(self, bills: Sequence[tuple[int, Charge]]) -> None:
        """Replace what was reserved by what it cost."""
        rows = [[row, *self._cost(bill)] for row, bill in bills]
        self._database.write(lambda tx: tx.run(sql.UPDATE_CHARGES, rows), durable=True)

    def cancel(self, rows: Sequence[int]) -> None:
        """Remove what was reserved for a request that cost nothing."""
        self._database.write(lambda tx: tx.run(sql.DELETE_CHARGES, [[row] for row in rows]), durable=False)

    def summarize_base(self, base: str, owners: Sequence[str] | None = None) -> LedgerSummary:
        """Sum up what a base has paid and saved, or what was paid and saved for some of its owners, by kind of work."""
        with self._database.reading() as tx:
            if owners is None:
                return _summarize(tx.run(sql.SUM_CHARGES, base=base))
            return _summarize(tx.run(sql.SUM_CHARGES_OF_OWNERS, [[owner] for owner in owners], base=base))

    def summarize_bases(self, bases: Collection[str]) -> LedgerSummary:
        """Sum up the same for many bases, in one reading; kinds of work are not told apart."""
        with self._database.reading() as tx:
            return _summarize(("", *row) for base, *row in tx.run(sql.SUM_CHARGES_BY_BASE) if base in bases)

    def _charge(self, base: str, ticket: Ticket | None, bill: Charge) -> list[object]:
        work = [None] * 3 if ticket is None else [ticket.key.owner, ticket.job, ticket.generation]
        return [base, *work, bill.kind, bill.model, int(bill.paid), bill.texts, *self._cost(bill)]

    def _cost(self, bill: Charge) -> list[object]:
        """Return the tokens of a bill and their price at this moment."""
        known = self.prices.get(bill.model.rpartition("@")[0])
        price = known.cost(bill.tokens_in, bill.tokens_out) if bill.price is None and known is not None else bill.price
        return [bill.tokens_in, bill.tokens_out, price, int(bill.estimated)]


def _owners(tx: Transaction, entries: Sequence[PaidAnswer]) -> set[int]:
    """Return whose chunks answers were made from."""
    return {owner for _, owner in read_chunk_owners(tx, (chunk for one in entries for chunk in one.chunks))}


def require_budget(memos: PaidAnswerCache, base: Base, tokens: int) -> None:
    """Stop before a work begins that may need more tokens than the budget of its base has left."""
    if base.settings.budget_tokens is not None:
        _raise_if_over_budget(base, memos.summarize_base(base.key).spent.tokens, tokens)


def _raise_if_over_budget(base: Base, spent: int, tokens: int) -> None:
    """Raise `budget_spent` if so many tokens more would exceed the budget."""
    budget = base.settings.budget_tokens or 0
    if spent + tokens > budget:
        raise Permanent(
            BUDGET_SPENT,
            f"The base {base.name!r} may spend {budget} tokens, has spent {spent}, and this would need up to {tokens} "
            "more. Raise the budget of the base and retry; what was paid for is kept.",
            params={"budget": str(budget), "spent": str(spent), "tokens": str(tokens)},
        )


def remove_uses(tx: Transaction, chunks: Sequence[int]) -> None:
    """End the uses of chunks that go, and remove the memos that nobody uses any more."""
    remove_released_answers(tx, {memo for (memo,) in tx.run(sql.DELETE_MEMO_USES, [[chunk] for chunk in chunks])})


def remove_released_answers(tx: Transaction, memos: Iterable[int]) -> None:
    """Remove memos that have just lost a use, or what held them for one, unless somebody else has them."""
    touched = [[memo] for memo in memos]
    tx.run(sql.DELETE_JOINT_USES, touched)
    tx.run(sql.DELETE_JOINT_HOLDS, touched)
    tx.run(sql.DELETE_UNUSED_MEMOS, touched)


def remove_orphan_answers(tx: Transaction, memos: Iterable[int]) -> None:
    """Remove those of the memos that nothing uses or holds; unlike `remove_unused` this ends no use."""
    tx.run(sql.DELETE_UNUSED_MEMOS, [[memo] for memo in memos])


class _StoredAnswer(NamedTuple):
    """A stored answer, and what it cost."""

    id: int
    value: bytes
    tokens_in: int
    tokens_out: int


def _read_and_record_uses(tx: Transaction, tenant: str, uses: Sequence[AnswerLookup]) -> dict[str, _StoredAnswer]:
    """Read answers, and note which chunks use them, of those that are still there."""
    rows = {
        key: _StoredAnswer(id_, bytes(value), *tokens)
        for key, id_, value, *tokens in tx.run(sql.SELECT_MEMOS, _keys(uses), tenant=tenant)
    }
    found = [use for use in uses if use.key in rows]
    living = _live_chunks(tx, found)
    tx.run(
        sql.INSERT_MEMO_USES, [[rows[use.key].id, chunk] for use in found for chunk in use.chunks if chunk in living]
    )
    return rows


def _summarize(rows: Iterable[Sequence[Any]]) -> LedgerSummary:
    spent: list[UsageTotal] = []
    saved: list[UsageTotal] = []
    for kind, paid, texts, read, written, price, unpriced, estimated in rows:
        (spent if paid else saved).append(
            UsageTotal(
                kind=kind,
                texts=int(texts),
                tokens_in=int(read),
                tokens_out=int(written),
                price=price,
                unpriced=int(unpriced),
                estimated=int(estimated),
            )
        )
    return LedgerSummary(spent=_sum(spent), saved=_sum(saved), kinds_spent=spent, kinds_saved=saved)


def _sum(bills: Sequence[UsageTotal]) -> UsageTotal:
    """Add up bills; the price is that of those which have one."""
    prices = [one.price for one in bills if one.price is not None]
    return UsageTotal(
        kind="",
        texts=sum(one.texts for one in bills),
        tokens_in=sum(one.tokens_in for one in bills),
        tokens_out=sum(one.tokens_out for one in bills),
        price=sum(prices) if prices else None,
        unpriced=sum(one.unpriced for one in bills),
        estimated=sum(one.estimated for one in bills),
    )


def _keys(uses: Sequence[AnswerLookup]) -> list[list[str]]:
    return [[key] for key in {use.key for use in uses}]


def _live_chunks(tx: Transaction, uses: Sequence[AnswerLookup] | Sequence[PaidAnswer]) -> set[int]:
    """Return the chunks among these that are there and whose document is not being deleted."""
    chunks = {chunk for use in uses for chunk in use.chunks}
    return {chunk for (chunk,) in tx.run(sql.SELECT_LIVE_CHUNKS, [[chunk] for chunk in chunks])}
