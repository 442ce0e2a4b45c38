"""Estimates the cost of a refused request: the tokens that are not paid yet, at today's prices.

An indexed document costs nothing, because every answer about it is cached. For a document that is being indexed, the
chunks without a paid answer count. Before a document is read, a text file counts by its size; other files count only
after they are read, because their size says little about their text. The estimate is for display; no decision uses it.
"""

from __future__ import annotations

import mimetypes
from typing import TYPE_CHECKING

from holdfast.catalog import ItemKind, read_bases, read_items, slots_of_documents
from holdfast.content import estimate_tokens
from holdfast.engine import SlotState
from holdfast.indexes import statements as sql
from holdfast.indexes.base import CONTENT
from holdfast.indexes.llm_calls import PROMPT_OVERHEAD_TOKENS
from holdfast.llm import BYTES_PER_TOKEN, Price

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.catalog import Base, Item
    from holdfast.db import Transaction
    from holdfast.indexes.base import Tools
    from holdfast.llm import ModelInfo

EMBEDDING_INDEXES = frozenset({"vector"})  # indexes that pay for embeddings of chunks
CHAT_INDEXES = frozenset({"graph", "questions"})  # indexes that ask a language model about chunks
SAMPLE = 50  # chunks whose tokens are counted; the total is extrapolated
UNKNOWN_PRICE = Price()


class CostEstimator:
    """Estimates costs with the models and prices of this process."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def __call__(self, tx: Transaction, owners: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """Return the unpaid cost of documents by base and owner; other owners cost nothing."""
        numbers = {int(owner): (base, owner) for base, owner in owners if owner.isdecimal()}
        if not numbers:
            return {}
        states: dict[int, dict[str, SlotState]] = {}
        for document, kind, state, *_ in slots_of_documents(tx, numbers):
            states.setdefault(document, {})[kind] = SlotState(state)
        ids = {int(base) for base, _ in numbers.values()}
        bases = {known.id: known for known in read_bases(tx, ids)}
        return {
            numbers[item.id]: self._estimate_unpaid(tx, bases[item.base], item, states[item.id])
            for item in read_items(tx, states)
            if item.base in bases
        }

    def estimate_file(self, base: Base, item: str, size: int) -> float:
        """Estimate the cost of a file that is not stored yet."""
        if not _is_text(item):
            return 0.0
        tokens = size // BYTES_PER_TOKEN + 1
        return self._price(base, base.settings.indexes, tokens, tokens // base.settings.chunk_size + 1)

    def _estimate_unpaid(self, tx: Transaction, base: Base, item: Item, states: Mapping[str, SlotState]) -> float:
        pending = [kind for kind, state in states.items() if state is not SlotState.READY]
        if CONTENT in pending:
            name = "note.txt" if item.kind is ItemKind.NOTE else item.name
            return self.estimate_file(base, name, item.size) if any(kind != CONTENT for kind in pending) else 0.0
        if self._price(base, pending, 1, 1) == 0.0:
            return 0.0
        paid = [kind for kind in states if kind not in pending and self._price(base, [kind], 1, 1)]
        rows = tx.run(sql.SELECT_UNPAID_CHUNKS, base=base.key, owner=item.key, known=len(paid), limit=SAMPLE)
        if not rows:
            return 0.0
        chunks = int(rows[0][1])
        tokens = sum(estimate_tokens(text) for text, _ in rows) * chunks // len(rows)
        return self._price(base, pending, tokens, chunks)

    def _price(self, base: Base, kinds: Sequence[str], tokens: int, chunks: int) -> float:
        """Return the price of chunks with this many tokens for some indexes; 0 where no price is known."""
        embedder, speaker = self._tools.embedder_of(base), self._tools.speaker_of(base)
        embedding, chat = (
            self._price_of_model(embedder, embedder.embedding_model),
            self._price_of_model(speaker, speaker.chat_model),
        )
        costs = [embedding.cost(tokens, 0) for kind in kinds if kind in EMBEDDING_INDEXES]
        costs += [chat.cost(tokens + PROMPT_OVERHEAD_TOKENS * chunks, 0) for kind in kinds if kind in CHAT_INDEXES]
        return sum(cost or 0.0 for cost in costs)

    def _price_of_model(self, models: ModelInfo, model: str | None) -> Price:
        return (
            self._tools.memos.prices.get(model, UNKNOWN_PRICE) if model is not None and models.paid else UNKNOWN_PRICE
        )


def _is_text(name: str) -> bool:
    kind = mimetypes.guess_type(name)[0] or ""
    return kind.startswith("text/") or kind in {"application/json", "application/xml"}
