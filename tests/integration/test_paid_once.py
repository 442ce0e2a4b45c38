"""Every text is paid for once: the tests compare the provider's bill with the ledger."""
# ruff: noqa: S608 - SQL built from constants of these tests

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from holdfast.catalog.chunk_lists import ChunkLists, ChunkText
from holdfast.catalog.repository import BaseSettings
from holdfast.clock import micros
from holdfast.documents.requests import Upload
from holdfast.engine.admission import Verdict
from holdfast.engine.problems import describe_fault
from holdfast.engine.slot import Ticket
from holdfast.engine.states import Operation, SlotState, Status
from holdfast.llm.batches import PROBE_TEXT, BatchLimits
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.llm.paid_cache import AnswerLookup, Charge, PaidAnswer, answer_key
from tests.support.audit import audit, audit_quiet
from tests.support.harness import Rig
from tests.support.paid_provider import (
    BAD_KEY,
    BROKEN,
    DROPPED,
    NOT_A_NUMBER,
    RATE_LIMITED,
    REFUSED,
    REORDERED,
    SHORT,
    WRONG_DIMENSION,
    WRONG_INDEXES,
    Fault,
    PaidProvider,
    vector_of,
)
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from holdfast.catalog.repository import Base
    from tests.support.clock import FakeClock

    Make = Callable[..., Rig]

WHALES = "# Whales\n\nThe blue whale is the largest animal.\n\n## Food\n\nIt eats krill, tonnes of it.\n"
SMALL = {"chunk_size": 48, "chunk_overlap": 0}


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        yield server


