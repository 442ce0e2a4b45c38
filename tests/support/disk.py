"""Searches all bytes of all files in a folder for words, and provides a rig with all indexes and a language model."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from holdfast.documents.requests import Upload
from holdfast.indexes.graph.merging import MERGING
from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.clock import FakeClock
    from tests.support.paid_provider import PaidProvider

ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be")
ENTITY = re.compile(r"\[\[([^]|>]+)\|([^]|]+)\|([^]|]+)\]\]")
SENTENCE = re.compile(r"The (\w+) (is|lives) ([^.]*)\.")


def found(folder: Path, words: Iterable[str]) -> dict[str, list[str]]:
    """Return the files that contain each word, in any encoding or case. Words that occur nowhere are left out.

    FTS5 stores only the part of a word that differs from the word before it. So search for the end of a word whose
    beginning is rare.
    """
    forms = {word: [word.lower().encode(encoding) for encoding in ENCODINGS] for word in words}
    places: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes().lower() if path.is_file() else b""
        told = f"{path.relative_to(folder)}".lower()
        for word, spellings in forms.items():
            if word.lower() in told or any(one in content for one in spellings):
                places.setdefault(word, []).append(path.name)
    return places


def speak(prompt: dict[str, Any]) -> str:
    """Act as the language model: return marked entities, make questions from sentences, merge by repeating."""
    task, text = (prompt["messages"][place]["content"] for place in (0, -1))
    if "knowledge graph" in task:
        entities = [{"name": name, "kind": kind, "description": about} for name, kind, about in ENTITY.findall(text)]
        relations = [
            {"source": one["name"], "target": other["name"], "label": "knows", "description": one["description"]}
            for one, other in pairwise(entities)
        ]
        return json.dumps({"entities": entities, "relations": relations})
    if "study cards" in task:
        said = SENTENCE.findall(text)
        return json.dumps(
            {"pairs": [{"question": f"What {b} the {a}?", "answer": f"The {a} {b} {c}."} for a, b, c in said]}
        )
    said = [line[2:] for line in text.split("\n") if line.startswith("- ")]
    return json.dumps({"description": f"Of {len(said)}: {' '.join(said)}"})


class WholeRig(Rig):
    """A base with every index, a language model and paid embeddings, all in one folder."""

    def __init__(self, folder: Path, clock: FakeClock, paid: PaidProvider) -> None:
        paid.reply = speak
        self.whole = folder
        self.provider = OpenAIProvider(
            Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model, chat_model=paid.chat_model)
        )
        super().__init__(
            f"sqlite:///{folder / 'holdfast.db'}",
            folder / "blobs",
            clock,
            self.provider,
            speaker=self.provider,
            indexes=("vector", "fulltext", "graph", "questions"),
            chunk_size=64,
            chunk_overlap=0,
        )

    def put_all(self, texts: dict[str, str]) -> None:
        self.library.adder.put(self.base, [Upload(name, text.encode()) for name, text in texts.items()])
        self.work()

    def tend(self) -> None:
        """Run garbage collection as a reconciler does, and carry out the work that it requests."""
        for _ in range(3):
            self.library.sweep(500)
            self.work()

    def merged(self) -> int:
        account = self.library.paid_cache.summarize_base(self.base.key)
        return sum(one.texts for one in (*account.kinds_spent, *account.kinds_saved) if one.kind == MERGING)

    def close(self) -> None:
        self.provider.close()
        super().close()
