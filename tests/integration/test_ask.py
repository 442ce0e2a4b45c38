"""Answers: which sources each mode uses, that citations quote the document, and what happens without a model."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.search.answer_generation import AnswerOutcome
from holdfast.search.answers import Answer, Mode
from holdfast.search.citation_stream import NO_ANSWER
from tests.support.harness import Rig
from tests.support.paid_provider import PaidProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

ALL = ("vector", "fulltext", "graph")
ROPES = "# Ropes\n\nHemp rots. Nylon stretches under load, and steel does not.\n"
ENTITY = re.compile(r"\[\[([^]|]+)\|([^]|]+)\|([^]|]*)\]\]")
RELATION = re.compile(r"\{([^}>]+)>([^}>]+)>([^}|]+)\|([^}]+)\}")


def speak(prompt: dict[str, Any]) -> str:
    """Extract the marked entities and relations, or answer a question if a source mentions nylon."""
    text = prompt["messages"][-1]["content"]
    if "response_format" in prompt:
        entities = [{"name": name, "kind": kind, "description": about} for name, kind, about in ENTITY.findall(text)]
        relations = [
            {"source": source, "target": target, "label": label, "description": about}
            for source, label, target, about in RELATION.findall(text)
        ]
        return json.dumps({"entities": entities, "relations": relations})
    return "Nylon stretches under load. [1] Nobody says more. [99]" if "Nylon" in text else NO_ANSWER


@pytest.fixture
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as provider:
        provider.reply = speak
        yield provider


@pytest.fixture
def make(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[Callable[..., Rig]]:
    """Make a base with the given documents, with or without a language model."""
    opened: list[Rig] = []

    def make(documents: dict[str, str], *, speaks: bool = True) -> Rig:
        endpoint = Endpoint(base_url=paid.url, key=paid.key, chat_model=paid.chat_model)
        speaker = OpenAIProvider(endpoint) if speaks else None
        rig = Rig(database_url, tmp_path / "blobs", clock, speaker=speaker, indexes=ALL)
        opened.append(rig)
        for name, text in documents.items():
            rig.put(name, text)
        rig.work()
        return rig

    yield make
    for rig in opened:
        rig.close()


def test_a_citation_quotes_the_exact_text_of_the_document(make: Callable[..., Rig], paid: PaidProvider) -> None:
    rig = make({"ropes.md": ROPES, "tides.md": "# Tides\n\nWater rises twice a day.\n"})
    before = sum(paid.bill.prompts.values())
    reply = rig.library.answerer.ask(rig.base, "Which rope stretches?")
    assert (reply.outcome, sum(paid.bill.prompts.values()) - before) == (AnswerOutcome.ANSWERED, 1)
    (citation,) = reply.citations
    assert ROPES[citation.start : citation.end] == citation.quote
    assert "Nylon stretches" in citation.quote
    assert "[99]" not in reply.text
    assert citation.name == "ropes.md"


def test_an_answer_streams_and_ends_with_the_same_reply(make: Callable[..., Rig]) -> None:
    rig = make({"ropes.md": ROPES})
    *parts, last = rig.library.answerer.stream(rig.base, "Which rope stretches?")
    assert isinstance(last, Answer)
    shown = "".join(map(str, parts))
    assert shown.strip() == last.text.strip()
    assert last.text == rig.library.answerer.ask(rig.base, "Which rope stretches?").text


def test_no_model_is_called_when_the_search_finds_nothing(make: Callable[..., Rig], paid: PaidProvider) -> None:
    rig = make({})
    reply = rig.library.answerer.ask(rig.base, "Which rope stretches?")
    assert (reply.outcome, paid.bill.tokens) == (AnswerOutcome.NOTHING_FOUND, 0)


def test_a_model_that_finds_no_answer_in_the_sources_ends_as_nothing_found(make: Callable[..., Rig]) -> None:
    rig = make({"tides.md": "# Tides\n\nWater rises twice a day.\n"})
    reply = rig.library.answerer.ask(rig.base, "Which rope stretches?")
    assert reply.outcome is AnswerOutcome.NOTHING_FOUND


def test_without_a_language_model_the_best_passages_are_the_answer(make: Callable[..., Rig]) -> None:
    rig = make({"ropes.md": ROPES}, speaks=False)
    reply = rig.library.answerer.ask(rig.base, "Which rope stretches?")
    assert reply.outcome is AnswerOutcome.NO_LANGUAGE_MODEL
    best = reply.citations[0]
    assert ROPES[best.start : best.end] == best.quote


def crowd() -> dict[str, str]:
    """Return texts that repeat the name in the question so often that they take all the top ranks."""
    return {
        f"crowd-{number}.md": f"# Note {number}\n\n" + f"Mara Lindqvist, Mara Lindqvist of note {number}. " * 4
        for number in range(20)
    }


@pytest.mark.parametrize(
    ("mode", "name", "text"),
    [
        (
            Mode.LOCAL,
            "person.md",
            "A long log of many days at sea, of wind and rain. [[Mara Lindqvist|person|A pilot.]]",
        ),
        (Mode.GLOBAL, "bond.md", "Many days at sea, wind and rain. {Mara Lindqvist>founded>The Guild|She founded it.}"),
    ],
)
def test_a_passage_that_only_the_graph_finds_is_used_by_the_graph_modes(
    make: Callable[..., Rig], mode: Mode, name: str, text: str
) -> None:
    marked = "[[Mara Lindqvist|person|]] [[The Guild|group|]] " if mode is Mode.GLOBAL else ""
    known = {"known.md": "# Crew\n\n[[Mara Lindqvist|person|A sailor of note.]]\n"} if mode is Mode.GLOBAL else {}
    rig = make({**crowd(), **known, name: f"# Log\n\n{text} {marked}{'Wind and rain, rain and wind. ' * 30}\n"})
    question = "What is known of Mara Lindqvist?"
    used = {
        one: name
        in {place.name for place in rig.library.answerer.build_context(rig.base, question, one)[1].passages.values()}
        for one in Mode
    }
    others = {Mode.LOCAL, Mode.GLOBAL} - {mode}
    assert used[mode]
    assert used[Mode.HYBRID]
    assert used[Mode.MIX]
    assert not used[Mode.NAIVE]
    assert not any(used[one] for one in others)


def test_a_passage_that_only_full_text_finds_is_used_by_the_modes_that_search(make: Callable[..., Rig]) -> None:
    rig = make({**crowd(), "ropes.md": ROPES})
    question = "does nylon stretch under load"
    used = {
        one: "ropes.md"
        in {place.name for place in rig.library.answerer.build_context(rig.base, question, one)[1].passages.values()}
        for one in Mode
    }
    assert used == {Mode.NAIVE: True, Mode.MIX: True, Mode.LOCAL: False, Mode.GLOBAL: False, Mode.HYBRID: False}


def test_text_of_a_deleted_document_is_in_no_context(make: Callable[..., Rig]) -> None:
    canary = "# Log\n\n[[Mara Lindqvist|person|She kept a xylograph.]] A xylograph hung on her wall.\n"
    rig = make({"canary.md": canary, "other.md": "# Other\n\n[[Mara Lindqvist|person|A pilot.]] She sailed.\n"})
    question = "What hung on the wall of Mara Lindqvist?"
    assert "xylograph" in str(rig.library.answerer.build_context(rig.base, question, Mode.MIX))
    rig.delete("canary.md")
    for mode in Mode:
        assert "xylograph" not in str(rig.library.answerer.build_context(rig.base, question, mode))