@pytest.fixture
def make(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[Make]:
    """Make a rig with paid embeddings; the test chooses the batch limits and the settings of the base."""
    made: list[tuple[Rig, OpenAIProvider]] = []

    def make(*, texts: int = 64, at_once: int = 4, timeout: float = 30.0, **base: Any) -> Rig:
        provider = OpenAIProvider(
            Endpoint(
                base_url=paid.url,
                key=paid.key,
                embedding_model=paid.embedding_model,
                batching=BatchLimits(texts=texts, concurrency=at_once),
                timeout=timedelta(seconds=timeout),
            )
        )
        rig = Rig(database_url, tmp_path / "blobs", clock, provider, **({"indexes": ("vector",)} | base))
        made.append((rig, provider))
        return rig

    yield make
    for rig, provider in made:
        provider.close()
        rig.close()


def sections(count: int, word: str = "krill", *, but: Mapping[int, str] | None = None) -> str:
    """Write a text with `count` different chunks; `but` replaces some of them."""
    said = {number: f"The {word} of part {number} is one of {count}." for number in range(count)} | dict(but or {})
    return "\n\n".join(f"## Part {number}\n\n{text} " + f"Padding {number}. " * 3 for number, text in said.items())


def paid_texts(paid: PaidProvider) -> int:
    return sum(paid.bill.texts.values())


def ledger(rig: Rig, base: Base | None = None) -> dict[bool, int]:
    """Return the number of texts of documents that the ledger lists as paid (True) and as cached (False)."""
    account = rig.library.paid_cache.summarize_base((base or rig.base).key)
    kinds = [*((True, one) for one in account.kinds_spent), *((False, one) for one in account.kinds_saved)]
    return {paid: one.texts for paid, one in kinds if one.kind == "embedding"}


def stored(rig: Rig) -> dict[int, list[float]]:
    """Read every stored vector by its chunk."""
    found: dict[int, list[float]] = {}
    for recipe in rig.library.indexes.recipes(rig.base, "vector"):
        chunks = rig.library.indexes["vector"].scan(recipe, 0, 1_000_000)
        if not chunks:
            continue
        with rig.store.database.reading() as tx:
            if rig.store.database.engine.dialect.name == "sqlite":
                rows = tx.run_sql(f"SELECT chunk, vector FROM vector_{recipe.id}")
                found |= {chunk: np.frombuffer(vector, dtype=np.float32).tolist() for chunk, vector in rows}
            else:
                rows = tx.run_sql(f"SELECT chunk, vector::text FROM vector_{recipe.id}")
                found |= {chunk: json.loads(vector) for chunk, vector in rows}
    return found


def pieces(rig: Rig) -> dict[int, ChunkText]:
    with rig.store.database.reading() as tx:
        chunks = [chunk for (chunk,) in tx.run_sql("SELECT id FROM library_chunks")]
    return {piece.chunk: piece for piece in ChunkLists(rig.store.database).read_texts(chunks)}


def assert_right(rig: Rig) -> None:
    """Assert that every stored vector is the vector of its text."""
    texts = pieces(rig)
    for chunk, vector in stored(rig).items():
        assert vector == vector_of(texts[chunk].whole)


def test_an_unchanged_document_is_not_paid_for_again(make: Make, paid: PaidProvider) -> None:
    rig = make(**SMALL)
    rig.index("parts.md", sections(20))
    first = paid_texts(paid)
    assert first == rig.count("chunks") == ledger(rig)[True]
    assert rig.put("parts.md", sections(20)).verdict is Verdict.SKIPPED
    assert rig.ask("parts.md", Operation.FORCE).accepted
    rig.work()
    assert rig.ask("parts.md", Operation.REINDEX).accepted
    rig.work()
    assert rig.slot("parts.md", "vector").built == 3
    assert (paid_texts(paid), ledger(rig)[True]) == (first, first)
    rig.sweep()
    audit_quiet(rig)


def test_editing_one_paragraph_of_a_large_document_pays_for_a_few_texts(
    make: Make, paid: PaidProvider, database_url: str
) -> None:
    megabytes = 5.0 if database_url.startswith("sqlite") else 0.3
    rig = make()
    paragraphs = [
        " ".join(
            f"Sentence {part} of paragraph {number} says that krill {number * 7 + part} drifts." for part in range(12)
        )
        for number in range(int(megabytes * 1_000_000 / 660))
    ]
    text = "\n\n".join(paragraphs)
    assert len(text) > megabytes * 1_000_000
    rig.index("book.md", text)
    first = paid_texts(paid)
    assert first == rig.count("chunks") > 150 * megabytes
    paragraphs[len(paragraphs) // 2] = "This paragraph was written anew, and it is about granite."
    rig.index("book.md", "\n\n".join(paragraphs))
    assert rig.slot("book.md", "vector").built == 2
    assert 1 <= paid_texts(paid) - first <= 6
    assert ledger(rig)[True] == paid_texts(paid)
    assert max(paid.bill.texts.values()) == 1


@pytest.mark.parametrize(
    ("before", "after", "most"),
    [
        ("## Part 0\n", "## Opening\n", 2),  # the first heading is a sibling of all others
        ("## Part 50\n", "## Middle\n", 2),
    ],
)
def test_editing_a_heading_pays_only_for_its_own_section(
    make: Make, paid: PaidProvider, before: str, after: str, most: int
) -> None:
    rig = make(**SMALL)
    rig.index("parts.md", sections(100))
    first = paid_texts(paid)
    assert first >= 100
    rig.index("parts.md", sections(100).replace(before, after))
    assert rig.slot("parts.md", "vector").built == 2
    assert 1 <= paid_texts(paid) - first <= most
    assert ledger(rig)[True] == paid_texts(paid)
    assert_right(rig)


def test_changing_a_title_beside_a_level_1_heading_pays_only_for_the_opening(make: Make, paid: PaidProvider) -> None:
    rig = make(**SMALL)
    text = f"---\ntitle: Krill\n---\n\n# Of the sea\n\n{sections(50)}"
    rig.index("parts.md", text)
    first = paid_texts(paid)
    rig.index("parts.md", text.replace("Krill", "Plankton"))
    assert rig.slot("parts.md", "vector").built == 2
    assert 1 <= paid_texts(paid) - first <= 2


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (sections(3), [(), (), ()]),  # the first heading is not a parent of its siblings
        (f"# The *sea*\n\n{sections(2)}", [(), ("The *sea*",)]),
        # Without a level 1 heading, the title is the parent of every chunk.
        (f"---\ntitle: Krill\n---\n\n{sections(2)}", [("Krill",)] * 3),
        (f"---\ntitle: Krill\n---\n\n# Sea\n\n{sections(2)}", [("Krill",), (), ("Sea",)]),
    ],
    ids=["siblings", "marks", "only a title", "title and level 1"],
)
def test_chunks_have_their_real_heading_path(make: Make, text: str, paths: list[tuple[str, ...]]) -> None:
    rig = make(**SMALL)
    rig.index("parts.md", text)
    assert [piece.headings for piece in pieces(rig).values()] == paths


