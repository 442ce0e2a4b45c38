"""Circuit breaker: an outage pauses all calls to a provider; a failure of a single text affects only that text."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from holdfast.clock import micros
from holdfast.documents.requests import Upload
from holdfast.engine.states import SlotState, Status
from holdfast.errors import Outage, Permanent, RetryLater, Transient, WorkError
from holdfast.llm import circuit_breaker as module
from holdfast.llm.base import Completion, Embeddings, Prompt
from holdfast.llm.batches import PROBE_TEXT
from holdfast.llm.circuit_breaker import PROBE_PROMPT, CircuitBreaker
from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support.harness import Rig
from tests.support.meters import Recorder
from tests.support.paid_provider import BAD_KEY, BROKEN, DOWN, DROPPED, Fault, PaidProvider
from tests.support.question_harness import QuestionRig, sections
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from holdfast.llm.base import Provider
    from tests.support.clock import FakeClock

    Make = Callable[..., Rig]

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
COME_BACK = Fault(status=429, code="rate_limit_exceeded", retry_after="300")
DOCUMENTS = 12


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        yield server


@pytest.fixture
def make(database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[Make]:
    made: list[tuple[Rig, OpenAIProvider]] = []

    def make(**more: Any) -> Rig:
        endpoint = {"base_url": paid.url, "key": paid.key, "embedding_model": paid.embedding_model, **more}
        provider = OpenAIProvider(Endpoint(**endpoint))
        made.append((Rig(database_url, tmp_path / "blobs", clock, provider, indexes=("vector",)), provider))
        return made[-1][0]

    yield make
    for rig, provider in made:
        provider.close()
        rig.close()


def put_in(rig: Rig, count: int = DOCUMENTS) -> list[str]:
    names = [f"{number}.md" for number in range(count)]
    rig.library.adder.put(rig.base, [Upload(name, f"All about {name}.".encode()) for name in names])
    return names


def vectors(rig: Rig, names: Sequence[str]) -> Counter[tuple[str, int, str | None]]:
    """Count the vector slots of documents by state, attempts and error."""
    slots = [rig.slot(name, "vector") for name in names]
    return Counter((slot.state, slot.attempts, slot.error_code) for slot in slots)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (DOWN, "provider_down"),
        (BROKEN, "provider_busy"),
        (DROPPED, "provider_down"),
        (Fault(status=429), "rate_limited"),
    ],
    ids=["503", "500", "dropped", "429"],
)
def test_an_outage_is_detected_once_and_all_documents_wait_for_its_end(
    make: Make, paid: PaidProvider, clock: FakeClock, fault: Fault, code: str
) -> None:
    rig = make()
    names = put_in(rig)
    paid.always(fault)
    rig.work()
    assert paid.bill.calls == 2  # one text of a document, then the probe
    assert vectors(rig, names) == {(SlotState.WAITING, 0, code): DOCUMENTS}
    over = clock.now() + micros(SECOND)
    clock.advance(timedelta(milliseconds=400))
    more = put_in(rig, DOCUMENTS + 5)  # new documents make no call and wait for the same moment
    rig.work()
    assert paid.bill.calls == 2
    assert vectors(rig, more) == {(SlotState.WAITING, 0, code): DOCUMENTS + 5}
    assert {rig.slot(name, "vector").due_at for name in more} == {over}
    clock.advance(timedelta(milliseconds=600))
    for seconds in (2, 4, 8, 16, 32, 60, 60):  # one probe per pause, and each pause is longer
        before = paid.bill.calls
        rig.work()
        assert paid.bill.calls == before + 1
        assert vectors(rig, more) == {(SlotState.WAITING, 0, code): DOCUMENTS + 5}
        over = clock.now() + micros(timedelta(seconds=seconds))
        assert {rig.slot(name, "vector").due_at for name in more} == {over}
        clock.advance(timedelta(seconds=seconds))
    paid.always(None)
    paid.bill.texts.clear()
    rig.work()
    assert {rig.owner(name).status for name in more} == {Status.SUCCESS}
    assert paid.bill.texts.pop(PROBE_TEXT) == 1
    assert set(paid.bill.texts.values()) == {1}
    assert len(paid.bill.texts) == DOCUMENTS + 5


def test_the_error_names_the_paused_provider_the_reason_and_the_end_of_the_pause(
    make: Make, paid: PaidProvider, clock: FakeClock
) -> None:
    rig = make()
    put_in(rig, 2)
    paid.always(DOWN)
    rig.work()
    for name in ("0.md", "1.md"):
        error = rig.slot(name, "vector").error
        assert error is not None
        assert error.code == "provider_down"
        assert (error.params["provider"], error.params["status"]) == ("embedder", "503")
        assert error.params["until"] == "2027-01-15 08:00:01 UTC"
        assert error.params["message"] == (
            "Holdfast sends no requests to the provider 'embedder' until 2027-01-15 08:00:01 UTC. The provider is down "
            "or cannot be reached. If this lasts, check its address and its status page."
        )


def test_no_call_is_made_before_the_retry_after_time_of_the_provider(
    make: Make, paid: PaidProvider, clock: FakeClock
) -> None:
    rig = make()
    names = put_in(rig)
    paid.next(COME_BACK)
    rig.work()
    assert paid.bill.calls == 1
    assert vectors(rig, names) == {(SlotState.WAITING, 0, "rate_limited"): DOCUMENTS}
    clock.advance(timedelta(seconds=299))
    rig.work()
    assert paid.bill.calls == 1
    clock.advance(timedelta(seconds=1))
    rig.work()
    assert {rig.owner(name).status for name in names} == {Status.SUCCESS}


def test_a_refused_connection_is_an_outage(make: Make, clock: FakeClock) -> None:
    rig = make(base_url="http://127.0.0.1:9/v1")
    names = put_in(rig)
    rig.work()
    assert vectors(rig, names) == {(SlotState.WAITING, 0, "provider_down"): DOCUMENTS}


def test_a_provider_that_times_out_on_every_call_is_an_outage(make: Make, paid: PaidProvider) -> None:
    rig = make(timeout=timedelta(seconds=0.3))
    names = put_in(rig)
    paid.stall()
    rig.work()
    assert paid.bill.calls == 2
    assert vectors(rig, names) == {(SlotState.WAITING, 0, "provider_timeout"): DOCUMENTS}


def test_a_text_that_breaks_the_provider_fails_alone_and_blocks_no_other_document(
    make: Make, paid: PaidProvider, clock: FakeClock
) -> None:
    rig = make()
    names = put_in(rig)
    paid.refuses["about 3.md"] = BROKEN
    rig.work()
    good = [name for name in names if name != "3.md"]
    assert {rig.owner(name).status for name in good} == {Status.SUCCESS}
    for _ in range(4):
        clock.advance(timedelta(minutes=15))
        rig.work()
    slot = rig.slot("3.md", "vector")
    assert (slot.state, slot.attempts, slot.error_code) == (SlotState.FAILED, 4, "provider_busy")
    assert rig.owner("3.md").status is Status.FAILED  # its content was read, but it has no index to be found by


def test_a_refused_key_is_not_an_outage(make: Make, paid: PaidProvider) -> None:
    rig = make()
    names = put_in(rig)
    paid.always(BAD_KEY)
    rig.work()
    assert vectors(rig, names) == {(SlotState.FAILED, 1, "provider_key_refused"): DOCUMENTS}


def test_cached_texts_are_indexed_during_a_pause(make: Make, paid: PaidProvider) -> None:
    rig = make()
    rig.index("whales.md", "The blue whale eats krill.")
    paid.always(DOWN)
    rig.index("new.md", "Something else.")
    assert rig.slot("new.md", "vector").state is SlotState.WAITING
    assert rig.index("again.md", "The blue whale eats krill.").status is Status.SUCCESS


def test_the_cost_of_a_probe_is_on_the_ledger(make: Make, paid: PaidProvider, clock: FakeClock) -> None:
    rig = make()
    paid.next(DOWN, DOWN)
    rig.index("whales.md", "The blue whale eats krill.")
    clock.advance(MINUTE)
    rig.work()
    account = rig.library.paid_cache.summarize_base(rig.base.key)
    (spent,) = account.kinds_spent
    assert account.kinds_saved == []
    assert (spent.texts, spent.tokens_in) == (2, paid.bill.tokens)


def test_a_language_model_that_is_down_pauses_all_work_that_needs_it(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider
) -> None:
    rig = QuestionRig(database_url, tmp_path / "blobs", clock, paid)
    write = paid.reply
    paid.reply = lambda asked: "yes" if asked["messages"][-1]["content"] == PROBE_PROMPT.text else write(asked)
    rig.library.adder.put(rig.base, [Upload(f"{n}.md", sections(12, word=f"w{n}").encode()) for n in range(3)])
    paid.always(DOWN)
    rig.work()
    names = [f"{n}.md" for n in range(3)]
    slots = [rig.slot(name, "questions") for name in names]
    assert {(slot.state, slot.attempts, slot.error_code) for slot in slots} == {(SlotState.WAITING, 0, "provider_down")}
    asked = Counter(request["messages"][-1]["content"] for request in paid.requests if "messages" in request)
    assert asked.pop(PROBE_PROMPT.text) == 1
    assert sum(asked.values()) <= 9  # the concurrent calls of one document
    paid.always(None)
    clock.advance(MINUTE)
    rig.work()
    assert {rig.owner(name).status for name in names} == {Status.SUCCESS}
    rig.close()


class Scripted:
    """A provider that raises the given errors: `fault` for normal calls, `harmless` for probes."""

    embedding_model, dimension, chat_model, version, paid = "model", 2, "speaker", "1", True

    def __init__(self) -> None:
        self.fault: WorkError | None = None
        self.harmless: WorkError | None = None
        self.asked: list[str] = []
        self.gate: Callable[[], object] = lambda: None

    def with_meter(self, meter: object) -> Provider:  # noqa: ARG002 - this provider costs nothing
        return self

    def embed(self, texts: Sequence[str]) -> Embeddings:
        self._answer(texts[0])
        return Embeddings(positions=(0,), vectors=np.ones((1, 2), dtype=np.float32), tokens=3)

    def embed_parts(self, texts: Sequence[str], enough: object = None) -> Iterator[Embeddings]:  # noqa: ARG002
        yield self.embed(texts)

    def complete(self, prompt: Prompt) -> Completion:
        self._answer(prompt.text)
        return Completion(text="yes", tokens_in=5, tokens_out=1)

    def stream(self, prompt: Prompt) -> Generator[str | Completion, None, None]:
        self._answer(prompt.text)
        yield "yes"

    def close(self) -> None:
        """Nothing is open."""

    def _answer(self, text: str) -> None:
        self.asked.append(text)
        self.gate()
        harmless = text in (PROBE_TEXT, PROBE_PROMPT.text)
        fault = self.harmless if harmless else self.fault
        if fault is not None:
            raise fault


WAYS: dict[str, Callable[[Provider], object]] = {
    "embed": lambda one: one.embed(["krill"]),
    "embed_parts": lambda one: list(one.embed_parts(["krill"])),
    "complete": lambda one: one.complete(Prompt(text="krill")),
    "stream": lambda one: list(one.stream(Prompt(text="krill"))),
}


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def pausing(scripted: Scripted, clock: FakeClock) -> Provider:
    return CircuitBreaker(scripted, "The model", clock=clock).with_meter(Recorder())


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_pause_blocks_every_method_of_the_provider(
    pausing: Provider, scripted: Scripted, clock: FakeClock, way: Callable[[Provider], object]
) -> None:
    scripted.fault = scripted.harmless = Outage("provider_down", "It is down.")
    for _ in range(3):
        with pytest.raises(RetryLater) as told:
            way(pausing)
        assert (told.value.code, told.value.retry_after) == ("provider_down", SECOND)
    assert len(scripted.asked) == 2
    clock.advance(MINUTE)
    scripted.fault = scripted.harmless = None
    way(pausing)
    assert [text == "krill" for text in scripted.asked] == [True, False, False, True]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("answer", [None, Permanent("provider_key_refused"), Transient("bad_answer")])
def test_a_failure_counts_as_an_attempt_of_the_caller_if_the_probe_gets_an_answer(
    pausing: Provider, scripted: Scripted, way: Callable[[Provider], object], answer: WorkError | None
) -> None:
    scripted.fault, scripted.harmless = Outage("provider_down", "Down."), answer
    for _ in range(2):
        with pytest.raises(Transient) as told:
            way(pausing)
        assert (type(told.value), told.value.code) == (Transient, "provider_down")
    assert len(scripted.asked) == 4


@pytest.mark.parametrize(
    "error", [Permanent("provider_key_refused"), Transient("bad_answer"), Transient("provider_error")]
)
def test_other_failures_are_passed_on_unchanged(pausing: Provider, scripted: Scripted, error: WorkError) -> None:
    scripted.fault = error
    with pytest.raises(WorkError) as told:
        pausing.embed(["krill"])
    assert told.value is error
    assert scripted.asked == ["krill"]


def test_only_one_caller_probes_at_a_time(
    pausing: Provider, scripted: Scripted, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROBE_WAIT_SECONDS", 0.1)
    scripted.fault = scripted.harmless = Outage("provider_down")
    with pytest.raises(RetryLater):
        pausing.embed(["krill"])
    clock.advance(MINUTE)
    scripted.fault = scripted.harmless = None
    inside, go_on = threading.Event(), threading.Event()

    def gate() -> None:
        inside.set()
        assert go_on.wait(PATIENCE_SECONDS)

    scripted.gate = gate
    first = threading.Thread(target=pausing.embed, args=[["krill"]])
    first.start()
    assert inside.wait(PATIENCE_SECONDS)
    before = len(scripted.asked)
    with pytest.raises(RetryLater) as told:
        pausing.embed(["whales"])
    assert told.value.retry_after == timedelta(seconds=10)
    assert len(scripted.asked) == before
    monkeypatch.setattr(module, "PROBE_WAIT_SECONDS", PATIENCE_SECONDS)
    second = threading.Thread(target=pausing.embed, args=[["whales"]])
    second.start()
    go_on.set()
    for thread in (first, second):
        thread.join(PATIENCE_SECONDS)
    assert Counter(scripted.asked[before:]) == {"krill": 1, "whales": 1}  # one probe ends the pause for all callers


def test_concurrent_failures_start_only_one_pause(pausing: Provider, scripted: Scripted, clock: FakeClock) -> None:
    scripted.fault = scripted.harmless = Outage("provider_down")
    together = threading.Barrier(4)
    told: list[timedelta | None] = []

    def ask() -> None:
        try:
            pausing.embed(["krill"])
        except RetryLater as paused:
            told.append(paused.retry_after)

    scripted.gate = lambda: None if PROBE_TEXT in scripted.asked else together.wait(PATIENCE_SECONDS)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert told == [SECOND] * 4
    assert scripted.asked.count(PROBE_TEXT) == 1


def test_pauses_requested_by_the_provider_do_not_lengthen_the_next_pause(
    pausing: Provider, scripted: Scripted, clock: FakeClock
) -> None:
    two = timedelta(seconds=2)
    scripted.fault = scripted.harmless = Transient("rate_limited", retry_after=two)
    for _ in range(2):
        with pytest.raises(RetryLater) as told:
            pausing.embed(["krill"])
        assert told.value.retry_after == two
        clock.advance(two)
    scripted.fault = scripted.harmless = Outage("provider_down")
    with pytest.raises(RetryLater) as told:
        pausing.embed(["krill"])
    assert told.value.retry_after == SECOND
    clock.advance(SECOND)
    scripted.fault = scripted.harmless = None
    pausing.embed(["krill"])


def test_pauses_grow_to_one_minute_and_a_new_outage_starts_with_a_short_pause(
    pausing: Provider, scripted: Scripted, clock: FakeClock
) -> None:
    scripted.fault = scripted.harmless = Outage("provider_down")
    seconds = []
    for _ in range(9):
        with pytest.raises(RetryLater) as told:
            pausing.embed(["krill"])
        assert told.value.retry_after is not None
        seconds.append(told.value.retry_after.total_seconds())
        clock.advance(told.value.retry_after)
    assert seconds == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert scripted.asked.count("krill") == 1  # all other calls are probes
    scripted.fault = scripted.harmless = None
    pausing.embed(["krill"])
    scripted.fault = scripted.harmless = Outage("provider_down")
    with pytest.raises(RetryLater) as told:
        pausing.embed(["krill"])
    assert told.value.retry_after == SECOND  # the answer ended the outage, so the next begins with a short pause


def test_a_probe_that_the_budget_forbids_does_not_end_the_outage(
    pausing: Provider, scripted: Scripted, clock: FakeClock
) -> None:
    scripted.fault = scripted.harmless = Outage("provider_down")
    with pytest.raises(RetryLater):
        pausing.embed(["krill"])
    clock.advance(SECOND)
    scripted.harmless = Permanent("budget_spent")
    with pytest.raises(Permanent) as told:
        pausing.embed(["krill"])
    assert told.value.code == "budget_spent"
    scripted.harmless = Outage("provider_down")
    with pytest.raises(RetryLater) as paused:
        pausing.embed(["krill"])
    assert paused.value.retry_after == timedelta(seconds=2)  # the outage continues


def test_a_pause_lasts_at_least_a_second_and_a_later_outage_starts_with_one_second(
    pausing: Provider, scripted: Scripted, clock: FakeClock
) -> None:
    scripted.fault = Transient("rate_limited", retry_after=timedelta(milliseconds=1))
    with pytest.raises(RetryLater) as told:
        pausing.embed(["krill"])
    assert told.value.retry_after == timedelta(seconds=1)
    clock.advance(timedelta(seconds=1))
    scripted.fault = None
    pausing.embed(["krill"])
    scripted.fault = scripted.harmless = Outage("provider_down")
    with pytest.raises(RetryLater) as told:
        pausing.embed(["krill"])
    assert told.value.retry_after == SECOND
