"""Embeds texts: from memory, from the cache of paid answers, and only then by the provider.

Texts of many documents share a call. A text that occurs several times is embedded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.content import estimate_tokens
from holdfast.errors import Transient, WorkError
from holdfast.indexes.paid_answers import Reply, assign_to_chunks, fetch_answers
from holdfast.llm import (
    EMPTY_TEXT,
    AnswerLookup,
    Charge,
    answer_key,
    replace_surrogates,
    split_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from holdfast.catalog import Base
    from holdfast.engine import Ticket
    from holdfast.indexes.base import Tools
    from holdfast.indexes.paid_answers import ChunkResults
    from holdfast.llm import Embeddings, MeteredProvider, PaidAnswerCache, Vector

KIND = "embedding"
WRONG_DIMENSION = "vector_length"  # error code of vectors with another dimension than those of the index
QUERY = "query"  # kind on the ledger of embedded queries
CHECKPOINT_BATCH = 256  # texts between two checkpoints, for a provider in this process


class TextToEmbed(NamedTuple):
    """A text that needs a vector, with its chunk and the ticket that pays."""

    ticket: Ticket
    chunk: int
    text: str


class EmbedderFactory:
    """Chooses the embedder: for new content by the settings of the base, for a query by the model of the index.

    So during a change of provider, a base is searched with both.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def for_base(self, base: Base) -> CachedEmbedder:
        """Return the embedder for new content of a base."""
        return CachedEmbedder(self._tools.embedder_of(base), self._tools.memos)

    def for_model(self, model: str | None) -> CachedEmbedder | None:
        """Return the embedder with this model; None if no configured provider has it."""
        for provider in (self._tools.embedder, self._tools.here):
            if provider.embedding_model is not None and f"{provider.embedding_model}@{provider.version}" == model:
                return CachedEmbedder(provider, self._tools.memos)
        return None