def test_the_same_file_in_two_documents_is_paid_for_once(make: Make, paid: PaidProvider) -> None:
    rig = make(**SMALL)
    rig.index("one.md", sections(10))
    rig.index("two.md", sections(10))
    assert set(paid.bill.texts.values()) == {1}
    assert rig.count("chunks") == 2 * paid_texts(paid)
    assert ledger(rig) == {True: paid_texts(paid), False: paid_texts(paid)}
    assert rig.count("memo_uses") == 2 * rig.count("memos")
    assert_right(rig)


def test_two_equal_documents_added_together_are_paid_for_once(make: Make, paid: PaidProvider) -> None:
    rig = make(**SMALL)
    rig.put("one.md", sections(10))
    rig.put("two.md", sections(10))
    rig.work()
    assert set(paid.bill.texts.values()) == {1}
    assert rig.owner("one.md").status is rig.owner("two.md").status is Status.SUCCESS
    assert len(stored(rig)) == rig.count("chunks") == 2 * paid_texts(paid)
    assert ledger(rig)[True] == paid_texts(paid)
    assert_right(rig)


def test_bases_of_one_tenant_pay_once_and_of_two_tenants_twice(make: Make, paid: PaidProvider) -> None:
    rig = make(tenant="us", **SMALL)
    rig.index("one.md", sections(5))
    unique = paid_texts(paid)
    settings = {"indexes": ("vector",), **SMALL}
    ours = rig.library.catalog.create_base("ours", BaseSettings(tenant="us", **settings))  # type: ignore[arg-type]
    theirs = rig.library.catalog.create_base("theirs", BaseSettings(tenant="them", **settings))  # type: ignore[arg-type]
    rig.library.adder.put(ours, [Upload("one.md", sections(5).encode())])
    rig.work()
    assert (paid_texts(paid), ledger(rig, ours)) == (unique, {False: unique})
    rig.library.adder.put(theirs, [Upload("one.md", sections(5).encode())])
    rig.work()
    assert (paid_texts(paid), ledger(rig, theirs)) == (2 * unique, {True: unique})


def test_a_hundred_tiny_documents_share_a_few_calls(make: Make, paid: PaidProvider) -> None:
    rig = make()
    uploads = [Upload(f"note-{number}.md", f"Note {number} about krill.".encode()) for number in range(100)]
    rig.library.adder.put(rig.base, uploads)
    rig.work()
    assert paid_texts(paid) == 100
    assert paid.bill.calls <= 4
    assert all(rig.owner(upload.name).status is Status.SUCCESS for upload in uploads)
    assert_right(rig)


def test_a_text_repeated_within_a_document_is_paid_for_once(make: Make, paid: PaidProvider) -> None:
    rig = make(**SMALL)
    again = "## Same\n\n" + "The krill drifts with the current of the sea, and so it goes on. " * 3
    rig.index("same.md", "\n\n".join([again] * 6))
    assert rig.count("chunks") > paid_texts(paid)
    assert set(paid.bill.texts.values()) == {1}
    assert len(stored(rig)) == rig.count("chunks")
    assert ledger(rig) == {True: paid_texts(paid)}
    assert_right(rig)


def test_two_workers_on_one_document_pay_once(make: Make, paid: PaidProvider) -> None:
    rig = make(texts=4, **SMALL)
    rig.put("parts.md", sections(20))
    rig.worker.run_next(1)
    with in_flight(rig, paid, 1):
        assert rig.hire("second").run_next(100) == 0
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert set(paid.bill.texts.values()) == {1}


