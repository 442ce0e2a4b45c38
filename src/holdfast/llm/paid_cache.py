"""The cache of paid answers, so that no text is paid for twice, and the ledger.

An answer is stored the moment it arrives and used only as read back: the first writer wins. A stored answer (a memo)
lives as long as a chunk uses it; an answer from several documents is removed with the first of them. Storing requires
an existing chunk of a document that is not being deleted, and nothing else: a superseded worker still saves the answers
it paid for. One call may contain texts of many documents, so each answer names the work it was paid for.

A query belongs to no document: its answer is cached in the memory of the process and not stored.

The ledger records paid requests, written one by one (`llm.metering`), and the savings of the cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from holdfast.catalog import Base, BaseSettings, lock_base, read_chunk_owners
from holdfast.engine import JobId, Total
from holdfast.engine.store import LARGEST_BATCH, add_increments
from holdfast.errors import BadRequest, Permanent
from holdfast.llm import statements as sql
from holdfast.llm.failures import BUDGET_SPENT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from holdfast.db import Database, Transaction
    from holdfast.engine import Ticket
    from holdfast.engine.store import Job
    from holdfast.llm.prices import Price

T = TypeVar("T")

MAX_CACHED_QUERIES = 256  # in memory
NO_PRICES: Mapping[str, Price] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The cost of a request, or the cost that the cache saved."""

    kind: str
    model: str
    texts: int
    tokens_in: int = 0
    tokens_out: int = 0
    price: float | None = None  # None: from the price of the model, if known
    paid: bool = True  # False: the answer was cached
    estimated: bool = False  # the provider did not report its tokens

    def add_usage(self, texts: int, tokens_in: int, tokens_out: int) -> Charge:
        return replace(
            self,
            texts=self.texts + texts,
            tokens_in=self.tokens_in + tokens_in,
            tokens_out=self.tokens_out + tokens_out,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotal:
    """A sum of paid requests, or of saved ones."""

    kind: str  # "" for all kinds
    texts: int
    tokens_in: int
    tokens_out: int
    price: float | None  # of the texts with a known price
    unpriced: int  # texts without a known price
    estimated: int = 0  # tokens of requests in flight or without a report, included in the sums

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSummary:
    """What was paid and what the cache saved, in total and by kind of work."""

    spent: UsageTotal
    saved: UsageTotal
    kinds_spent: list[UsageTotal]
    kinds_saved: list[UsageTotal]


class PaidAnswer(NamedTuple):
    """A paid answer to store."""

    ticket: Ticket  # the work it was paid for
    key: str
    value: bytes
    chunks: Sequence[int]  # that use the answer
    tokens_in: int = 0
    tokens_out: int = 0


class AnswerLookup(NamedTuple):
    ticket: Ticket
    key: str
    chunks: Sequence[int]


def answer_key(kind: str, recipe: str, text: str) -> str:
    """Return the cache key of an answer about a text."""
    parts = f"{kind}\0{recipe}\0{text}".encode("utf-8", "surrogatepass")
    return blake2b(parts, digest_size=32).hexdigest()


class PaidAnswerCache:
    """The paid answers and the ledger of one database; `prices` are by name of the model."""

    def __init__(self, database: Database, prices: Mapping[str, Price] = NO_PRICES) -> None:
        self._database = database
        self.prices = prices
        self._queries: OrderedDict[Hashable, object] = OrderedDict()
        self._mutex = threading.Lock()

    def find_answers(self, tenant: str, uses: Sequence[AnswerLookup], bill: Charge) -> dict[str, bytes]:
        """Return the cached answers; record their uses, and the savings on the ledger."""
        known: dict[str, bytes] = {}
        for first in range(0, len(uses), LARGEST_BATCH):
            known |= self._find_batch(tenant, uses[first : first + LARGEST_BATCH], bill)
        return known

    def _find_batch(self, tenant: str, uses: Sequence[AnswerLookup], bill: Charge) -> dict[str, bytes]:
        with self._database.reading() as tx:  # usually nothing is cached, and no write is needed
            if not tx.run(sql.SELECT_MEMOS, _keys(uses), tenant=tenant):
                return {}

        def work(tx: Transaction) -> dict[str, bytes]:
            tx.lock_owners({use.ticket.owner for use in uses})
            known = _read_and_record_uses(tx, tenant, uses)
            costs = {key: (answer.tokens_in, answer.tokens_out) for key, answer in known.items()}
            self._record_savings(tx, uses, costs, bill)
            return {key: answer.value for key, answer in known.items()}

        return self._database.write(work, durable=False)

    def record_reuse(self, tenant: str, uses: Sequence[AnswerLookup], bill: Charge) -> None:
        """Record on the ledger the saved costs of the answers from which existing rows were made."""
        for first in range(0, len(uses), LARGEST_BATCH):
            portion = uses[first : first + LARGEST_BATCH]
            with self._database.reading() as tx:
                costs = {key: tokens for key, *tokens in tx.run(sql.SELECT_MEMO_COSTS, _keys(portion), tenant=tenant)}
            if costs:
                self._database.write(partial(self._record_savings, uses=portion, costs=costs, bill=bill), durable=False)

    def _record_savings(
        self, tx: Transaction, uses: Sequence[AnswerLookup], costs: Mapping[str, Sequence[int]], bill: Charge
    ) -> None:
        """Record what each work saves by cached answers, whose costs are given by key."""
        saved: dict[Ticket, Charge] = {}
        for use in uses:
            if use.key in costs:
                before = saved.get(use.ticket) or replace(bill, texts=0, tokens_in=0, tokens_out=0, paid=False)
                saved[use.ticket] = before.add_usage(1, *costs[use.key])
        rows = [self._charge(ticket.key.base, ticket, charge) for ticket, charge in saved.items()]
        tx.run(sql.INSERT_CHARGES, rows)
        self._add_to_totals(tx, saved.values())

    def store_answers(self, tenant: str, entries: Sequence[PaidAnswer], *, joint: bool = False) -> dict[str, bytes]:
        """Store answers; return the stored ones, which another worker may have stored first.

        A `joint` answer was made from several documents. It is stored only if all its chunks still exist.
        """

        def work(tx: Transaction) -> dict[str, bytes]:
            tx.lock_owners({entry.ticket.owner for entry in entries} | (_owners(tx, entries) if joint else set()))
            live = _live_chunks(tx, entries)
            incomplete = {entry.key for entry in entries if joint and not live.issuperset(entry.chunks)}
            usable = [entry for entry in entries if entry.key not in incomplete and not live.isdisjoint(entry.chunks)]
            rows = [[entry.key, entry.value, int(joint), entry.tokens_in, entry.tokens_out] for entry in usable]
            tx.run(sql.INSERT_MEMOS, rows, tenant=tenant)
            uses = [AnswerLookup(entry.ticket, entry.key, entry.chunks) for entry in entries]
            return {key: answer.value for key, answer in _read_and_record_uses(tx, tenant, uses).items()}

        return self._database.write(work, durable=True)

    def get_query_answer(self, key: Hashable, ask: Callable[[], T]) -> T:
        """Return the answer to a query from memory, or from `ask`."""
        with self._mutex:
            if key in self._queries:
                self._queries.move_to_end(key)
                return cast("T", self._queries[key])
        answer = ask()
        with self._mutex:
            self._queries[key] = answer
            while len(self._queries) > MAX_CACHED_QUERIES:
                self._queries.popitem(last=False)
        return answer

    def find_paying_base(self, recipe: int) -> Base:
        """Return the base that pays for queries about rows of this recipe."""
        with self._database.reading() as tx:
            for id_, name, settings in tx.run(sql.SELECT_BASE_OF_RECIPE, recipe=recipe):
                return Base(id=id_, name=name, settings=BaseSettings.from_json(settings))
        raise BadRequest("base_deleted")

    def reserve(self, base: Base, bills: Sequence[tuple[Ticket | None, Charge]]) -> list[int]:
        """Write the maximum cost of a request if the budget allows it; return the row ids, in order of `bills`."""

        def work(tx: Transaction) -> list[int]:
            if base.settings.budget_tokens is not None:
                lock_base(tx, base.id)  # serialises the checks of one budget
                spent = _summarize(tx.run(sql.SUM_CHARGES, base=base.key)).spent.tokens
                _raise_if_over_budget(base, spent, sum(bill.tokens_in + bill.tokens_out for _, bill in bills))
            rows = [self._charge(base.key, ticket, bill) for ticket, bill in bills]
            return sorted(row for (row,) in tx.run(sql.INSERT_CHARGES, rows))

        return self._database.write(work, durable=False)

    def settle(self, bills: Sequence[tuple[int, Charge]]) -> None:
        """Replace the reserved maximum by the actual cost."""
        rows = [[row, *self._cost(bill)] for row, bill in bills]

        def work(tx: Transaction) -> None:
            tx.run(sql.UPDATE_CHARGES, rows)
            self._add_to_totals(tx, [bill for _, bill in bills])

        self._database.write(work, durable=True)

    def cancel(self, rows: Sequence[int]) -> None:
        """Remove the rows of a request that cost nothing."""
        self._database.write(lambda tx: tx.run(sql.DELETE_CHARGES, [[row] for row in rows]), durable=False)

    def summarize_base(self, base: str, owners: Sequence[str] | None = None) -> LedgerSummary:
        """Return what a base has paid and saved, by kind of work; with `owners`, only for these."""
        with self._database.reading() as tx:
            if owners is None:
                return _summarize(tx.run(sql.SUM_CHARGES, base=base))
            return _summarize(tx.run(sql.SUM_CHARGES_OF_OWNERS, [[owner] for owner in owners], base=base))

    def summarize_jobs(self, jobs: Sequence[Job]) -> dict[JobId, LedgerSummary]:
        """Return what each job has paid and saved, by kind of work; jobs without paid work are left out."""
        by_job: dict[JobId, list[Sequence[Any]]] = {}
        with self._database.reading() as tx:
            for job, *row in tx.run(sql.SUM_CHARGES_OF_JOBS, [[job.base, job.owner, job.id] for job in jobs]):
                by_job.setdefault(JobId(job), []).append(row)
        return {job: _summarize(rows) for job, rows in by_job.items()}

    def summarize_bases(self, bases: Collection[str]) -> LedgerSummary:
        """Return the totals of many bases, without the kinds of work."""
        with self._database.reading() as tx:
            return _summarize(("", *row) for base, *row in tx.run(sql.SUM_CHARGES_BY_BASE) if base in bases)

    def _charge(self, base: str, ticket: Ticket | None, bill: Charge) -> list[object]:
        work = [None] * 3 if ticket is None else [ticket.key.owner, ticket.job, ticket.generation]
        return [base, *work, bill.kind, bill.model, int(bill.paid), bill.texts, *self._cost(bill)]

    def _add_to_totals(self, tx: Transaction, bills: Iterable[Charge]) -> None:
        """Add paid and saved tokens, money and texts to the totals of the metrics."""
        added: defaultdict[Total, float] = defaultdict(float)
        for bill in bills:
            tokens_in, tokens_out, price, _ = self._cost(bill)
            detail = "true" if bill.paid else "false"
            added[Total("tokens", bill.kind, detail)] += tokens_in + tokens_out
            added[Total("cost", bill.kind, detail)] += price or 0.0
            added[Total("texts", bill.kind, detail)] += bill.texts
        add_increments(tx, added)

    def _cost(self, bill: Charge) -> tuple[int, int, float | None, int]:
        known = self.prices.get(bill.model.rpartition("@")[0])
        price = known.cost(bill.tokens_in, bill.tokens_out) if bill.price is None and known is not None else bill.price
        return bill.tokens_in, bill.tokens_out, price, int(bill.estimated)


def _owners(tx: Transaction, entries: Sequence[PaidAnswer]) -> set[int]:
    """Return the owners of the chunks that answers were made from."""
    return {owner for _, owner in read_chunk_owners(tx, (chunk for entry in entries for chunk in entry.chunks))}


def require_budget(memos: PaidAnswerCache, base: Base, tokens: int) -> None:
    """Raise `budget_spent` if the budget of a base has fewer tokens left."""
    if base.settings.budget_tokens is not None:
        _raise_if_over_budget(base, memos.summarize_base(base.key).spent.tokens, tokens)


def _raise_if_over_budget(base: Base, spent: int, tokens: int) -> None:
    budget = base.settings.budget_tokens or 0
    if spent + tokens > budget:
        raise Permanent(
            BUDGET_SPENT,
            params={"base": base.name, "budget": str(budget), "spent": str(spent), "tokens": str(tokens)},
        )


def remove_uses(tx: Transaction, chunks: Sequence[int]) -> None:
    """Remove the uses of deleted chunks, and the answers without any other use."""
    remove_released_answers(tx, {memo for (memo,) in tx.run(sql.DELETE_MEMO_USES, [[chunk] for chunk in chunks])})


def remove_released_answers(tx: Transaction, memos: Iterable[int]) -> None:
    """Remove answers that have just lost a use or a hold and have no other. Joint answers always go."""
    rows = [[memo] for memo in memos]
    tx.run(sql.DELETE_JOINT_USES, rows)
    tx.run(sql.DELETE_JOINT_HOLDS, rows)
    tx.run(sql.DELETE_UNUSED_MEMOS, rows)


def remove_orphan_answers(tx: Transaction, memos: Iterable[int]) -> None:
    """Remove the answers without any use or hold; unlike `remove_released_answers` this removes no use."""
    tx.run(sql.DELETE_UNUSED_MEMOS, [[memo] for memo in memos])


class _StoredAnswer(NamedTuple):
    id: int
    value: bytes
    tokens_in: int
    tokens_out: int


def _read_and_record_uses(tx: Transaction, tenant: str, uses: Sequence[AnswerLookup]) -> dict[str, _StoredAnswer]:
    """Return the stored answers, and record their uses by chunks that still exist."""
    rows = {
        key: _StoredAnswer(id_, bytes(value), *tokens)
        for key, id_, value, *tokens in tx.run(sql.SELECT_MEMOS, _keys(uses), tenant=tenant)
    }
    found = [use for use in uses if use.key in rows]
    live = _live_chunks(tx, found)
    tx.run(sql.INSERT_MEMO_USES, [[rows[use.key].id, chunk] for use in found for chunk in use.chunks if chunk in live])
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


def _sum(totals: Sequence[UsageTotal]) -> UsageTotal:
    prices = [total.price for total in totals if total.price is not None]
    return UsageTotal(
        kind="",
        texts=sum(total.texts for total in totals),
        tokens_in=sum(total.tokens_in for total in totals),
        tokens_out=sum(total.tokens_out for total in totals),
        price=sum(prices) if prices else None,
        unpriced=sum(total.unpriced for total in totals),
        estimated=sum(total.estimated for total in totals),
    )


def _keys(uses: Sequence[AnswerLookup]) -> list[list[str]]:
    return [[key] for key in {use.key for use in uses}]


def _live_chunks(tx: Transaction, uses: Sequence[AnswerLookup] | Sequence[PaidAnswer]) -> set[int]:
    """Return the chunks that exist and whose document is not being deleted."""
    chunks = {chunk for use in uses for chunk in use.chunks}
    return {chunk for (chunk,) in tx.run(sql.SELECT_LIVE_CHUNKS, [[chunk] for chunk in chunks])}
