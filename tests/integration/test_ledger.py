"""The ledger records every paid call at the price of that time, and every call that the cache saved."""

from __future__ import annotations

from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.catalog.repository import BaseSettings
from holdfast.documents.requests import AddOptions, Upload
from holdfast.engine.states import Status
from holdfast.errors import Permanent, Transient, WorkError
from holdfast.indexes.vector.index import VectorIndex
from holdfast.llm.batches import PROBE_TEXT
from holdfast.llm.openai import Endpoint, OpenAIProvider
from holdfast.llm.paid_cache import MAX_CACHED_QUERIES, Charge, PaidAnswerCache
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from holdfast.service.schemas import Answer
from holdfast.settings import Settings
from holdfast.wiring import prices_by_model
from tests.support import paid_provider
from tests.support.harness import Rig
from tests.support.paid_provider import (
    BAD_KEY,
    BROKEN,
    DROPPED,
    FAILED_IN_STREAM,
    FILTERED,
    FINE,
    SHORT,
    Fault,
    PaidProvider,
)
from tests.support.question_harness import QuestionRig, crustaceans, sections
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from holdfast.catalog.repository import Recipe
    from holdfast.indexes.base import Work
    from tests.support.clock import FakeClock

    Make = Callable[..., Rig]

WHALES = "The blue whale eats krill."
LONG = "what do all of the whales of the sea eat, and where do they find it"
PRICED: dict[str, Any] = {"embedding_url": "http://provider", "embedding_model": "embedder", "embedding_price": 2.0}
MILLION = 1_000_000


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        yield server


@pytest.fixture
def make(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[Make]:
    made: list[tuple[Rig, OpenAIProvider]] = []

    def make(settings: Mapping[str, Any] = PRICED, **base: Any) -> Rig:
        provider = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model))
        base = {"indexes": ("vector",), **base}
        rig = Rig(database_url, tmp_path / "blobs", clock, provider, settings=settings, **base)
        made.append((rig, provider))
        return rig

    yield make
    for rig, provider in made:
        provider.close()
        rig.close()


def rows(rig: Rig) -> list[tuple[Any, ...]]:
    with rig.store.database.reading() as tx:
        return tx.run_sql("SELECT kind, owner, paid, texts, tokens_in, price FROM library_ledger ORDER BY id")


def charge(memos: PaidAnswerCache, rig: Rig, bill: Charge) -> None:
    memos.settle([(row, bill) for row in memos.reserve(rig.base, [(None, bill)])])


def vectors(rig: Rig) -> tuple[VectorIndex, Recipe]:
    index = rig.library.indexes["vector"]
    assert isinstance(index, VectorIndex)
    return index, rig.library.indexes.recipes(rig.base, "vector")[0]