def test_a_refused_text_is_listed_as_missing_and_a_retry_pays_only_for_it(make: Make, paid: PaidProvider) -> None:
    rig = make(**SMALL)
    paid.refuses["poison"] = REFUSED
    rig.put("parts.md", sections(120, but={57: "The poison of part 57."}))
    rig.work()
    assert rig.count("chunks") == 120
    assert (rig.owner("parts.md").status, rig.slot("parts.md", "vector").missing) == (Status.DEGRADED, 1)
    ((chunk, reason),) = missing(rig)
    assert "poison" in pieces(rig)[chunk].text
    assert json.loads(reason)["code"] == "content_refused"
    assert paid_texts(paid) == ledger(rig)[True] == 119
    assert len(rig.find("krill", "vector", 200)) == 119
    audit(rig)
    before = Counter(paid.bill.texts)

    assert rig.ask("parts.md", Operation.RETRY).accepted  # the provider still refuses it
    rig.work()
    assert paid.bill.texts == before
    assert (rig.owner("parts.md").status, [one for one, _ in missing(rig)]) == (Status.DEGRADED, [chunk])

    paid.refuses.clear()
    assert rig.ask("parts.md", Operation.RETRY).accepted
    rig.work()
    assert [text for text in paid.bill.texts - before if "poison" not in text] == []
    assert sum((paid.bill.texts - before).values()) == 1
    assert (rig.owner("parts.md").status, missing(rig)) == (Status.SUCCESS, [])
    hits = rig.find(pieces(rig)[chunk].whole, "vector", 200)
    assert (hits[0].chunk, len(hits)) == (chunk, 120)
    assert rig.slot("parts.md", "content").built == 1  # the content was not built again
    rig.sweep()
    audit_quiet(rig)


def missing(rig: Rig) -> list[tuple[int, str]]:
    with rig.store.database.reading() as tx:
        return [(chunk, reason) for chunk, reason in tx.run_sql("SELECT chunk_id, reason FROM library_missing")]


def test_a_refused_text_fails_no_other_document_of_the_same_call(make: Make, paid: PaidProvider) -> None:
    rig = make(missing_share=0.5)
    paid.refuses["poison"] = REFUSED
    rig.library.adder.put(
        rig.base,
        [Upload(f"{number}.md", b"poison" if number == 7 else f"krill {number}".encode()) for number in range(20)],
    )
    rig.work()
    statuses = Counter(rig.owner(f"{number}.md").status for number in range(20))
    assert statuses[Status.SUCCESS] == 19
    slot = rig.slot("7.md", "vector")
    assert (slot.state, slot.error_code) == (SlotState.FAILED, "too_much_missing")
    assert paid_texts(paid) == ledger(rig)[True] == 19


def test_too_many_refused_texts_fail_the_index_and_the_old_content_stays_served(make: Make, paid: PaidProvider) -> None:
    rig = make(missing_share=0.05, **SMALL)
    rig.index("parts.md", sections(20))
    paid.refuses["poison"] = REFUSED
    rig.index("parts.md", sections(20, but={3: "A poison.", 4: "More poison."}))
    slot = rig.slot("parts.md", "vector")
    assert (slot.state, slot.error_code, slot.built) == (SlotState.FAILED, "too_much_missing", 1)
    assert slot.error is not None
    assert (slot.error.params["refused"], slot.error.params["chunks"]) == ("2", "20")
    rig.sweep()
    hits = rig.find("krill", "vector")
    assert (len(hits), {hit.generation for hit in hits}) == (20, {1})
    audit(rig)


TOO_BUSY = Fault(status=429, code="rate_limit_exceeded", type="requests", retry_after="300")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (RATE_LIMITED, "rate_limited"),
        (TOO_BUSY, "rate_limited"),
        (BROKEN, "provider_busy"),
        (DROPPED, "provider_down"),
        (SHORT, "bad_answer"),
        (WRONG_INDEXES, "bad_answer"),
        (NOT_A_NUMBER, "bad_answer"),
    ],
    ids=lambda one: one.twist or one.retry_after or str(one.status) if isinstance(one, Fault) else "",
)
def test_a_failed_call_is_retried_later_and_paid_answers_are_kept(
    make: Make, paid: PaidProvider, clock: FakeClock, fault: Fault, code: str
) -> None:
    seconds = int(fault.retry_after or 60)  # the provider's retry-after, or the default delay
    rig = make(texts=8, at_once=1, **SMALL)
    rig.put("parts.md", sections(32))
    rig.worker.run_next(1)
    paid.next(*([Fault()] * 2), fault)
    rig.work()
    slot = rig.slot("parts.md", "vector")
    assert (slot.state, slot.error_code) == (SlotState.WAITING, code)
    assert slot.due_at == clock.now() + micros(timedelta(seconds=seconds))
    assert len(stored(rig)) == 16 == rig.count("memos")
    assert_right(rig)
    assert rig.find("krill", "vector") == []  # nothing is served before the build is complete
    clock.advance(timedelta(seconds=seconds - 1))
    assert rig.worker.run_next(1) == 0
    clock.advance(timedelta(seconds=1))
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert len(stored(rig)) == 32
    assert_right(rig)
    spoilt = 8 if fault.status == 200 else 0
    assert paid_texts(paid) - other_texts(paid) == 32 + spoilt
    assert ledger(rig)[True] == paid_texts(paid) - paid.bill.texts["krill"]  # also unusable answers and probes


