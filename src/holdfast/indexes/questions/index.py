"""The index `questions`: finds chunks by the questions that they answer, written by a language model.

The model's answer about a chunk and the vector of every question are cached, so the same text is never paid for twice,
whatever fails later.
"""

from __future__ import annotations

import json
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.catalog import NO_CHAT, ChunkLists
from holdfast.content import TOKENIZER_VERSION
from holdfast.indexes.base import NotEnabled
from holdfast.indexes.llm_calls import ChunkLlmCalls
from holdfast.indexes.questions.pairs import PairStore
from holdfast.indexes.questions.prompt import RECIPE, count_wanted_pairs, from_json, to_json, write_pairs
from holdfast.indexes.store_index import StoreIndex
from holdfast.indexes.vector.embedding import EmbedderFactory, TextToEmbed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.catalog import Base, ChunkText, Recipe
    from holdfast.errors import WorkError
    from holdfast.indexes.base import Found, Tools, Work
    from holdfast.indexes.questions.prompt import QuestionPair
    from holdfast.indexes.vector.embedding import CachedEmbedder
    from holdfast.llm import Provider, Usage

KIND = "questions"
EMBED_BATCH = 100  # chunks whose questions are embedded in one pass
WRITE_BATCH = 20  # chunks per transaction, with all their pairs, words and vectors


class QuestionsIndex(StoreIndex):
    """Finds a chunk by the words of its questions and answers, and by the meaning of its questions."""

    kind = KIND

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._llm_calls = ChunkLlmCalls(tools.speaker, tools.memos, kind=KIND, recipe=RECIPE, make=_ask_model)
        self._embedders = EmbedderFactory(tools)

    @cached_property
    def pairs(self) -> PairStore:
        return PairStore(self._tools.database, memory=self._tools.search_memory)

    @cached_property
    def _store(self) -> PairStore:
        return self.pairs

    def spec(self, base: Base) -> Mapping[str, Any]:
        if base.settings.chat == NO_CHAT:
            raise NotEnabled("questions_without_chat")
        if self._tools.speaker.chat_model is None:
            raise NotEnabled("questions_without_model")
        embedder = self._embedders.for_base(base)
        if embedder.provider.embedding_model is None:
            raise NotEnabled("questions_without_embedding")
        return {
            "model": self._llm_calls.model,
            "questions": RECIPE,
            "embedding": embedder.model,
            "dimension": embedder.provider.dimension,
            "words": TOKENIZER_VERSION,
        }

    def fill(self, work: Work) -> Mapping[int, WorkError]:
        """Write the pairs of every chunk; a chunk that is too short gets none and costs nothing."""
        long = [piece for piece in work.pieces if count_wanted_pairs(piece.text)]
        short = {piece.chunk: () for piece in work.pieces if not count_wanted_pairs(piece.text)}
        reached = len(short)

        def go_on(done: int) -> None:
            nonlocal reached
            reached = max(reached, len(short) + done)
            work.task.checkpoint(stage="writing questions", done=reached, total=len(work.pieces))

        go_on(0)
        refused = self._write_pairs(work, short, go_on)
        ready: dict[int, tuple[QuestionPair, ...]] = {}
        with closing(self._llm_calls.ask(work.base, work.task.ticket, long, go_on)) as parts:
            for part in parts:
                refused |= part.refused
                ready |= {chunk: from_json(answer.decode()) for chunk, answer in part.answers.items()}
                if len(ready) >= EMBED_BATCH:
                    refused |= self._write_pairs(work, ready, go_on)
                    ready = {}
        return refused | self._write_pairs(work, ready, go_on)

    def record_reuse(self, work: Work, chunks: Sequence[int]) -> None:
        """Record on the ledger what the model's answers about these chunks cost."""
        pieces = ChunkLists(self._tools.database).read_texts(chunks)
        self._llm_calls.record_reuse(work.base, work.task.ticket, pieces)

    def find(self, recipe: Recipe, query: str, limit: int, within: Sequence[int] | None = None) -> list[Found]:
        """Return the chunks whose best pair fits the query by words and meaning, best first."""
        embedder, length = (
            self._embedders.for_model(json.loads(recipe.spec).get("embedding")),
            self.pairs.dimension(recipe.id),
        )
        meaning = None
        if embedder is not None and length is not None and not self._has_left_provider(embedder, recipe):
            meaning = embedder.embed_query(recipe.id, query, length)
        return self.pairs.find(recipe.id, query, meaning, limit, within)

    def _has_left_provider(self, embedder: CachedEmbedder, recipe: Recipe) -> bool:
        """Return whether the base has changed to another provider; its questions are then found by words only.

        They may stay for good if the base uses no language model any more, so queries must not cost anything.
        """
        if not embedder.provider.paid:
            return False
        return self._embedders.for_base(self._tools.memos.find_paying_base(recipe.id)).provider is not embedder.provider

    def _write_pairs(
        self, work: Work, ready: Mapping[int, Sequence[QuestionPair]], go_on: Callable[[int], None]
    ) -> dict[int, WorkError]:
        """Embed the questions of chunks and write everything; return the chunks with a refused question."""
        vectors, refused = self._embed_questions(work, ready, go_on)
        chunks = [chunk for chunk in ready if chunk not in refused]
        for first in range(0, len(chunks), WRITE_BATCH):
            portion = chunks[first : first + WRITE_BATCH]
            made = {chunk: list(zip(ready[chunk], vectors[chunk], strict=True)) for chunk in portion}
            with work.guarded() as tx:
                self.pairs.put(tx, work.recipe.id, made)
        return refused

    def _embed_questions(
        self, work: Work, ready: Mapping[int, Sequence[QuestionPair]], go_on: Callable[[int], None]
    ) -> tuple[dict[int, list[bytes]], dict[int, WorkError]]:
        """Embed one question of each chunk per call, because an embedder accepts one text per chunk."""
        vectors: dict[int, list[bytes]] = {chunk: [] for chunk in ready}
        refused: dict[int, WorkError] = {}
        length, embedder = self.pairs.dimension(work.recipe.id), self._embedders.for_base(work.base)
        for position in range(max(map(len, ready.values()), default=0)):
            wants = [
                TextToEmbed(work.task.ticket, chunk, pairs[position].question)
                for chunk, pairs in ready.items()
                if position < len(pairs) and chunk not in refused
            ]
            with closing(embedder.embed(work.base, wants, lambda _: go_on(0), length=length)) as parts:
                for part in parts:
                    refused |= part.refused
                    for chunk, vector in part.answers.items():
                        vectors[chunk].append(vector)
        return vectors, refused


def _ask_model(provider: Provider, piece: ChunkText) -> tuple[str, Usage]:
    pairs, usage = write_pairs(provider, piece.text, piece.headings)
    return to_json(pairs), usage
