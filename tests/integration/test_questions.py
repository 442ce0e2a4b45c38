"""The index `questions`: model-written questions find their chunk, are paid once, and are deleted with it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.states import Operation, SlotState, Status
from holdfast.errors import StopWork
from holdfast.indexes.base import Found
from holdfast.indexes.llm_calls import MAX_CONCURRENT_CALLS
from holdfast.indexes.questions import index as questions
from holdfast.indexes.questions import pairs as questions_pairs
from holdfast.indexes.questions.prompt import QuestionPair
from holdfast.indexes.vector.embedding import EmbedderFactory
from holdfast.llm.metering import MeteredProvider
from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support.paid_provider import BAD_KEY, REFUSED, PaidProvider, texts_of
from tests.support.question_harness import QuestionRig, crustaceans, sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.engine.slot import Progress, Ticket
    from tests.support.clock import FakeClock

    Make = Callable[..., QuestionRig]

PARTS = sections(20)


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        yield server


@pytest.fixture
def make(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[Make]:
    made: list[QuestionRig] = []

    def make(**more: Any) -> QuestionRig:
        made.append(QuestionRig(database_url, tmp_path / "blobs", clock, paid, **more))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make: Make) -> QuestionRig:
    return make()


def bill(paid: PaidProvider) -> tuple[int, int]:
    """Return the number of paid prompts and paid questions."""
    return sum(paid.bill.prompts.values()), sum(paid.bill.texts.values())


def found(rig: QuestionRig, query: str) -> list[str]:
    return [hit.text for hit in rig.find(query, "questions")]


def test_without_a_language_model_the_index_is_disabled_and_documents_succeed(make: Make) -> None:
    rig = make(silent=True, indexes=("fulltext", "questions"))
    owner = rig.index("parts.md", PARTS)
    assert owner.status is Status.SUCCESS
    assert owner.slot("questions") is None
    can, cannot = rig.library.indexes.check_enabled(rig.base)
    assert can == ["fulltext"]
    assert "language model" in str(cannot["questions"])
    assert found(rig, "crustacean") == []


def test_a_chunk_is_found_by_a_word_that_only_its_question_contains(rig: QuestionRig) -> None:
    assert rig.index("parts.md", PARTS).status is Status.SUCCESS
    assert "crustacean" not in PARTS
    hit = rig.find("the crustacean of part 7", "questions")[0]
    assert "krill of part 7" in hit.text
    assert PARTS[hit.start : hit.end] == hit.text
    assert len(found(rig, "crustacean")) == 20


@pytest.mark.parametrize("silenced", ["_words", "_vectors"])
def test_full_text_and_vectors_each_find_a_question_alone(
    rig: QuestionRig, silenced: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("parts.md", PARTS)
    shelf = getattr(rig.questions.pairs, silenced)
    monkeypatch.setattr(shelf, "find", lambda *_: [])
    monkeypatch.setattr(shelf, "scores", lambda *_: ({}, 0.0), raising=False)
    assert "krill of part 13" in found(rig, "Which crustacean lives in part 13?")[0]


@pytest.mark.parametrize("scores", [(0.9, 0.2, 0.5), (0.2, 0.9, 0.5)])
def test_a_chunk_with_several_pairs_is_one_hit_with_its_best_score(
    make: Make, paid: PaidProvider, scores: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(chunk_size=512)
    text = "# Whales\n\n" + " ".join(f"The krill of part {n} is one of {n + 100}." for n in range(16))
    rig.index("whales.md", text)
    rig.index("stones.md", "# Stones\n\nThe granite of part 99 is hard, and the mountains of the north are made of it.")
    recipe = rig.library.indexes.recipes(rig.base, "questions")[0]
    pairs = rig.questions.pairs.read_pairs(recipe.id, rig.rows("questions"))
    assert [len(some) for some in pairs.values()] == [2, 1]
    assert sum(paid.bill.texts.values()) == 3
    assert rig.find("Which crustacean lives in part 1?", "questions")[0].name == "whales.md"
    ids = [one.id for some in pairs.values() for one in some]
    monkeypatch.setattr(rig.questions.pairs, "_score_pairs", lambda *_: dict(zip(ids, scores, strict=True)))
    assert rig.questions.find(recipe, "any", 10) == [Found(rig.chunk("Whales"), 0.9), Found(rig.chunk("Stones"), 0.5)]


def test_a_search_within_chunks_finds_no_others(rig: QuestionRig) -> None:
    rig.index("parts.md", PARTS)
    recipe = rig.library.indexes.recipes(rig.base, "questions")[0]
    some = [rig.chunk("part 3 "), rig.chunk("part 8 ")]
    assert {one.chunk for one in rig.questions.find(recipe, "crustacean", 10, within=some)} == set(some)
    assert rig.questions.find(recipe, "crustacean", 10, within=[]) == []
    assert len(rig.questions.find(recipe, "crustacean", 7)) == 7


def test_the_first_written_pair_of_a_chunk_is_kept(rig: QuestionRig) -> None:
    rig.index("parts.md", PARTS)
    recipe = rig.library.indexes.recipes(rig.base, "questions")[0]
    seven = rig.chunk("part 7 ")
    late = [(QuestionPair(question="Which zeppelin is late?", answer="This one."), bytes(32))] * 2
    rig.store.database.write(lambda tx: rig.questions.pairs.put(tx, recipe.id, {seven: late}), durable=False)
    ((kept,),) = rig.questions.pairs.read_pairs(recipe.id, [seven]).values()
    assert kept.pair.question == "Which crustacean lives in part 7?"
    assert {count for table, count in rig.kept().items() if table != "cards"} == {20}


@pytest.mark.parametrize("query", ["", "???", '" OR NEAR(', "zeppelin"])
def test_unusual_queries_raise_no_error(rig: QuestionRig, query: str) -> None:
    rig.index("parts.md", PARTS)
    rig.find(query or " ", "questions")


def test_with_another_embedding_model_a_query_uses_full_text_only(rig: QuestionRig, paid: PaidProvider) -> None:
    rig.index("parts.md", PARTS)
    before = sum(paid.bill.texts.values())
    another = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, embedding_model="another"))
    rig.questions._embedders = EmbedderFactory(
        replace(rig.library.tools, embedder=MeteredProvider(another, rig.library.paid_cache))
    )
    assert "krill of part 5" in found(rig, "crustacean of part 5")[0]
    assert sum(paid.bill.texts.values()) == before


def test_a_chunk_that_is_too_short_needs_no_call(rig: QuestionRig, paid: PaidProvider) -> None:
    assert rig.index("short.md", "# Short\n\nHello.\n").status is Status.SUCCESS
    assert bill(paid) == (0, 0)
    assert rig.rows("questions") != []
    assert rig.count("pairs") == 0
    assert rig.slot("short.md", "questions").missing == 0


def test_an_unchanged_document_is_not_paid_for_again(rig: QuestionRig, paid: PaidProvider) -> None:
    rig.index("parts.md", PARTS)
    first = bill(paid)
    assert first == (20, 20)
    rig.ask("parts.md", Operation.REINDEX)
    rig.work()
    assert bill(paid) == first
    recipe = rig.library.indexes.recipes(rig.base, "questions")[0]
    rig.questions.drop(recipe, rig.rows("questions"))
    assert set(rig.kept().values()) == {0}
    rig.ask("parts.md", Operation.REINDEX)
    rig.work()
    assert bill(paid) == first, "what is made again comes from memos"
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert len(found(rig, "crustacean")) == 20


def test_the_same_text_in_two_documents_is_paid_once(rig: QuestionRig, paid: PaidProvider) -> None:
    rig.index("one.md", PARTS)
    rig.index("two.md", PARTS)
    assert bill(paid) == (20, 20)
    assert len(found(rig, "crustacean")) == 40


def test_an_edit_pays_only_for_changed_chunks(rig: QuestionRig, paid: PaidProvider) -> None:
    rig.index("parts.md", PARTS)
    prompts, texts = bill(paid)
    rig.index("parts.md", sections(20, but={7: "The plankton of part 7 is many of 20."}))
    more = bill(paid)
    assert 1 <= more[0] - prompts <= 2
    assert more[1] - texts <= more[0] - prompts
    assert "plankton of part 7" in found(rig, "crustacean of part 7 plankton")[0]
    rig.sweep()
    assert {table: count for table, count in rig.kept().items() if table != "cards"} == dict.fromkeys(
        rig.kept().keys() - {"cards"}, 20
    )


def test_a_refused_chunk_is_listed_as_missing_and_a_retry_pays_only_for_it(
    rig: QuestionRig, paid: PaidProvider
) -> None:
    paid.refuses["poison"] = REFUSED
    owner = rig.index("parts.md", sections(20, but={4: "The poison of part 4 is one of 20."}))
    assert owner.status is Status.DEGRADED
    assert rig.missing() == {rig.chunk("poison"): "content_refused"}
    assert len(found(rig, "crustacean")) == 19
    before = bill(paid)
    paid.refuses.clear()
    rig.ask("parts.md", Operation.RETRY)
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert rig.missing() == {}
    assert bill(paid) == (before[0] + 1, before[1] + 1)
    assert len(found(rig, "crustacean")) == 20


def test_a_question_that_cannot_be_embedded_makes_its_chunk_missing(rig: QuestionRig, paid: PaidProvider) -> None:
    paid.refuses["lives in part 4?"] = REFUSED
    assert rig.index("parts.md", PARTS).status is Status.DEGRADED
    assert rig.missing() == {rig.chunk("part 4 "): "content_refused"}
    assert sum(paid.bill.prompts.values()) == 20
    paid.refuses.clear()
    rig.ask("parts.md", Operation.RETRY)
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert bill(paid) == (20, 20)


def test_an_unusable_answer_is_requested_once_more_and_then_missing(rig: QuestionRig, paid: PaidProvider) -> None:
    bad = "The poison of part 4 is one of 20."
    paid.reply = lambda request: "nonsense" if bad in texts_of("", request)[-1] else crustaceans(request)
    assert rig.index("parts.md", sections(20, but={4: bad})).status is Status.DEGRADED
    assert rig.missing() == {rig.chunk("poison"): "bad_answer"}
    assert sum(paid.bill.prompts.values()) == 21
    (spent,) = [
        one for one in rig.library.paid_cache.summarize_base(rig.base.key).kinds_spent if one.kind == "questions"
    ]
    assert spent.texts == 21, "the ledger knows both turns"


def test_a_provider_failure_loses_no_paid_answers(
    rig: QuestionRig, paid: PaidProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.indexes.llm_calls.MAX_CONCURRENT_CALLS", 1)
    asked: list[object] = []

    def reply(request: dict[str, Any]) -> str:
        asked.append(request)
        if len(asked) == 8:
            paid.always(BAD_KEY)
        return crustaceans(request)

    paid.reply = reply
    rig.index("parts.md", PARTS)
    failed = rig.slot("parts.md", "questions")
    assert (failed.state, failed.error_code) == (SlotState.FAILED, "provider_key_refused")
    assert bill(paid)[0] == 8
    paid.always(None)
    rig.ask("parts.md", Operation.RETRY)
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert bill(paid) == (20, 20)


def test_a_worker_that_stops_keeps_its_paid_answers(
    rig: QuestionRig, paid: PaidProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "EMBED_BATCH", 4)
    monkeypatch.setattr(questions, "WRITE_BATCH", 2)
    put, seen = questions_pairs.PairStore.put, []

    def stop_before_the_third(self: Any, tx: Any, recipe: int, made: Any) -> None:
        seen.append(len(made))
        if len(seen) == 3:
            raise StopWork("shutting_down", refund=True)
        put(self, tx, recipe, made)

    with monkeypatch.context() as stopping:
        stopping.setattr(questions_pairs.PairStore, "put", stop_before_the_third)
        rig.put("parts.md", PARTS)
        rig.worker.run_next(1)
        rig.worker.run_next(1)
    assert rig.slot("parts.md", "questions").state is SlotState.QUEUED
    assert len(rig.rows("questions")) == sum(seen[:2])
    assert found(rig, "crustacean") == [], "nothing is shown before it is published"
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    prompts, texts = bill(paid)
    assert texts == 20
    assert prompts < 20 + MAX_CONCURRENT_CALLS, "only what was under way when it stopped is paid for again"
    assert len(found(rig, "crustacean")) == 20


def test_progress_counts_finished_chunks(rig: QuestionRig, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []
    note = rig.worker.heartbeat.record_progress

    def listen(ticket: Ticket, progress: Progress) -> None:
        if ticket.key.kind == "questions":
            told.append((progress.stage, progress.done, progress.total))
        note(ticket, progress)

    monkeypatch.setattr(rig.worker.heartbeat, "record_progress", listen)
    rig.index("parts.md", f"{PARTS}\n\n## Short\n\nHello.\n")
    assert {stage for stage, _, _ in told} == {"writing questions"}
    done = [done for _, done, _ in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (1, 21)
    assert {total for _, _, total in told} == {21}


def test_a_deleted_document_disappears_immediately_and_leaves_no_rows(rig: QuestionRig) -> None:
    rig.index("parts.md", PARTS)
    rig.index("other.md", "# Other\n\nThe shrimp of part 50 is pink, and it swims near the coast of the island.")
    rig.cards.generate(rig.base)
    rig.work()
    rig.delete("parts.md")
    assert ["shrimp" in text for text in found(rig, "crustacean")] == [True]
    rig.work()
    rig.sweep()
    assert set(rig.kept().values()) == {1}
    rig.delete("other.md")
    rig.work()
    rig.sweep()
    assert set(rig.kept().values()) == {0}
    assert rig.rows("questions") == []
    assert [rig.count(table) for table in ("chunks", "memos", "memo_uses", "missing")] == [0, 0, 0, 0]


def test_an_interrupted_drop_is_detected_by_a_scan_and_finished_by_the_next_one(
    rig: QuestionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("parts.md", PARTS)
    recipe = rig.library.indexes.recipes(rig.base, "questions")[0]
    chunks = rig.rows("questions")
    with monkeypatch.context() as broken:
        broken.setattr(rig.questions.pairs._vectors, "drop", lambda *_: json.loads("broken off"))
        with pytest.raises(json.JSONDecodeError):
            rig.questions.drop(recipe, chunks)
    assert rig.rows("questions") == chunks
    rig.questions.drop(recipe, chunks)
    assert set(rig.kept().values()) == {0}
    rig.questions.drop(recipe, chunks)


def test_chunks_are_dropped_in_batches_and_no_others_are_affected(
    rig: QuestionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions_pairs, "DELETE_BATCH", 3)
    rig.index("parts.md", PARTS)
    recipe = rig.library.indexes.recipes(rig.base, "questions")[0]
    kept, gone = rig.rows("questions")[:8], rig.rows("questions")[8:]
    rig.questions.drop(recipe, [*gone, 999_999])
    assert rig.rows("questions") == kept
    assert {count for table, count in rig.kept().items() if table != "cards"} == {8}
    assert rig.questions.absent(recipe, [*kept, *gone]) == gone


def test_a_spent_budget_does_not_stop_work_whose_answers_are_all_cached(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("parts.md", PARTS)
    calls = paid.bill.calls
    rig.library.bases.change(rig.base, replace(rig.base.settings, budget_tokens=1))
    rig.index("copy.md", PARTS)
    assert rig.slot("copy.md", "questions").state is SlotState.READY
    assert paid.bill.calls == calls
    rig.index("more.md", sections(2, word="granite"))
    assert rig.slot("more.md", "questions").error_code == "budget_spent"