def other_texts(paid: PaidProvider) -> int:
    """Count the texts paid for queries and for probes of the provider."""
    return paid.bill.texts["krill"] + paid.bill.texts[PROBE_TEXT]


def test_reordered_vectors_are_stored_for_the_right_texts(make: Make, paid: PaidProvider) -> None:
    rig = make(texts=8, **SMALL)
    paid.always(REORDERED)
    rig.index("parts.md", sections(32))
    assert (rig.owner("parts.md").status, paid_texts(paid)) == (Status.SUCCESS, 32)
    assert_right(rig)


def test_a_call_that_times_out_is_retried_later(make: Make, paid: PaidProvider, clock: FakeClock) -> None:
    rig = make(texts=8, at_once=1, timeout=3, **SMALL)  # far longer than an answered call takes
    rig.put("parts.md", sections(16))
    rig.worker.run_next(1)
    paid.stall()
    rig.work()
    slot = rig.slot("parts.md", "vector")
    assert (slot.state, slot.attempts, stored(rig)) == (SlotState.WAITING, slot.attempts, {})
    assert slot.due_at == clock.now() + micros(timedelta(seconds=1))
    paid.release()
    clock.advance(timedelta(seconds=1))
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert paid_texts(paid) - other_texts(paid) <= 16 + 8
    assert_right(rig)


def test_vectors_of_a_different_length_are_not_stored(make: Make, paid: PaidProvider, clock: FakeClock) -> None:
    rig = make(texts=8, at_once=1, **SMALL)
    rig.index("whales.md", WHALES)
    before = stored(rig)
    paid.always(WRONG_DIMENSION)
    rig.index("parts.md", sections(16))
    assert stored(rig) == before
    paid.always(None)
    assert [hit.name for hit in rig.find("krill", "vector")][:1] == ["whales.md"]  # search still works
    clock.advance(timedelta(hours=1))
    rig.ask("parts.md", Operation.RETRY)
    rig.work()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert_right(rig)


def test_a_text_that_breaks_the_provider_fails_after_four_attempts_and_costs_nothing(
    make: Make, paid: PaidProvider, clock: FakeClock
) -> None:
    rig = make(**SMALL)
    paid.refuses["krill"] = BROKEN
    rig.put("parts.md", sections(8))
    for _ in range(6):
        rig.work()
        clock.advance(timedelta(minutes=15))
    slot = rig.slot("parts.md", "vector")
    assert (slot.state, slot.error_code, slot.attempts) == (SlotState.FAILED, "provider_busy", 4)
    assert (paid_texts(paid) - other_texts(paid), rig.count("memos"), stored(rig)) == (0, 0, {})


def test_a_refused_key_fails_the_slot_immediately(make: Make, paid: PaidProvider) -> None:
    rig = make(**SMALL)
    paid.always(BAD_KEY)
    rig.index("parts.md", sections(8))
    slot = rig.slot("parts.md", "vector")
    assert (slot.state, slot.error_code, slot.attempts) == (SlotState.FAILED, "provider_key_refused", 1)
    paid.always(None)
    rig.ask("parts.md", Operation.RETRY)
    rig.work()
    assert (rig.owner("parts.md").status, paid_texts(paid)) == (Status.SUCCESS, 8)


class in_flight:  # noqa: N801 - used as a statement: `with in_flight(...)`
    """Runs a worker in a thread until its calls are waiting for an answer; leaving the block releases the answers."""

    def __init__(self, rig: Rig, paid: PaidProvider, calls: int) -> None:
        self._rig, self._paid, self._calls = rig, paid, calls
        self._worker = rig.hire("late")
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._paid.stall()
        self._thread.start()
        self._paid.await_calls(self._calls)

    def __exit__(self, *_: object) -> None:
        self._paid.release()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        assert self._errors == []

    def _run(self) -> None:
        try:
            self._worker.run_next(1)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self._errors.append(error)


