"""The ledger has everything that was paid, with the price of its moment, and what was spared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import Permanent, Transient
from holdfast.indexes.vector import VectorIndex
from holdfast.library.catalogue import BaseSettings
from holdfast.library.memos import REMEMBERED, Bill, Memos
from holdfast.providers.openai import Endpoint, OpenAIProvider
from holdfast.settings import Settings
from holdfast.wiring import prices
from tests.support.paid_provider import BROKEN, PaidProvider
from tests.support.question_rig import QuestionRig, sections
from tests.support.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from holdfast.library.catalogue import Recipe
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
        return tx.plain("SELECT kind, owner, paid, texts, tokens_in, price FROM library_ledger ORDER BY id")


def vectors(rig: Rig) -> tuple[VectorIndex, Recipe]:
    index = rig.library.indexes["vector"]
    assert isinstance(index, VectorIndex)
    return index, rig.library.indexes.recipes(rig.base, "vector")[0]


# -------------------------------------------------------------------- prices


def test_what_was_paid_and_what_was_spared_have_their_price(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    tokens = paid.bill.tokens
    assert tokens > 0
    rig.index("two.md", WHALES + " ")  # the same text again
    balance = rig.library.memos.balance(rig.base.key)
    assert (balance.spent.texts, balance.spent.tokens_in) == (1, tokens)
    assert balance.spent.price == pytest.approx(tokens * 2.0 / MILLION)
    assert (balance.saved.texts, balance.saved.tokens_in) == (1, tokens)
    assert balance.saved.price == pytest.approx(tokens * 2.0 / MILLION)
    assert (balance.spent.unpriced, balance.saved.unpriced) == (0, 0)


def test_a_new_price_changes_nothing_that_was_paid_before(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    tokens = paid.bill.tokens
    dearer = Memos(rig.store.database, prices(Settings(**PRICED | {"embedding_price": 10.0})))
    dearer.charge(rig.base, Bill(kind="query", model="embedder@1", texts=1, tokens_in=tokens))
    assert dearer.balance(rig.base.key).spent.price == pytest.approx(tokens * (2.0 + 10.0) / MILLION)


def test_without_a_price_only_tokens_are_told(make: Make, paid: PaidProvider) -> None:
    rig = make(settings={})
    rig.index("one.md", WHALES)
    rig.index("two.md", WHALES + " ")
    balance = rig.library.memos.balance(rig.base.key)
    assert (balance.spent.price, balance.spent.unpriced) == (None, 1)
    assert (balance.saved.price, balance.saved.unpriced) == (None, 1)
    assert balance.spent.tokens_in == balance.saved.tokens_in == paid.bill.tokens


def test_a_sum_tells_how_much_of_it_has_no_price(make: Make) -> None:
    rig = make()
    for model, tokens in (("embedder@1", 500_000), ("embedder@2", 500_000), ("unheard-of@1", 7)):
        rig.library.memos.charge(rig.base, Bill(kind="query", model=model, texts=3, tokens_in=tokens))
    rig.library.memos.charge(rig.base, Bill(kind="extraction", model="unheard-of@1", texts=1, price=0.5))
    balance = rig.library.memos.balance(rig.base.key)
    assert balance.spent.price == pytest.approx(2.5)
    assert (balance.spent.texts, balance.spent.unpriced) == (10, 3)
    assert (balance.saved.texts, balance.saved.price) == (0, None)
    assert rig.library.memos.balance("999").spent.texts == 0


def test_a_language_model_is_paid_for_what_it_reads_and_for_what_it_writes(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    priced = {"chat_url": "http://model", "chat_model": "speaker", "chat_price_read": 1.0, "chat_price_written": 5.0}
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, settings=priced)
    rig.index("one.md", sections(3))
    spent = {one.kind: one for one in rig.library.memos.spent(rig.base.key) if one.paid}
    asked = spent["questions"]
    assert asked.tokens_out > 0
    assert asked.price == pytest.approx((asked.tokens_in * 1.0 + asked.tokens_out * 5.0) / MILLION)
    assert (spent["embedding"].price, spent["embedding"].unpriced) == (None, 3)  # that model has none
    rig.index("two.md", sections(3) + " ")
    (spared,) = [one for one in rig.library.memos.spent(rig.base.key) if one.kind == "questions" and not one.paid]
    assert (spared.tokens_in, spared.tokens_out) == (asked.tokens_in, asked.tokens_out)
    assert spared.price == pytest.approx(asked.price)
    rig.close()


# -------------------------------------------------------------------- queries


def test_a_query_is_paid_by_its_base_and_for_no_document(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    before = paid.bill.tokens
    assert rig.find("what do whales eat", "vector")
    tokens = paid.bill.tokens - before
    document, query = rows(rig)
    assert document[:2] == ("embedding", rig.slot("one.md", "vector").owner)
    assert query == ("query", None, 1, 1, tokens, pytest.approx(tokens * 2.0 / MILLION))
    assert rig.library.memos.balance(rig.base.key).spent.tokens_in == paid.bill.tokens


def test_a_query_that_was_asked_lately_is_not_paid_again(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    for _ in range(5):
        assert rig.find("what do whales eat", "vector")
        rig.library.searching.search(rig.base, "what do whales eat")
    assert paid.bill.texts["what do whales eat"] == 1
    assert [row[0] for row in rows(rig)] == ["embedding", "query"]


def test_indexes_that_share_a_model_share_what_a_query_cost(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid, indexes=("vector", "questions"))
    rig.index("one.md", sections(3))
    for kind in ("questions", "vector"):
        assert rig.find("Which crustacean", kind)
    assert paid.bill.texts["Which crustacean"] == 1
    rig.close()


def test_only_so_many_queries_are_remembered_and_the_oldest_goes_first(make: Make) -> None:
    memos = make().library.memos
    asked: list[int] = []

    def ask(number: int) -> int:
        asked.append(number)
        return -number

    for number in [*range(REMEMBERED), 0, REMEMBERED, 0, 1]:
        assert memos.remembered(number, lambda number=number: ask(number)) == -number  # type: ignore[misc]
    assert asked == [*range(REMEMBERED), REMEMBERED, 1]


def test_a_query_that_failed_is_not_remembered(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("one.md", WHALES)
    index, recipe = vectors(rig)
    paid.refuses["what do"] = BROKEN
    with pytest.raises(Transient) as failed:
        index.find(recipe, "what do whales eat", 5)
    assert failed.value.code == "provider_busy"
    assert [row[0] for row in rows(rig)] == ["embedding"]
    paid.refuses.clear()
    assert index.find(recipe, "what do whales eat", 5)


def test_a_query_beyond_the_budget_is_not_asked_and_says_why(make: Make, paid: PaidProvider) -> None:
    rig = make(budget_tokens=16)
    rig.index("one.md", WHALES)
    index, recipe = vectors(rig)
    assert index.find(recipe, "whales", 5)
    calls = paid.bill.calls
    with pytest.raises(Permanent) as refused:
        index.find(recipe, LONG, 5)
    assert refused.value.code == "budget_spent"
    assert "'shelf' may spend 16 tokens" in str(refused.value)
    assert paid.bill.calls == calls
    assert index.find(recipe, "whales", 5)  # what was paid for is kept


def test_each_base_has_its_own_budget_for_queries(make: Make) -> None:
    rig = make(budget_tokens=16)
    rig.index("one.md", WHALES)
    index, _ = vectors(rig)
    other = rig.library.catalogue.create_base("other", BaseSettings(indexes=("vector",)))
    recipe = rig.library.catalogue.recipe(other, "vector", index.spec(other))
    assert index.find(recipe, LONG, 5) == []
    assert rig.library.memos.balance(other.key).spent.texts == 1
    assert rig.library.memos.payer(recipe.id).name == "other"


def test_a_query_that_costs_nothing_is_on_no_ledger(database_url: str, tmp_path: Path, clock: FakeClock) -> None:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("vector",), budget_tokens=0)
    rig.index("one.md", WHALES)
    assert rig.find("whales", "vector")
    assert rows(rig) == []
    rig.close()
