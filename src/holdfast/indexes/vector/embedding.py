"""Texts become vectors: from memory, from memos, and only then from the provider.

Texts of many documents share a call. Of a paid answer each part is stored when it arrives and used as read back. A
text that occurs several times is asked for once.
"""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from holdfast.content.token_estimate import estimate_tokens
from holdfast.errors import Transient, WorkError
from holdfast.llm import (
    EMPTY_TEXT,
    AnswerLookup,
    Charge,
    PaidAnswer,
    answer_key,
    replace_surrogates,
    require_budget,
    split_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from holdfast.catalog import Base
    from holdfast.engine import Ticket
    from holdfast.indexes.base import Tools
    from holdfast.llm import Embeddings, MeteredProvider, PaidAnswerCache, Vector

KIND = "embedding"
WRONG_DIMENSION = "vector_length"  # the code of vectors that cannot stand beside those that are there
QUERY = "query"  # the kind of what is paid for questions, and for no document
CHECKPOINT_BATCH = 256  # texts that are embedded between two checkpoints, where the provider is in this process


class TextToEmbed(NamedTuple):
    """A text that needs a vector, and the chunk of whose work it is for."""

    ticket: Ticket
    chunk: int
    text: str


class ChunkVectors(NamedTuple):
    """What came of some wants: vectors as bytes by chunk, and the chunks that were refused."""

    vectors: Mapping[int, bytes]
    refused: Mapping[int, WorkError]


class EmbedderFactory:
    """Chooses who embeds: for what is indexed by the settings of its base, for a query by who made what it is about.

    So a base on its way from one provider to another is searched by both.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def for_base(self, base: Base) -> CachedEmbedder:
        """Return who embeds what is indexed in a base from now on."""
        return CachedEmbedder(self._tools.embedder_of(base), self._tools.memos)

    def for_model(self, model: str | None) -> CachedEmbedder | None:
        """Return who embeds by this model; None if nobody here does."""
        for provider in (self._tools.embedder, self._tools.here):
            if provider.embedding_model is not None and f"{provider.embedding_model}@{provider.version}" == model:
                return CachedEmbedder(provider, self._tools.memos)
        return None


class CachedEmbedder:
    """Embeds for one model of one provider."""

    def __init__(self, provider: MeteredProvider, memos: PaidAnswerCache) -> None:
        self.provider = provider
        self._paid_cache = memos

    @property
    def model(self) -> str:
        """What the vectors depend on."""
        return f"{self.provider.embedding_model}@{self.provider.version}"

    def embed_query(self, recipe: int, text: str, length: int) -> Vector | None:
        """Embed a query about rows of a recipe, whose vectors have this length; None if it has no meaning at all.

        The provider is asked once for a text, and the base pays. Raises a `WorkError` where the budget is spent, the
        provider is down or refuses the text, or its vectors have another length: there is no vector now, and everything
        else can still be searched. Only a vector of the right length and a refusal are remembered.
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
        found = answer.vectors.shape[1]
        if found != length:
            raise Transient(
                WRONG_DIMENSION,
                f"The embedding model answers with {found} numbers now, and the vectors of this index have {length}. "
                "The provider has another model under the same name. Set the one that made the index, or reindex it.",
            )
        return answer.vectors[0] if answer.vectors[0].any() else None

    def embed(
        self, base: Base, wants: Sequence[TextToEmbed], go_on: Callable[[int], None], *, length: int | None = None
    ) -> Generator[ChunkVectors, None, None]:
        """Embed the wanted texts in parts; `go_on` is told how many chunks are done, and may raise.

        Vectors must have this length, where it is known. Whoever stops reading closes this: what is under way and paid
        for is then waited for and kept.
        """
        paid, model = self.provider.paid, self.model
        keyed: dict[str, list[TextToEmbed]] = {}
        for want in wants:
            key = answer_key(KIND, model, want.text) if paid else want.text
            keyed.setdefault(key, []).append(want)
        done = 0
        with closing(self._embed_paid(base, keyed, length) if paid else self._embed_free(keyed, length)) as parts:
            for part in parts:
                yield part
                done += len(part.vectors) + len(part.refused)
                go_on(done)

    def _embed_free(
        self, keyed: Mapping[str, Sequence[TextToEmbed]], length: int | None
    ) -> Generator[ChunkVectors, None, None]:
        """Embed what costs nothing, and is made again as fast as it is read."""
        keys = list(keyed)
        for first in range(0, len(keys), CHECKPOINT_BATCH):
            portion = keys[first : first + CHECKPOINT_BATCH]
            for part in self.provider.charge_to(None, KIND).embed_parts([keyed[key][0].text for key in portion]):
                require_dimension(part, length)
                yield _assign_to_chunks(keyed, _values(portion, part), _refused(portion, part))

    def _embed_paid(
        self, base: Base, keyed: Mapping[str, Sequence[TextToEmbed]], length: int | None
    ) -> Generator[ChunkVectors, None, None]:
        """Embed what is not known yet; whatever arrives is kept before it is used, also if nobody reads on."""
        tenant = base.settings.tenant
        bill = Charge(kind=KIND, model=self.model, texts=0)
        known = self._paid_cache.find_answers(tenant, list(_uses(keyed)), bill)
        if known:
            yield _assign_to_chunks(keyed, known, {})
        keys = [key for key in keyed if key not in known]
        if not keys:
            return
        texts = [keyed[key][0].text for key in keys]
        require_budget(self._paid_cache, base, sum(map(estimate_tokens, texts)))
        left = threading.Event()
        provider = self.provider.charge_to(
            base, KIND, by_text={replace_surrogates(keyed[key][0].text): keyed[key][0].ticket for key in keys}
        )
        for part in provider.embed_parts(texts, left.is_set):
            require_dimension(part, length)
            values, refused = _values(keys, part), _refused(keys, part)
            sizes = [estimate_tokens(keyed[key][0].text) for key in values]
            cost = dict(zip(values, split_tokens(part.tokens, sizes), strict=True))
            entries = [
                PaidAnswer(use.ticket, use.key, values[use.key], use.chunks, tokens_in=cost[use.key])
                for use in _uses(keyed, values)
            ]
            stored = self._paid_cache.store_answers(tenant, entries) if entries else {}
            if not left.is_set():
                try:
                    yield _assign_to_chunks(keyed, {**values, **stored}, refused)
                except GeneratorExit:
                    left.set()


def _uses(
    keyed: Mapping[str, Sequence[TextToEmbed]], only: Mapping[str, object] | None = None
) -> Iterator[AnswerLookup]:
    """Name who uses which answer, by document."""
    for key in keyed if only is None else only:
        by_ticket: dict[Ticket, list[int]] = {}
        for want in keyed[key]:
            by_ticket.setdefault(want.ticket, []).append(want.chunk)
        for ticket, chunks in by_ticket.items():
            yield AnswerLookup(ticket, key, chunks)


def require_dimension(part: Embeddings, length: int | None) -> None:
    """Refuse vectors that cannot stand beside those that are there, before anything of them is kept."""
    if part.positions and length is not None and part.vectors.shape[1] != length:
        raise Transient(
            WRONG_DIMENSION,
            f"The vectors have {part.vectors.shape[1]} numbers now, and those of this index {length}. If this "
            "lasts, the provider has another model under the same name.",
        )


def _values(keys: Sequence[str], part: Embeddings) -> dict[str, bytes]:
    return {keys[place]: row.tobytes() for place, row in zip(part.positions, part.vectors, strict=True)}


def _refused(keys: Sequence[str], part: Embeddings) -> dict[str, WorkError]:
    return {keys[place]: error for place, error in part.refused.items()}


def _assign_to_chunks(
    keyed: Mapping[str, Sequence[TextToEmbed]], values: Mapping[str, bytes], refused: Mapping[str, WorkError]
) -> ChunkVectors:
    """Give every chunk the answer to its text."""
    return ChunkVectors(
        vectors={want.chunk: value for key, value in values.items() for want in keyed[key]},
        refused={want.chunk: error for key, error in refused.items() for want in keyed[key]},
    )