@pytest.mark.parametrize("at_once", [1, 4])
def test_an_answer_for_an_outdated_generation_is_kept_for_the_next_one(
    make: Make, paid: PaidProvider, at_once: int
) -> None:
    rig = make(texts=8, at_once=at_once, **SMALL)
    rig.put("parts.md", sections(32))
    rig.worker.run_next(1)
    with in_flight(rig, paid, at_once):
        assert rig.put("parts.md", sections(32, but={31: "Granite."})).accepted
    assert stored(rig) == {}  # the late worker wrote no row
    rig.work()
    assert (rig.owner("parts.md").status, rig.slot("parts.md", "vector").built) == (Status.SUCCESS, 2)
    assert set(paid.bill.texts.values()) == {1}
    assert ledger(rig)[True] == paid_texts(paid)
    rig.sweep()
    assert_right(rig)
    audit_quiet(rig)


def test_an_answer_that_another_worker_stored_first_wins(make: Make, paid: PaidProvider) -> None:
    rig = make(**SMALL)
    rig.put("one.md", "About krill.")
    rig.put("two.md", "About granite.")
    assert rig.worker.run_next(2) == 2  # builds both contents
    recipe = rig.library.catalog.get_or_create_recipe(rig.base, "vector", rig.library.indexes["vector"].spec(rig.base))
    model = json.loads(recipe.spec)["model"]
    (chunk,) = chunks_of(rig, "one.md")
    key = answer_key("embedding", model, pieces(rig)[chunk].whole)
    first = np.arange(8, dtype=np.float32).tobytes()
    with in_flight(rig, paid, 1):  # during the call for the first document, another worker stores a different answer
        entry = PaidAnswer(ticket(rig, "two.md"), key, first, chunks_of(rig, "two.md"))
        assert rig.library.paid_cache.store_answers("", [entry]) == {key: first}
    rig.work()
    assert stored(rig)[chunk] == list(range(8))


def test_an_answer_that_arrives_after_a_delete_is_not_kept(make: Make, paid: PaidProvider) -> None:
    rig = make(texts=8, **SMALL)
    rig.put("parts.md", sections(32))
    rig.worker.run_next(1)
    with in_flight(rig, paid, 4):
        rig.delete("parts.md")
    assert (rig.count("memos"), rig.count("memo_uses"), stored(rig)) == (0, 0, {})
    rig.work()
    rig.sweep()
    left = {table: rig.count(table) for table in ("items", "builds", "lists", "chunks", "memos", "slots", "owners")}
    assert left == dict.fromkeys(left, 0)
    audit_quiet(rig)
    assert ledger(rig)[True] > 0  # the calls were paid nevertheless


def test_an_answer_that_arrives_after_the_clean_up_is_not_kept(
    make: Make, paid: PaidProvider, clock: FakeClock
) -> None:
    rig = make(texts=8, **SMALL)
    rig.put("parts.md", sections(32))
    rig.worker.run_next(1)
    with in_flight(rig, paid, 4):
        rig.delete("parts.md")
        clock.advance(timedelta(minutes=3))  # the lease of the late worker expires
        rig.work()
        assert (rig.count("chunks"), rig.count("slots")) == (0, 0)
    rig.sweep()
    assert (rig.count("memos"), rig.count("memo_uses"), stored(rig)) == (0, 0, {})


def test_an_answer_for_a_chunk_swept_during_the_call_leaves_no_rows(make: Make, paid: PaidProvider) -> None:
    rig = make(texts=8, **SMALL)
    rig.put("parts.md", sections(8))
    rig.worker.run_next(1)
    with in_flight(rig, paid, 1):
        rig.put("parts.md", sections(8, "granite"))
        rig.worker.run_next(1)  # builds the new content; the old one is no longer served
        rig.sweep()
        assert rig.count("chunks") == 8
    rig.work()
    rig.sweep()
    assert rig.owner("parts.md").status is Status.SUCCESS
    assert rig.count("memos") == 8
    audit_quiet(rig)
    rig.delete("parts.md")
    rig.work()
    assert (rig.count("memos"), rig.count("memo_uses")) == (0, 0)


def ticket(rig: Rig, name: str, kind: str = "content") -> Ticket:
    """Write a ticket for the current state of a document."""
    slot = rig.slot(name, kind)
    return Ticket(
        slot.id, slot.owner_id, slot.key, slot.job, slot.wanted, slot.fence, 1, removing=False, source=None, built=0
    )