def test_paid_and_saved_calls_have_a_price(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    tokens = paid.bill.tokens
    assert tokens > 0
    rig.index("two.md", WHALES + " ")  # the same text, served from the cache
    balance = rig.library.paid_cache.summarize_base(rig.base.key)
    assert (balance.spent.texts, balance.spent.tokens_in) == (1, tokens)
    assert balance.spent.price == pytest.approx(tokens * 2.0 / MILLION)
    assert (balance.saved.texts, balance.saved.tokens_in) == (1, tokens)
    assert balance.saved.price == pytest.approx(tokens * 2.0 / MILLION)
    assert (balance.spent.unpriced, balance.saved.unpriced) == (0, 0)


def test_an_edit_saves_the_tokens_of_the_rows_that_it_keeps(make: Make, paid: PaidProvider) -> None:
    rig = make(chunk_size=32, chunk_overlap=0)
    parts = [f"## Part {number}\n\nThe krill of part {number} is old and grey today." for number in range(10)]
    rig.index("parts.md", "\n\n".join(parts))
    first = paid.bill.tokens
    rig.index("parts.md", "\n\n".join(parts).replace("part 7 is old", "part 7 was young"))
    job = rig.store.job(rig.slot("parts.md", "vector").job)
    cost = rig.library.paid_cache.summarize_jobs([job])[job.id]
    assert (cost.spent.texts, cost.spent.tokens_in) == (1, paid.bill.tokens - first)
    assert cost.saved.texts == 9
    assert first * 0.8 < cost.saved.tokens_in < first
    assert cost.saved.price == pytest.approx(cost.saved.tokens_in * 2.0 / MILLION)


def test_a_repeated_attempt_does_not_save_what_its_own_job_has_paid(
    make: Make, paid: PaidProvider, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make()
    vector = rig.library.indexes["vector"]
    fill = vector.fill

    def break_off(work: Work) -> Mapping[int, WorkError]:
        fill(work)
        raise Transient("timeout")

    monkeypatch.setattr(vector, "ready", lambda _: None)
    monkeypatch.setattr(vector, "fill", break_off)
    rig.index("one.md", WHALES)
    monkeypatch.setattr(vector, "fill", fill)
    clock.advance(timedelta(hours=1))
    rig.work()
    job = rig.store.job(rig.slot("one.md", "vector").job)
    cost = rig.library.paid_cache.summarize_jobs([job])[job.id]
    assert (cost.spent.tokens_in, cost.saved.tokens) == (paid.bill.tokens, 0)


def test_a_new_price_does_not_change_earlier_entries(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    tokens = paid.bill.tokens
    dearer = PaidAnswerCache(rig.store.database, prices_by_model(Settings(**PRICED | {"embedding_price": 10.0})))
    charge(dearer, rig, Charge(kind="query", model="embedder@1", texts=1, tokens_in=tokens))
    assert dearer.summarize_base(rig.base.key).spent.price == pytest.approx(tokens * (2.0 + 10.0) / MILLION)


def test_without_a_price_the_ledger_shows_only_tokens(make: Make, paid: PaidProvider) -> None:
    rig = make(settings={})
    rig.index("one.md", WHALES)
    rig.index("two.md", WHALES + " ")
    balance = rig.library.paid_cache.summarize_base(rig.base.key)
    assert (balance.spent.price, balance.spent.unpriced) == (None, 1)
    assert (balance.saved.price, balance.saved.unpriced) == (None, 1)
    assert balance.spent.tokens_in == balance.saved.tokens_in == paid.bill.tokens


def test_a_total_shows_how_many_of_its_texts_have_no_price(make: Make) -> None:
    rig = make()
    for model, tokens in (("embedder@1", 500_000), ("embedder@2", 500_000), ("unheard-of@1", 7)):
        charge(rig.library.paid_cache, rig, Charge(kind="query", model=model, texts=3, tokens_in=tokens))
    charge(rig.library.paid_cache, rig, Charge(kind="extraction", model="unheard-of@1", texts=1, price=0.5))
    balance = rig.library.paid_cache.summarize_base(rig.base.key)
    assert balance.spent.price == pytest.approx(2.5)
    assert (balance.spent.texts, balance.spent.unpriced) == (10, 3)
    assert (balance.saved.texts, balance.saved.price) == (0, None)
    assert rig.library.paid_cache.summarize_base("999").spent.texts == 0


def test_a_language_model_is_charged_for_input_and_output_tokens(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    priced = {"chat_url": "http://model", "chat_model": "speaker", "chat_price_read": 1.0, "chat_price_written": 5.0}
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, settings=priced)
    rig.index("one.md", sections(3))
    spent = {one.kind: one for one in rig.library.paid_cache.summarize_base(rig.base.key).kinds_spent}
    asked = spent["questions"]
    assert asked.tokens_out > 0
    assert asked.price == pytest.approx((asked.tokens_in * 1.0 + asked.tokens_out * 5.0) / MILLION)
    assert (spent["embedding"].price, spent["embedding"].unpriced) == (None, 3)  # the embedding model has no price
    rig.index("two.md", sections(3) + " ")
    (spared,) = [
        one for one in rig.library.paid_cache.summarize_base(rig.base.key).kinds_saved if one.kind == "questions"
    ]
    assert (spared.tokens_in, spared.tokens_out) == (asked.tokens_in, asked.tokens_out)
    assert spared.price == pytest.approx(asked.price)
    rig.close()


def test_a_query_is_charged_to_its_base_and_to_no_document(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    before = paid.bill.tokens
    assert rig.find("what do whales eat", "vector")
    tokens = paid.bill.tokens - before
    document, query = rows(rig)
    assert document[:2] == ("embedding", rig.slot("one.md", "vector").owner)
    assert query == ("query", None, 1, 1, tokens, pytest.approx(tokens * 2.0 / MILLION))
    assert rig.library.paid_cache.summarize_base(rig.base.key).spent.tokens_in == paid.bill.tokens


def test_a_recent_query_is_not_paid_again(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    for _ in range(5):
        assert rig.find("what do whales eat", "vector")
        rig.library.searcher.search(rig.base, "what do whales eat")
    assert paid.bill.texts["what do whales eat"] == 1
    assert [row[0] for row in rows(rig)] == ["embedding", "query"]


def test_indexes_with_the_same_model_pay_for_a_query_once(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, indexes=("vector", "questions"))
    rig.index("one.md", sections(3))
    for kind in ("questions", "vector"):
        assert rig.find("Which crustacean", kind)
    assert paid.bill.texts["Which crustacean"] == 1
    rig.close()


def test_the_query_cache_is_bounded_and_evicts_the_least_recently_used(make: Make) -> None:
    memos = make().library.paid_cache
    asked: list[int] = []

    def ask(number: int) -> int:
        asked.append(number)
        return -number

    for number in [*range(MAX_CACHED_QUERIES), 0, MAX_CACHED_QUERIES, 0, 1]:
        assert memos.get_query_answer(number, lambda number=number: ask(number)) == -number  # type: ignore[misc]
    assert asked == [*range(MAX_CACHED_QUERIES), MAX_CACHED_QUERIES, 1]


def test_a_failed_query_is_not_cached(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    index, recipe = vectors(rig)
    paid.refuses["what do"] = BROKEN
    with pytest.raises(Transient) as failed:
        index.find(recipe, "what do whales eat", 5)
    assert failed.value.code == "provider_busy"
    assert [row[0] for row in rows(rig)] == ["embedding", "query"]  # only the probe, which the provider answered
    assert (paid.bill.texts[PROBE_TEXT], rig.library.paid_cache.summarize_base(rig.base.key).spent.tokens_in) == (
        1,
        paid.bill.tokens,
    )
    paid.refuses.clear()
    assert index.find(recipe, "what do whales eat", 5)


def test_a_query_beyond_the_budget_is_refused_with_a_reason(make: Make, paid: PaidProvider) -> None:
    rig = make(budget_tokens=16)
    rig.index("one.md", WHALES)
    index, recipe = vectors(rig)
    assert index.find(recipe, "whales", 5)
    calls = paid.bill.calls
    with pytest.raises(Permanent) as refused:
        index.find(recipe, LONG, 5)
    assert refused.value.code == "budget_spent"
    assert "'shelf' has a budget of 16 tokens" in str(refused.value)
    assert paid.bill.calls == calls
    assert index.find(recipe, "whales", 5)  # the cached query vector costs nothing


def test_each_base_has_its_own_budget_for_queries(make: Make) -> None:
    rig = make(budget_tokens=16)
    rig.index("one.md", WHALES)
    index, _ = vectors(rig)
    other = rig.library.catalog.create_base("other", BaseSettings(indexes=("vector",)))
    rig.library.adder.put(other, [Upload("two.md", WHALES.encode())])
    rig.work()
    recipe = rig.library.catalog.get_or_create_recipe(other, "vector", index.spec(other))
    before = rig.library.paid_cache.summarize_base(other.key).spent.texts
    assert index.find(recipe, LONG, 5)
    assert rig.library.paid_cache.summarize_base(other.key).spent.texts == before + 1
    assert rig.library.paid_cache.find_paying_base(recipe.id).name == "other"


def test_a_free_query_is_not_on_the_ledger(database_url: str, tmp_path: Path, clock: FakeClock) -> None:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("vector",), budget_tokens=0)
    rig.index("one.md", WHALES)
    assert rig.find("whales", "vector")
    assert rows(rig) == []
    rig.close()


@pytest.fixture
def asking(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[Callable[..., Rig]]:
    """Make a rig with a paid language model; `embeds` makes its embeddings paid, too."""
    made: list[tuple[Rig, OpenAIProvider]] = []

    def make(*, embeds: bool = False, **base: Any) -> Rig:
        paid.reply = speak
        endpoint = Endpoint(
            base_url=paid.url, key=paid.key, embedding_model=paid.embedding_model, chat_model=paid.chat_model
        )
        provider = OpenAIProvider(endpoint)
        settings = {"indexes": ("fulltext",), "chunk_size": 48, "chunk_overlap": 0, **base}
        embedder = provider if embeds else None
        rig = Rig(database_url, tmp_path / "blobs", clock, embedder, speaker=provider, **settings)
        made.append((rig, provider))
        return rig

    yield make
    for rig, provider in made:
        provider.close()
        rig.close()


def speak(request: dict[str, Any]) -> str:
    """Write questions about a text, or answer a user's question."""
    return crustaceans(request) if "<text " in request["messages"][-1]["content"] else "The krill of part 1 is. [1]"


def entries(rig: Rig) -> list[tuple[str, int, int, int]]:
    """Read the paid entries: kind, texts, tokens, and whether the tokens are estimated."""
    with rig.store.database.reading() as tx:
        return tx.run_sql(
            "SELECT kind, texts, tokens_in + tokens_out, estimated FROM library_ledger WHERE paid = 1 ORDER BY id"
        )


def test_the_ledger_agrees_with_the_provider_after_a_mixed_run(
    asking: Callable[..., Rig], paid: PaidProvider, clock: FakeClock
) -> None:
    rig = asking(embeds=True, indexes=("vector", "fulltext", "questions"))
    front = LocalService(rig.library, local_caller()).asking
    paid.next(SHORT)  # billed, but unusable
    rig.index("one.md", sections(5))
    clock.advance(timedelta(minutes=1))
    rig.work()
    assert rig.owner("one.md").status is Status.SUCCESS
    front.search("shelf", "Which crustacean?")
    assert front.ask("shelf", "What is the krill of part 1?").text
    *words, last = front.stream("shelf", "What is the krill of part 2?")
    assert isinstance(last, Answer)
    assert words
    whole = paid.bill.tokens
    left = front.stream("shelf", "What is the krill of part 3?")
    next(left)
    left.close()
    found = entries(rig)
    assert sum(texts for kind, texts, _, _ in found if kind in ("embedding", "query")) == paid.bill.texts.total()
    assert sum(texts for kind, texts, _, _ in found if kind in ("questions", "answer")) == paid.bill.prompts.total()
    *reported, query, aborted = found  # the provider reported the usage of the aborted answer's query
    assert [one[3] for one in (*reported, query, aborted)] == [0] * (len(found) - 1) + [1]
    assert sum(tokens for _, _, tokens, _ in reported) == whole
    assert sum(tokens for _, _, tokens, _ in found) == pytest.approx(paid.bill.tokens, rel=0.2)
    assert rig.library.paid_cache.summarize_base(rig.base.key).spent.estimated == aborted[2] > 0


@pytest.mark.parametrize("way", ["ask", "stream"])
def test_an_answer_beyond_the_budget_calls_no_provider(
    asking: Callable[..., Rig], paid: PaidProvider, way: str
) -> None:
    rig = asking(budget_tokens=50)
    rig.index("one.md", sections(3))
    front = LocalService(rig.library, local_caller()).asking
    with pytest.raises(Permanent) as refused:
        list(getattr(front, way)("shelf", "What is the krill of part 1?"))
    assert refused.value.code == "budget_spent"
    assert (paid.bill.calls, entries(rig)) == (0, [])


def test_concurrent_answers_share_the_budget(asking: Callable[..., Rig], paid: PaidProvider) -> None:
    rig = asking(budget_tokens=3_500)  # enough for the prompt and longest answer of one question, not of two
    rig.index("one.md", sections(3))
    front = LocalService(rig.library, local_caller()).asking
    said: list[str] = []
    paid.stall()
    first = Thread(target=lambda: said.append(front.ask("shelf", "What is the krill of part 1?").text))
    first.start()
    paid.await_calls(1)
    ((_, _, reserved, estimated),) = entries(rig)  # the reservation is durable: it stays if this process is killed now
    assert (reserved > 2048, estimated) == (True, 1)
    with pytest.raises(Permanent) as refused:
        front.ask("shelf", "What is the krill of part 2?")
    paid.release()
    first.join(PATIENCE_SECONDS)
    assert (refused.value.code, len(said)) == ("budget_spent", 1)
    assert entries(rig) == [("answer", 1, paid.bill.tokens, 0)]
    assert front.ask("shelf", "What is the krill of part 2?").text


@pytest.mark.parametrize(
    ("fault", "kept"),
    [(BROKEN, 0), (BAD_KEY, 0), (DROPPED, 1), (FAILED_IN_STREAM, 1), (FILTERED, 1)],
    ids=["error", "key", "dropped", "failed in the middle", "filtered"],
)
def test_a_failed_answer_is_on_the_ledger_if_it_may_be_billed(
    asking: Callable[..., Rig], paid: PaidProvider, fault: Fault, kept: int
) -> None:
    rig = asking()
    rig.index("one.md", sections(3))
    paid.next(fault, BAD_KEY)  # the probe that follows costs nothing
    with pytest.raises(WorkError):
        list(LocalService(rig.library, local_caller()).asking.stream("shelf", "What is the krill of part 1?"))
    assert [(kind, tokens > 0) for kind, _, tokens, _ in entries(rig)] == [("answer", True)] * kept


def test_tokens_are_estimated_if_the_provider_reports_no_usage(
    asking: Callable[..., Rig], paid: PaidProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid_provider, "_usage", lambda *_: {})
    rig = asking(embeds=True, indexes=("vector",))
    rig.index("one.md", sections(3))
    LocalService(rig.library, local_caller()).asking.ask("shelf", "What is the krill of part 1?")
    found = entries(rig)
    assert {(kind, tokens > 0, estimated) for kind, _, tokens, estimated in found} == {
        (kind, True, 1) for kind in ("embedding", "query", "answer")
    }
    usage = LocalService(rig.library, local_caller()).accounts.usage("shelf").spent
    assert usage.estimated == usage.tokens_in + usage.tokens_out == sum(tokens for _, _, tokens, _ in found)
    assert usage.tokens_out > 0
    assert usage.estimated == pytest.approx(paid.bill.tokens, rel=0.5)  # the provider counts tokens differently


def test_the_probe_that_repairs_a_base_is_on_its_ledger(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    index, recipe = vectors(rig)
    before = paid.bill.tokens
    index.probe(rig.base, recipe)
    assert rows(rig)[-1][:5] == ("probe", None, 1, 1, paid.bill.tokens - before)


def costs(rig: Rig) -> list[tuple[str, float]]:
    """Read the refused requests: the reason, and the cost that each would have had."""
    found = LocalService(rig.library, local_caller()).accounts.duplicates("shelf").items
    return [(one.reason, one.cost) for one in reversed(found)]


def copy(rig: Rig, text: str) -> None:
    """Upload the same content under another name, which is refused."""
    (reply,) = rig.library.adder.add(rig.base, [Upload("copy.md", text.encode())], AddOptions())
    assert reply.reason == "content_exists"


def test_the_cost_of_a_refused_duplicate_is_the_part_not_yet_paid(make: Make, paid: PaidProvider) -> None:
    rig = make(chunk_size=48, chunk_overlap=0)
    text = sections(20)
    rig.put("one.md", text)
    rig.put("one.md", text)  # before its text is extracted
    rig.worker.run_next(1)
    rig.put("one.md", text)  # before any call is paid
    copy(rig, text)
    rig.work()
    whole = paid.bill.tokens * 2.0 / MILLION
    rig.put("one.md", text)  # every answer is cached
    copy(rig, text)
    found = costs(rig)
    assert [reason for reason, _ in found] == [
        *["same_content"] * 2,
        "content_exists",
        "same_content",
        "content_exists",
    ]
    assert [cost for _, cost in found[:3]] == [pytest.approx(whole, rel=0.5)] * 3
    assert [cost for _, cost in found[3:]] == [0.0, 0.0]


def test_a_refused_duplicate_of_a_half_paid_document_costs_the_other_half(
    make: Make, paid: PaidProvider, clock: FakeClock
) -> None:
    rig = make(chunk_size=48, chunk_overlap=0)
    text = sections(128)
    rig.put("one.md", text)
    rig.worker.run_next(1)
    rig.put("one.md", text)
    paid.next(FINE, BAD_KEY)  # the second of two batches fails
    rig.work()
    assert 0 < paid.bill.texts.total() < 128
    rig.put("one.md", text)
    copy(rig, text)
    (_, whole), (_, half), (_, copied) = costs(rig)
    assert half == copied == pytest.approx(whole / 2, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "base"), [({}, {}), (PRICED, {"embedding": "offline"})], ids=["no price", "nothing to pay"]
)
def test_a_refused_duplicate_without_a_price_costs_nothing(
    make: Make, settings: Mapping[str, Any], base: dict[str, Any]
) -> None:
    rig = make(settings=settings, **base)
    rig.put("one.md", WHALES)
    rig.put("one.md", WHALES)
    assert costs(rig) == [("same_content", 0.0)]


def test_the_cost_of_a_refused_duplicate_includes_the_language_model(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    priced = {"chat_url": "http://model", "chat_model": "speaker", "chat_price_read": 1.0, "chat_price_written": 5.0}
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, settings=priced)
    rig.put("one.md", sections(10))
    rig.worker.run_next(1)
    rig.put("one.md", sections(10))
    rig.work()
    rig.put("one.md", sections(10))
    (_, before), (_, after) = costs(rig)
    assert before > 10 * 1000 / MILLION  # ten questions with their answers
    assert after == 0.0
    rig.close()
