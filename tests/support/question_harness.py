"""A rig whose language model writes questions and whose embeddings are paid. The same worker makes the cards."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from holdfast.indexes.questions.index import QuestionsIndex
from holdfast.indexes.questions.pairs import VECTORS_PREFIX, WORDS_PREFIX
from holdfast.llm.offline import OfflineProvider
from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.clock import FakeClock
    from tests.support.paid_provider import PaidProvider

TEXT = re.compile(r"<text (\w+)>\n(.*)\n</text \1>", re.DOTALL)
PART = re.compile(r"(The \w+) of part (\d+) (is [^.]*)\.")
SHELVES = (WORDS_PREFIX, VECTORS_PREFIX)


def sections(count: int, *, but: Mapping[int, str] | None = None, word: str = "krill") -> str:
    """Return a text of `count` chunks that each yield one question. `but` replaces the text of some chunks."""
    said = {number: f"The {word} of part {number} is one of {count}." for number in range(count)} | dict(but or {})
    return "\n\n".join(f"## Part {number}\n\n{text}" + f" Padding {number}." * 3 for number, text in said.items())


def crustaceans(request: dict[str, Any]) -> str:
    """Return a pair for each sentence about a part. The question has a word that the text does not contain.

    A probe after an outage has no text.
    """
    found = TEXT.search(request["messages"][-1]["content"])
    if found is None:
        return "yes"
    said = PART.findall(found[2])
    asked = [{"question": f"Which crustacean lives in part {part}?", "answer": f"{a} {b}."} for a, part, b in said]
    return json.dumps({"pairs": asked})


class QuestionRig(Rig):
    """A base with the questions index. With `silent`, it has no language model."""

    def __init__(
        self, url: str, folder: Path, clock: FakeClock, paid: PaidProvider, *, silent: bool = False, **base: Any
    ) -> None:
        paid.reply = crustaceans
        self.provider = OpenAIProvider(
            Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model, chat_model=paid.chat_model)
        )
        settings = {"indexes": ("questions",), "chunk_size": 48, "chunk_overlap": 0, **base}
        speaker = OfflineProvider() if silent else self.provider
        super().__init__(url, folder, clock, self.provider, speaker=speaker, **settings)
        self.cards = self.library.cards

    @property
    def questions(self) -> QuestionsIndex:
        index = self.library.indexes["questions"]
        assert isinstance(index, QuestionsIndex)
        return index

    def kept(self) -> dict[str, int]:
        """Count the stored rows of questions, in all tables and for all recipes."""
        counts = {table: self.count(table) for table in ("question_chunks", "pairs", "cards")}
        for recipe in self.library.indexes.recipes(self.base, "questions"):
            counts |= {f"{shelf}_{recipe.id}": self._shelved(f"{shelf}_{recipe.id}") for shelf in SHELVES}
        return counts

    def missing(self) -> dict[int, str]:
        """Return the missing chunks with the error code of each."""
        with self.store.database.reading() as tx:
            rows = tx.run_sql("SELECT chunk_id, reason FROM library_missing")
        return {chunk: json.loads(reason)["code"] for chunk, reason in rows}

    def chunk(self, word: str) -> int:
        """Return the only chunk that contains a word."""
        with self.store.database.reading() as tx:
            ((chunk,),) = [row[:1] for row in tx.run_sql("SELECT id, text FROM library_chunks") if word in row[1]]
        found: int = chunk
        return found

    def close(self) -> None:
        self.provider.close()
        super().close()

    def _shelved(self, table: str) -> int:
        with self.store.database.reading() as tx:
            if self.store.database.engine.dialect.name == "sqlite":
                there = tx.run_sql("SELECT 1 FROM sqlite_master WHERE name = ?", [table])
            else:
                there = [row for row in tx.run_sql("SELECT to_regclass(%s)", [table]) if row[0]]
        return self.count(table) if there else 0