def chunks_of(rig: Rig, name: str) -> list[int]:
    slot = rig.slot(name, "content")
    with rig.store.database.reading() as tx:
        where = f"owner_id = {slot.owner_id} AND build = {slot.source} ORDER BY ordinal"
        return [chunk for (chunk,) in tx.run_sql(f"SELECT chunk_id FROM library_lists WHERE {where}")]


def texts_of(rig: Rig, *names: str) -> Rig:
    for name in names:
        rig.index(name, f"About {name} and nothing else.")
    return rig


BILL = Charge(kind="embedding", model="m", texts=1, tokens_in=10)


def keep(rig: Rig, name: str, key: str, value: bytes, **more: Any) -> dict[str, bytes]:
    one = ticket(rig, name)
    return rig.library.paid_cache.store_answers("", [PaidAnswer(one, key, value, chunks_of(rig, name))], **more)


def recall(rig: Rig, name: str, key: str) -> dict[str, bytes]:
    one = ticket(rig, name)
    return rig.library.paid_cache.find_answers("", [AnswerLookup(one, key, chunks_of(rig, name))], BILL)


def delete(rig: Rig, name: str) -> None:
    rig.delete(name)
    rig.work()
    rig.sweep()


def test_the_first_stored_answer_wins(make: Make) -> None:
    rig = texts_of(make(indexes=("fulltext",)), "a.md", "b.md")
    assert keep(rig, "a.md", "key", b"first") == {"key": b"first"}
    assert keep(rig, "b.md", "key", b"second") == {"key": b"first"}
    assert keep(rig, "a.md", "key", b"third") == {"key": b"first"}
    assert recall(rig, "b.md", "key") == {"key": b"first"}
    assert (rig.count("memos"), rig.count("memo_uses")) == (1, 2)


def test_a_cached_answer_is_removed_with_its_last_use(make: Make) -> None:
    rig = texts_of(make(indexes=("fulltext",)), "a.md", "b.md", "c.md")
    keep(rig, "a.md", "key", b"value")
    recall(rig, "b.md", "key")
    delete(rig, "a.md")
    assert recall(rig, "b.md", "key") == {"key": b"value"}
    delete(rig, "b.md")
    assert (rig.count("memos"), rig.count("memo_uses"), recall(rig, "c.md", "key")) == (0, 0, {})


def test_a_cached_answer_is_removed_when_its_text_leaves_the_document(make: Make) -> None:
    rig = texts_of(make(indexes=("fulltext",)), "a.md")
    keep(rig, "a.md", "key", b"value")
    rig.index("a.md", "Something else.")
    assert rig.count("memos") == 1  # until the sweep
    rig.sweep()
    assert (rig.count("memos"), rig.count("memo_uses")) == (0, 0)


def test_an_answer_from_several_documents_is_removed_with_the_first_of_them(make: Make) -> None:
    rig = texts_of(make(indexes=("fulltext",)), "a.md", "b.md")
    both = [PaidAnswer(ticket(rig, name), "joint", b"value", chunks_of(rig, name)) for name in ("a.md", "b.md")]
    rig.library.paid_cache.store_answers("", both, joint=True)
    keep(rig, "b.md", "own", b"value")
    delete(rig, "a.md")
    assert recall(rig, "b.md", "joint") == {}
    assert recall(rig, "b.md", "own") == {"own": b"value"}
    assert (rig.count("memos"), rig.count("memo_uses")) == (1, 1)


def test_an_answer_from_several_documents_is_not_stored_after_one_is_deleted(make: Make) -> None:
    rig = texts_of(make(indexes=("fulltext",)), "a.md", "b.md")
    both = [PaidAnswer(ticket(rig, name), "joint", b"value", chunks_of(rig, name)) for name in ("a.md", "b.md")]
    rig.delete("a.md")
    assert rig.library.paid_cache.store_answers("", both, joint=True) == {}
    assert (rig.count("memos"), rig.count("memo_uses")) == (0, 0)


def test_an_answer_is_not_stored_for_a_document_that_is_being_deleted(make: Make) -> None:
    rig = texts_of(make(indexes=("fulltext",)), "a.md", "b.md")
    late = PaidAnswer(ticket(rig, "a.md"), "key", b"value", chunks_of(rig, "a.md"))
    rig.delete("a.md")
    assert rig.library.paid_cache.store_answers("", [late]) == {}
    keep(rig, "b.md", "key", b"other")
    assert rig.library.paid_cache.find_answers("", [AnswerLookup(late.ticket, "key", late.chunks)], BILL) == {
        "key": b"other"
    }
    rig.work()
    rig.sweep()
    assert rig.library.paid_cache.find_answers("", [AnswerLookup(late.ticket, "key", late.chunks)], BILL) == {
        "key": b"other"
    }
    assert (rig.count("memos"), rig.count("memo_uses")) == (1, 1)


