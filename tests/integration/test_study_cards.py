"""Study cards of a base: one set at a time, each question once, and only from served content."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from holdfast.bases import cards as module
from holdfast.bases.cards import NO_CARDS
from holdfast.bases.slots import CARDS
from holdfast.engine.admission import Request, Verdict
from holdfast.engine.executor import no_failpoint
from holdfast.engine.states import Operation, Outcome, SlotState, Status
from holdfast.engine.task import Task
from holdfast.errors import BadRequest, Permanent, StaleLease
from holdfast.indexes.base import NotEnabled
from tests.support.paid_provider import PaidProvider
from tests.support.question_harness import QuestionRig, sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.engine.admission import AdmissionResult
    from holdfast.engine.slot import Progress, Slot, Ticket
    from tests.support.clock import FakeClock

FIRST = sections(6)
SECOND = sections(8)  # repeats the questions of the first and adds two
SHRIMP = "# Shrimp\n\nThe shrimp of part 50 is pink, and it swims near the coast of the island in the north.\n"


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        yield server


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[QuestionRig]:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid)
    yield rig
    rig.close()


def asked(rig: QuestionRig) -> list[str]:
    return [card.question for card in rig.cards.page(rig.base, limit=None)]


def questions(*parts: int) -> list[str]:
    return [f"Which crustacean lives in part {part}?" for part in parts]


def generate(rig: QuestionRig) -> AdmissionResult:
    answer = rig.cards.generate(rig.base)
    rig.work()
    return answer


def slot(rig: QuestionRig) -> Slot:
    return rig.store.slot(rig.base.key, CARDS, CARDS)


def interrupted(rig: QuestionRig, at: str, act: Callable[[], None]) -> None:
    """Process queued work, and call `act` once when a build of cards reports this stage."""
    done: list[str] = []
    worker = rig.hire("interrupted")
    note = worker.heartbeat.record_progress

    def listen(ticket: Ticket, progress: Progress) -> None:
        note(ticket, progress)
        if not done and progress.stage == at:
            done.append(at)
            act()

    worker.heartbeat.record_progress = listen  # type: ignore[method-assign]
    worker.run_next(1)
    assert done, f"no build came to {at!r}"


def test_a_base_without_cards_reports_no_cards(rig: QuestionRig) -> None:
    assert rig.cards.status(rig.base) == NO_CARDS
    assert rig.cards.page(rig.base, limit=None) == []
    assert rig.cards.cancel(rig.base).verdict is Verdict.REJECTED


def test_cards_of_all_documents_are_collected_without_duplicate_questions(rig: QuestionRig, paid: PaidProvider) -> None:
    rig.index("first.md", FIRST)
    rig.index("second.md", SECOND)
    before = paid.bill.calls
    answer = generate(rig)
    assert answer.verdict is Verdict.ACCEPTED
    assert rig.store.job(answer.job or "").outcome is Outcome.SUCCESS
    assert asked(rig) == questions(*range(8))
    assert rig.count("pairs") == 14
    assert paid.bill.calls == before, "no new calls"
    status = rig.cards.status(rig.base)
    assert (status.status, status.generation, status.cards) == (Status.SUCCESS, 1, 8)


def test_every_card_has_its_source_passage(rig: QuestionRig) -> None:
    texts = {"first.md": FIRST, "shrimp.md": SHRIMP}
    for name, text in texts.items():
        rig.index(name, text)
    generate(rig)
    page = rig.cards.page(rig.base)
    assert [one.place for one in page] == list(range(1, 8))
    for one in page:
        assert one.passage in texts[one.name]
        (passage,) = (chunk for chunk in rig.library.items.chunks(rig.base, one.document) if chunk.chunk == one.chunk)
        assert (one.passage, one.headings) == (passage.text, passage.headings)
        assert texts[one.name][passage.start : passage.end] == one.passage
        assert one.chunk == rig.chunk(one.passage)
        assert one.document == rig.library.items.find(rig.base, one.name).id
        (part,) = re.findall(r"part (\d+)\?", one.question)
        assert f"of part {part} " in one.passage, "the answer stands in the passage"
    assert {one.name for one in page} == set(texts)
    assert [one.place for one in rig.cards.page(rig.base, after=3, limit=2)] == [4, 5]


def test_a_set_larger_than_a_batch_is_complete_and_in_order(rig: QuestionRig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {
        "CARDS_PER_TRANSACTION": 3,
        "CARDS_PER_READ": 2,
        "CHUNKS_PER_READ": 4,
        "LARGEST_BATCH": 2,
    }.items():
        monkeypatch.setattr(module, name, size)
    rig.index("second.md", SECOND)
    for _ in range(3):
        generate(rig)
        assert asked(rig) == questions(*range(8))
    assert rig.count("cards") == 16, "the set that is served, and the one before it"


def test_a_base_without_questions_fails_with_a_reason(rig: QuestionRig) -> None:
    rig.index("short.md", "# Short\n\nHello.\n")
    generate(rig)
    assert (slot(rig).state, slot(rig).error_code) == (SlotState.FAILED, "no_result")


def test_without_a_language_model_a_request_for_cards_is_refused_with_a_reason(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, silent=True, indexes=("fulltext", "questions"))
    rig.index("first.md", FIRST)
    with pytest.raises(NotEnabled, match="language model"):
        rig.cards.generate(rig.base)
    assert rig.cards.status(rig.base) == NO_CARDS
    rig.close()


def test_without_the_index_questions_a_request_for_cards_is_refused(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, indexes=("fulltext",))
    with pytest.raises(NotEnabled, match="Base 'shelf' has no index 'questions'") as refused:
        rig.cards.generate(rig.base)
    assert (refused.value.code, refused.value.subcode) == ("not_enabled", "no_questions")
    rig.close()


def test_concurrent_requests_join_one_job(rig: QuestionRig) -> None:
    rig.index("first.md", FIRST)
    for round_ in (1, 2):
        answers: list[AdmissionResult] = []
        gate = threading.Barrier(6)

        def ask(answers: list[AdmissionResult] = answers, gate: threading.Barrier = gate) -> None:
            gate.wait()
            answers.append(rig.cards.generate(rig.base))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answer.verdict for answer in answers) == [Verdict.ACCEPTED, *[Verdict.JOINED] * 5]
        assert len({answer.job for answer in answers}) == 1
        rig.work()
        assert rig.cards.status(rig.base).generation == round_


def test_a_request_during_a_build_joins_its_job(rig: QuestionRig) -> None:
    rig.index("first.md", FIRST)
    first = rig.cards.generate(rig.base)
    joined: list[AdmissionResult] = []
    interrupted(rig, "publishing", lambda: joined.append(rig.cards.generate(rig.base)))
    assert [(one.verdict, one.job) for one in joined] == [(Verdict.JOINED, first.job)]
    assert asked(rig) == questions(*range(6))


@pytest.mark.parametrize("stage", ["removing", "collecting cards", "publishing"])
def test_the_old_set_is_served_until_the_new_one_is_published(rig: QuestionRig, stage: str) -> None:
    rig.index("first.md", FIRST)
    generate(rig)
    rig.index("shrimp.md", SHRIMP)
    rig.cards.generate(rig.base)
    seen: list[tuple[list[str], int]] = []
    interrupted(rig, stage, lambda: seen.append((asked(rig), rig.cards.status(rig.base).generation)))
    assert seen == [(questions(*range(6)), 1)]
    assert asked(rig) == questions(*range(6), 50)
    assert rig.cards.status(rig.base).generation == 2


def test_a_partially_written_set_is_not_shown(rig: QuestionRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CARDS_PER_TRANSACTION", 1)
    rig.index("first.md", FIRST)
    seen: list[tuple[int, list[str]]] = []
    write = module.CardsIndexer._write

    def look(self: module.CardsIndexer, task: Task, first: int, chosen: Sequence[module.CardCandidate]) -> None:
        write(self, task, first, chosen)
        seen.append((rig.count("cards"), asked(rig)))

    monkeypatch.setattr(module.CardsIndexer, "_write", look)
    generate(rig)
    assert seen == [(rows, []) for rows in range(1, 7)]
    assert asked(rig) == questions(*range(6))


def test_a_failed_build_keeps_the_old_set_and_the_next_build_removes_its_rows(
    rig: QuestionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.index("first.md", FIRST)
    generate(rig)
    rig.index("shrimp.md", SHRIMP)
    write = module.CardsIndexer._write

    def break_off(self: module.CardsIndexer, task: Task, first: int, chosen: Sequence[module.CardCandidate]) -> None:
        if first >= 2:
            raise Permanent("broken", "The disk is broken.")
        write(self, task, first, chosen)

    with monkeypatch.context() as broken:
        broken.setattr(module, "CARDS_PER_TRANSACTION", 2)
        broken.setattr(module.CardsIndexer, "_write", break_off)
        generate(rig)
    assert (slot(rig).state, slot(rig).error_code) == (SlotState.FAILED, "broken")
    assert asked(rig) == questions(*range(6))
    status = rig.cards.status(rig.base)
    assert (status.status, status.generation, status.cards) == (Status.DEGRADED, 1, 6)
    assert status.error is not None
    assert rig.count("cards") == 6 + 2
    generate(rig)
    assert asked(rig) == questions(*range(6), 50)
    assert rig.count("cards") == 6 + 7


def test_a_cancelled_build_keeps_the_old_set_and_a_new_request_is_accepted(
    rig: QuestionRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CARDS_PER_TRANSACTION", 2)
    rig.index("first.md", FIRST)
    generate(rig)
    rig.index("shrimp.md", SHRIMP)
    answer = rig.cards.generate(rig.base)
    interrupted(rig, "publishing", lambda: cancel(rig))
    assert slot(rig).state is SlotState.CANCELLED
    assert rig.store.job(answer.job or "").outcome is Outcome.CANCELLED
    assert asked(rig) == questions(*range(6))
    assert generate(rig).verdict is Verdict.ACCEPTED
    assert asked(rig) == questions(*range(6), 50)
    assert rig.count("cards") == 6 + 7


def cancel(rig: QuestionRig) -> None:
    assert rig.cards.cancel(rig.base).accepted


def test_a_late_worker_cannot_write_into_the_set_of_its_successor(rig: QuestionRig) -> None:
    rig.index("first.md", FIRST)
    rig.cards.generate(rig.base)
    (ticket,) = rig.store.claim_next((CARDS,), "late", 1)
    late = Task(ticket, rig.store, rig.worker.heartbeat, no_failpoint)
    rig.cards.cancel(rig.base)
    generate(rig)
    indexer = rig.indexers[CARDS]
    assert isinstance(indexer, module.CardsIndexer)
    with pytest.raises(StaleLease):
        indexer._write(late, 0, [module.CardCandidate(1, "?")])
    assert rig.count("cards") == 6
    assert asked(rig) == questions(*range(6))


def test_the_status_shows_the_current_step_and_number_of_pairs(rig: QuestionRig) -> None:
    rig.index("first.md", FIRST)
    rig.index("second.md", SECOND)
    seen: list[tuple[str, int, int, int] | None] = []
    rig.cards.generate(rig.base)
    (ticket,) = rig.store.claim_next((CARDS,), "looker", 1)
    rig.worker.heartbeat.hold([ticket], rig.clock.monotonic())

    def look(point: str) -> None:
        rig.worker.heartbeat.beat()
        progress = rig.cards.status(rig.base).progress
        seen.append((progress.stage, progress.step, progress.steps, progress.done) if progress else None)
        assert point == "checkpoint"

    rig.indexers[CARDS].build(Task(ticket, rig.store, rig.worker.heartbeat, look))
    assert list(dict.fromkeys(seen)) == [
        None,
        ("removing", 0, 0, 0),
        ("collecting cards", 1, 2, 0),
        ("collecting cards", 1, 2, 6),
        ("collecting cards", 2, 2, 6),
        ("collecting cards", 2, 2, 14),
    ]


def test_cards_of_a_deleted_document_disappear_immediately_and_leave_no_rows(rig: QuestionRig) -> None:
    rig.index("first.md", FIRST)
    rig.index("shrimp.md", SHRIMP)
    generate(rig)
    rig.delete("shrimp.md")
    assert asked(rig) == questions(*range(6))
    assert "shrimp" not in rig.cards.export(rig.base, "json").casefold()
    rig.work()
    rig.sweep()
    assert rig.count("cards") == rig.count("pairs") == 6
    assert rig.cards.status(rig.base).cards == 6


def test_cards_of_a_document_deleted_during_the_build_are_not_shown(rig: QuestionRig) -> None:
    rig.index("first.md", FIRST)
    rig.index("shrimp.md", SHRIMP)
    rig.cards.generate(rig.base)
    interrupted(rig, "publishing", lambda: remove(rig, "shrimp.md"))
    assert slot(rig).state is SlotState.READY
    assert asked(rig) == questions(*range(6))
    assert rig.count("cards") == 6, "no card names a pair that is gone"


def remove(rig: QuestionRig, name: str) -> None:
    """Delete a document and let another worker clean up."""
    rig.delete(name)
    rig.work()


def test_a_changed_passage_removes_its_card_and_the_others_stay(rig: QuestionRig) -> None:
    rig.index("first.md", FIRST)
    generate(rig)
    rig.put("first.md", sections(6, but={3: "The plankton of part 93 is one of 6."}))
    assert asked(rig) == questions(*range(6)), "the old content is served until the new one is complete"
    rig.work()
    assert asked(rig) == questions(0, 1, 2, 4, 5)
    generate(rig)
    assert sorted(asked(rig)) == sorted(questions(0, 1, 2, 93, 4, 5))


def test_deleting_the_slot_removes_the_set(rig: QuestionRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_BATCH", 4)
    rig.index("first.md", FIRST)
    generate(rig)
    generate(rig)
    assert rig.count("cards") == 12
    request = Request(base=rig.base.key, owner=CARDS, operation=Operation.DELETE)
    assert rig.store.admit([request])[0].accepted
    assert asked(rig) == []
    rig.work()
    assert rig.count("cards") == 0
    assert rig.cards.status(rig.base) == NO_CARDS


def test_cards_of_another_base_are_not_shown(rig: QuestionRig) -> None:
    rig.index("first.md", FIRST)
    generate(rig)
    other = rig.library.catalog.create_base("other", rig.base.settings)
    assert rig.cards.page(other, limit=None) == []
    assert rig.cards.status(other) == NO_CARDS


@pytest.mark.postgres
def test_the_owner_of_cards_does_not_break_queries_of_documents(
    postgres_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    with closing(QuestionRig(postgres_url, tmp_path / "blobs", clock, paid)) as rig:
        rig.index("first.md", FIRST)
        generate(rig)
        with rig.store.database.reading() as tx:
            for plan in ("nestloop", "hashjoin"):  # forces a plan that joins all owners with documents first
                tx.run_sql(f"SET LOCAL enable_{plan} = off")
            assert len(list(module._shown(tx, rig.base, 0))) == 6


def test_exported_cards_equal_the_shown_ones_in_every_format(rig: QuestionRig) -> None:
    rig.index("first.md", FIRST)
    rig.index("shrimp.md", SHRIMP)
    generate(rig)
    shown = rig.cards.page(rig.base, limit=None)
    rows = list(csv.DictReader(io.StringIO(rig.cards.export(rig.base, "csv"), newline="")))
    written = json.loads(rig.cards.export(rig.base, "json"))
    for back in (rows, written):
        assert [(one["question"], one["answer"], one["document"], one["passage"]) for one in back] == [
            (card.question, card.answer, card.name, card.passage) for card in shown
        ]
    assert [one["headings"] for one in written] == [card.headings for card in shown]
    lines = [line for line in rig.cards.export(rig.base, "anki").splitlines() if not line.startswith("#")]
    assert [line.split("\t")[0] for line in lines] == [card.question for card in shown]
    with pytest.raises(BadRequest, match=r"as 'pdf'\. Choose from: csv, json, anki"):
        rig.cards.export(rig.base, "pdf")
