"""The only way to paid providers: every request is on the ledger of a base and within its budget.

The raw provider is private here. A caller names the base that pays (`MeteredProvider.charge_to`) and gets a provider
whose requests create a `LedgerEntry`; so a new caller cannot forget the ledger.

A request is written to the ledger before it is sent, with its maximum cost, in the transaction that checks the budget.
So concurrent requests cannot exceed a budget together, and a killed process leaves its requests on the ledger, marked
as estimated. When the request ends, the row gets the usage that the provider reported. Without a report the cost is
estimated from the texts, also for streams that the client left and for broken answers that the provider may bill. A
request that the provider rejected is removed.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, Self

from holdfast.content import estimate_tokens
from holdfast.errors import StoreError
from holdfast.llm.base import DelegatedModelInfo
from holdfast.llm.paid_cache import Charge
from holdfast.tracing import NO_SPAN, NO_TRACER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from holdfast.catalog import Base
    from holdfast.engine import Ticket
    from holdfast.llm.base import Provider, UnmeteredProvider
    from holdfast.llm.paid_cache import PaidAnswerCache
    from holdfast.tracing import Span, Tracer

log = logging.getLogger("holdfast")


class MeteredProvider(DelegatedModelInfo):
    """A provider that can be called only on the account of a base.

    Example: `provider.charge_to(base, "query").embed(["tide"])`
    """

    def __init__(self, provider: UnmeteredProvider, memos: PaidAnswerCache, tracer: Tracer = NO_TRACER) -> None:
        super().__init__(provider)
        self._tracer = tracer
        self._provider = provider
        self._memos = memos

    def charge_to(
        self, base: Base | None, kind: str, *, ticket: Ticket | None = None, by_text: Mapping[str, Ticket] | None = None
    ) -> Provider:
        """Return the provider for requests of one kind that this base pays.

        The requests are charged to the work of `ticket`, or of each text in `by_text` if texts of many documents share
        a request. Only a free provider can be used without a base.
        """
        if base is None and self.paid:
            raise ValueError("a request to a paid provider needs a base that pays for it")
        account = BillingContext(base if self.paid else None, kind, self.version, ticket, by_text or {})
        return self._provider.with_meter(partial(LedgerEntry, self._memos, account, tracer=self._tracer))


class BillingContext(NamedTuple):
    """The base that pays for requests, and the work they are for."""

    base: Base | None
    kind: str  # on the ledger
    version: str  # of the provider
    ticket: Ticket | None
    by_text: Mapping[str, Ticket]

    def group_by_ticket(self, texts: Sequence[str]) -> dict[Ticket | None, list[str]]:
        """Return the texts of a request by the work they are for; a probe is charged to the first work."""
        first = self.ticket or next(iter(self.by_text.values()), None)
        groups: dict[Ticket | None, list[str]] = {}
        for text in texts:
            groups.setdefault(self.by_text.get(text, first), []).append(text)
        return groups


class LedgerEntry:
    """One request on the ledger, from before it is sent until its cost is known; one row for each work it is for."""

    def __init__(
        self,
        memos: PaidAnswerCache,
        account: BillingContext,
        model: str,
        texts: Sequence[str],
        most_out: int = 0,
        *,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._memos = memos
        self._account = account
        self._model_name = model
        self._model = f"{model}@{account.version}"
        self._by_ticket = account.group_by_ticket(texts)
        self._sizes = [sum(map(estimate_tokens, group)) for group in self._by_ticket.values()]
        self._most_out = most_out
        self._rows: list[int] = []
        self._reported: tuple[int, int] | None = None
        self._output_tokens = 0  # of the answer so far, estimated
        self._rejected = False
        self._tracer = tracer
        self._span: Span = NO_SPAN

    def __enter__(self) -> Self:
        """Reserve the maximum cost of the request, or raise `budget_spent`."""
        account = self._account
        self._span = self._tracer.call(
            "call provider",
            {
                "holdfast.base": account.base.key if account.base else None,
                "holdfast.kind": account.kind,
                "holdfast.texts": sum(map(len, self._by_ticket.values())),
                "gen_ai.request.model": self._model_name,
            },
        )
        if account.base is not None:
            bills = self._split_charges(sum(self._sizes), self._most_out, estimated=True)
            try:
                self._rows = self._memos.reserve(account.base, list(zip(self._by_ticket, bills, strict=True)))
            except BaseException as problem:
                self._end_span(problem)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the cost of the request; if that fails, the reserved estimate remains."""
        self._end_span(error)
        try:
            self._settle(failed=kind is not None)
        except StoreError as problem:
            log.warning("ledger.not_settled base=%s error=%s", self._account.base and self._account.base.key, problem)

    def report_tokens(self, tokens_in: int, tokens_out: int) -> None:
        """Record the reported usage; zero tokens are no report."""
        if tokens_in or tokens_out:
            self._reported = tokens_in, tokens_out

    def add_output(self, words: str) -> None:
        self._output_tokens += estimate_tokens(words)

    def mark_unbilled(self) -> None:
        self._rejected = True

    def _end_span(self, error: BaseException | None) -> None:
        if self._reported is not None:
            read, written = self._reported
            self._span.set({"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written})
        self._span.__exit__(None, error, None)

    def _settle(self, *, failed: bool) -> None:
        if not self._rows:
            return
        if self._rejected:
            self._memos.cancel(self._rows)
            return
        tokens_in, tokens_out = self._reported or (sum(self._sizes), self._output_tokens)
        # A stream that broke off may have reported only its beginning.
        estimated = self._reported is None or (failed and self._output_tokens > 0)
        tokens_out = max(tokens_out, self._output_tokens) if estimated else tokens_out
        bills = self._split_charges(tokens_in, tokens_out, estimated=estimated)
        self._memos.settle(list(zip(self._rows, bills, strict=True)))

    def _split_charges(self, tokens_in: int, tokens_out: int, *, estimated: bool) -> list[Charge]:
        """Divide the cost of a request among the works it is for, by the size of their texts."""
        read, written = split_tokens(tokens_in, self._sizes), split_tokens(tokens_out, self._sizes)
        return [
            Charge(
                kind=self._account.kind,
                model=self._model,
                texts=len(texts),
                tokens_in=read[place],
                tokens_out=written[place],
                estimated=estimated,
            )
            for place, texts in enumerate(self._by_ticket.values())
        ]


def split_tokens(tokens: int, sizes: Sequence[int]) -> list[int]:
    """Divide tokens by size, or evenly if all sizes are 0; the shares add up to `tokens`."""
    sizes = sizes if any(sizes) else [1] * len(sizes)
    whole = sum(sizes) or 1
    bounds = [tokens * passed // whole for passed in accumulate(sizes, initial=0)]
    return [upper - lower for lower, upper in pairwise(bounds)]