def test_tenants_do_not_share_cached_answers(make: Make) -> None:
    rig = texts_of(make(indexes=("fulltext",)), "a.md")
    keep(rig, "a.md", "key", b"value")
    assert (
        rig.library.paid_cache.find_answers(
            "others", [AnswerLookup(ticket(rig, "a.md"), "key", chunks_of(rig, "a.md"))], BILL
        )
        == {}
    )
    assert rig.count("memo_uses") == 1


def test_the_ledger_lists_paid_and_cached_answers(make: Make) -> None:
    rig = texts_of(make(indexes=("fulltext",)), "a.md", "b.md")
    one = ticket(rig, "a.md")
    bill = Charge(kind="extraction", model="m", texts=2, tokens_in=100, tokens_out=50, price=0.25)
    rig.library.paid_cache.store_answers("", [PaidAnswer(one, "key", b"value", chunks_of(rig, "a.md"))])
    rig.library.paid_cache.reserve(rig.base, [(one, bill), (ticket(rig, "b.md"), bill)])
    recall(rig, "b.md", "key")
    recall(rig, "b.md", "unknown")
    account = rig.library.paid_cache.summarize_base(rig.base.key)
    (whole,), (saved,) = account.kinds_spent, account.kinds_saved
    assert (whole.kind, saved.kind) == ("extraction", "embedding")
    assert (whole.texts, whole.tokens_in, whole.tokens_out, whole.price) == (4, 200, 100, 0.5)
    assert saved.texts == 1
    nothing = rig.library.paid_cache.summarize_base("999")
    assert (nothing.kinds_spent, nothing.kinds_saved) == ([], [])


def test_tokens_divided_among_documents_add_up_to_the_bill(make: Make, paid: PaidProvider) -> None:
    rig = make(texts=16)
    rig.library.adder.put(
        rig.base, [Upload(f"{number}.md", b"krill " * (number + 1) + str(number).encode()) for number in range(37)]
    )
    rig.work()
    account = rig.library.paid_cache.summarize_base(rig.base.key)
    (spent,) = account.kinds_spent
    assert account.kinds_saved == []
    assert (spent.texts, spent.tokens_in) == (37, paid.bill.tokens)
    with rig.store.database.reading() as tx:
        shares = tx.run_sql("SELECT owner, sum(texts), sum(tokens_in) FROM library_ledger GROUP BY owner")
    assert len(shares) == 37
    assert all(texts == 1 and tokens > 0 for _, texts, tokens in shares)


def test_a_refused_text_is_not_on_the_ledger(make: Make, paid: PaidProvider) -> None:
    rig = make(missing_share=1.0, **SMALL)
    paid.refuses["poison"] = REFUSED
    rig.index("parts.md", sections(8, but={3: "poison"}))
    account = rig.library.paid_cache.summarize_base(rig.base.key)
    (spent,) = account.kinds_spent
    assert account.kinds_saved == []
    assert (spent.texts, spent.tokens_in) == (paid_texts(paid), paid.bill.tokens)


def test_a_budget_stops_work_before_it_is_exceeded(make: Make, paid: PaidProvider) -> None:
    rig = make(texts=8, at_once=1, budget_tokens=60, **SMALL)
    rig.index("whales.md", WHALES)
    spent = rig.library.paid_cache.summarize_base(rig.base.key).spent.tokens_in
    assert 0 < spent <= 60
    before = paid_texts(paid)
    rig.index("parts.md", sections(16))
    slot = rig.slot("parts.md", "vector")
    assert (slot.state, slot.error_code) == (SlotState.FAILED, "budget_spent")
    assert slot.error is not None
    assert (slot.error.params["base"], slot.error.params["budget"]) == ("shelf", "60")
    message = describe_fault(slot.error).message
    assert message.startswith("Base 'shelf' has a budget of 60 tokens")
    assert "Raise the budget of the base" in message
    assert paid_texts(paid) == before
    assert [hit.name for hit in rig.find("krill", "vector")][:1] == ["whales.md"]