class CachedEmbedder:
    """Embeds with one model of one provider."""

    def __init__(self, provider: MeteredProvider, memos: PaidAnswerCache) -> None:
        self.provider = provider
        self._paid_cache = memos

    @property
    def model(self) -> str:
        """Model and version, part of every cache key."""
        return f"{self.provider.embedding_model}@{self.provider.version}"

    def embed_query(self, recipe: int, text: str, length: int) -> Vector | None:
        """Embed a query for the rows of a recipe, with this dimension; None if the model finds no meaning in it.

        The base pays, once for each text. Raises a `WorkError` if the budget is spent, the provider is down or refuses
        the text, or the dimension differs; other channels can still be searched. Only a vector with the right dimension
        and a refusal are remembered.
        """
        found = self._paid_cache.get_query_answer(
            (QUERY, self.model, text, length), lambda: self._embed_query(recipe, text, length)
        )
        if isinstance(found, WorkError):
            raise found
        return found

    def _embed_query(self, recipe: int, text: str, length: int) -> Vector | WorkError | None:
        payer = self._paid_cache.find_paying_base(recipe) if self.provider.paid else None
        answer = self.provider.charge_to(payer, QUERY).embed([text])
        for refusal in answer.refused.values():
            return None if refusal.code == EMPTY_TEXT else refusal
        check_part(answer, length)
        return answer.vectors[0] if answer.vectors[0].any() else None

    def embed(
        self, base: Base, wants: Sequence[TextToEmbed], go_on: Callable[[int], None], *, length: int | None = None
    ) -> Generator[ChunkResults, None, None]:
        """Embed texts and yield their vectors in parts.

        `go_on` receives the number of chunks done and may raise. `length` is the required dimension, where it is known.
        A caller that stops early closes this generator: calls under way are then awaited and stored.
        """
        keyed = self._group_by_key(wants)
        parts = self._embed_paid(base, keyed, length) if self.provider.paid else self._embed_free(list(keyed), length)
        return assign_to_chunks({key: [want.chunk for want in same] for key, same in keyed.items()}, parts, go_on)

    def record_reuse(self, base: Base, wants: Sequence[TextToEmbed]) -> None:
        """Record on the ledger what the vectors of these texts cost, which are used again."""
        charge = Charge(kind=KIND, model=self.model, texts=0)
        self._paid_cache.record_reuse(base.settings.tenant, list(_lookups(self._group_by_key(wants))), charge)

    def _group_by_key(self, wants: Sequence[TextToEmbed]) -> dict[str, list[TextToEmbed]]:
        keyed: dict[str, list[TextToEmbed]] = {}
        for want in wants:
            key = answer_key(KIND, self.model, want.text) if self.provider.paid else want.text
            keyed.setdefault(key, []).append(want)
        return keyed

    def _embed_free(
        self, texts: Sequence[str], length: int | None
    ) -> Generator[tuple[dict[str, bytes], dict[str, WorkError]], None, None]:
        """Embed without the cache: on this machine, embedding a text is as fast as reading its vector."""
        provider = self.provider.charge_to(None, KIND)
        for first in range(0, len(texts), CHECKPOINT_BATCH):
            portion = texts[first : first + CHECKPOINT_BATCH]
            for part in provider.embed_parts(portion):
                check_part(part, length)
                yield _vectors_by_key(portion, part), _refused_by_key(portion, part)

    def _embed_paid(
        self, base: Base, keyed: Mapping[str, Sequence[TextToEmbed]], length: int | None
    ) -> Generator[tuple[Mapping[str, bytes], Mapping[str, WorkError]], None, None]:
        sizes = {key: estimate_tokens(same[0].text) for key, same in keyed.items()}

        def call(
            keys: Sequence[str], stop: Callable[[], bool]
        ) -> Iterator[tuple[dict[str, Reply], dict[str, WorkError]]]:
            texts = [keyed[key][0].text for key in keys]
            tickets = {replace_surrogates(keyed[key][0].text): keyed[key][0].ticket for key in keys}
            for part in self.provider.charge_to(base, KIND, by_text=tickets).embed_parts(texts, stop):
                check_part(part, length)
                vectors = _vectors_by_key(keys, part)
                tokens = split_tokens(part.tokens, [sizes[key] for key in vectors])
                replies = {key: Reply(vectors[key], cost) for key, cost in zip(vectors, tokens, strict=True)}
                yield replies, _refused_by_key(keys, part)

        charge = Charge(kind=KIND, model=self.model, texts=0)
        lookups = list(_lookups(keyed))
        return fetch_answers(self._paid_cache, base, lookups, charge, estimate=sizes.__getitem__, call=call)


def _lookups(keyed: Mapping[str, Sequence[TextToEmbed]]) -> Iterator[AnswerLookup]:
    """Yield one lookup for each key and document, with the chunks of the document that have this text."""
    for key, same in keyed.items():
        by_ticket: dict[Ticket, list[int]] = {}
        for want in same:
            by_ticket.setdefault(want.ticket, []).append(want.chunk)
        for ticket, chunks in by_ticket.items():
            yield AnswerLookup(ticket, key, chunks)


def check_part(part: Embeddings, expected: int | None) -> None:
    """Reject vectors with another dimension than those of the index, before any of them is stored."""
    if part.positions and expected is not None:
        require_dimension(part.vectors.shape[1], expected)


def require_dimension(found: int, expected: int) -> None:
    if found != expected:
        raise Transient(WRONG_DIMENSION, params={"found": str(found), "expected": str(expected)})


def _vectors_by_key(keys: Sequence[str], part: Embeddings) -> dict[str, bytes]:
    return {keys[position]: row.tobytes() for position, row in zip(part.positions, part.vectors, strict=True)}


def _refused_by_key(keys: Sequence[str], part: Embeddings) -> dict[str, WorkError]:
    return {keys[position]: error for position, error in part.refused.items()}
