"""The OpenAI-compatible provider validates answers, classifies errors, and records what each request costs."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from holdfast.errors import BadSettings, MissingExtra, Outage, Permanent, Transient, WorkError
from holdfast.llm.base import Completion, Embeddings, Prompt, Provider, merge_embeddings
from holdfast.llm.batches import BatchLimits, _BatchedCall, overestimate_tokens, split_into_batches
from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support import paid_provider as paid_faults
from tests.support.meters import Connected
from tests.support.paid_provider import (
    AGAINST_POLICY,
    BAD_KEY,
    BROKEN,
    CUT,
    DECLINED,
    DOWN,
    DROPPED,
    FAILED_IN_STREAM,
    FILTERED,
    FINE,
    INFINITE,
    MALFORMED,
    NO_MODEL,
    NOT_A_NUMBER,
    NOT_ALLOWED,
    NOT_JSON,
    OUT_OF_QUOTA,
    RAGGED,
    RATE_LIMITED,
    REFUSED,
    REORDERED,
    SHORT,
    SILENT,
    TEAPOT,
    TOO_LARGE,
    TOO_LONG,
    UNCLEAR,
    UNFINISHED,
    WRONG_DIMENSION,
    WRONG_INDEXES,
    Fault,
    PaidProvider,
    tokens_of,
    vector_of,
)
from tests.support.processes import until
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.llm.base import Matrix

    Connect = Callable[..., Connected]

TEXTS = [f"text number {number}" for number in range(16)]
QUESTION = Prompt(text="What holds fast?", system="Be brief.")
SHAPE = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
SHAPED = Prompt(text="What holds fast?", schema=SHAPE, max_tokens=77)
EVERYBODYS = [
    (BAD_KEY, "provider_key_refused", Permanent),
    (NOT_ALLOWED, "provider_key_refused", Permanent),
    (OUT_OF_QUOTA, "quota_exhausted", Permanent),
    (NO_MODEL, "model_unknown", Permanent),
    (RATE_LIMITED, "rate_limited", Transient),
    (BROKEN, "provider_busy", Transient),
    (DOWN, "provider_down", Outage),
    (DROPPED, "provider_down", Outage),
    (MALFORMED, "bad_answer", Transient),
    (NOT_JSON, "bad_answer", Transient),
    (TEAPOT, "provider_error", Transient),
]


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        yield server


@pytest.fixture
def connect(paid: PaidProvider) -> Iterator[Connect]:
    """Make providers and close them at the end; batch limits are passed by name."""
    made: list[Connected] = []

    def connect(**given: Any) -> Connected:
        limits = {name: given.pop(name) for name in ("texts", "tokens", "concurrency") if name in given}
        usual: dict[str, Any] = {
            "base_url": paid.url,
            "key": paid.key,
            "embedding_model": paid.embedding_model,
            "chat_model": paid.chat_model,
            "timeout": timedelta(seconds=30),
        }
        made.append(Connected(OpenAIProvider(Endpoint(**(usual | given), batching=BatchLimits(**limits)))))
        return made[-1]

    yield connect
    for provider in made:
        provider.close()


def failure(ask: Callable[[], object]) -> WorkError:
    with pytest.raises(WorkError) as raised:
        ask()
    return raised.value


def right(embedded: Embeddings, texts: list[str] = TEXTS) -> bool:
    """Check that every vector belongs to its text."""
    return [*map(list, embedded.vectors)] == [vector_of(texts[place]) for place in embedded.positions]


@pytest.mark.parametrize("only_floats", [False, True])
def test_each_text_gets_its_own_vector_and_the_tokens_are_summed(
    only_floats: bool, paid: PaidProvider, connect: Connect
) -> None:
    paid.only_floats = only_floats
    embedded = connect(texts=5).embed(TEXTS)
    assert embedded.positions == tuple(range(len(TEXTS)))
    assert embedded.vectors.dtype == np.float32
    assert right(embedded)
    assert embedded.tokens == paid.bill.tokens == sum(tokens_of(text) for text in TEXTS)
    assert paid.bill.texts == dict.fromkeys(TEXTS, 1)
    assert (paid.bill.calls, {request["encoding_format"] for request in paid.requests}) == (4, {"base64"})


def test_an_empty_list_of_texts_makes_no_call(paid: PaidProvider, connect: Connect) -> None:
    embedded = connect().embed([])
    assert (embedded.positions, embedded.tokens, paid.bill.calls) == ((), 0, 0)


def test_a_lone_surrogate_is_sent_as_a_question_mark(paid: PaidProvider, connect: Connect) -> None:
    connect().embed(["broken \ud800"])
    connect().complete(Prompt(text="broken \ud800"))
    assert (dict(paid.bill.texts), dict(paid.bill.prompts)) == ({"broken ?": 1}, {"broken ?": 1})


def test_the_provider_is_paid_and_reports_the_configured_models(connect: Connect) -> None:
    provider: Provider = connect(version="2")
    assert (provider.embedding_model, provider.chat_model) == ("embedder", "speaker")
    assert (provider.dimension, provider.version, provider.paid) == (None, "2", True)


def test_a_closed_provider_reopens_on_the_next_call(connect: Connect) -> None:
    provider = connect()
    provider.close()
    assert right(provider.embed(TEXTS))
    provider.close()
    assert right(provider.embed(TEXTS))


FORKED = """
import os, sys
from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support.meters import Connected

provider = Connected(OpenAIProvider(Endpoint(base_url=sys.argv[1], key="sk-paid", embedding_model="embedder")))
before = provider.embed(["a"]).vectors
child = os.fork()
after = provider.embed(["a"]).vectors
if child == 0:
    os._exit(0 if (before == after).all() and len(provider._clients) == 2 else 1)
provider.close()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_opens_its_own_connections(paid: PaidProvider) -> None:
    subprocess.run([sys.executable, "-c", FORKED, paid.url], check=True)
    assert paid.bill.texts["a"] == 3


def test_batches_are_limited_by_text_count_and_estimated_tokens() -> None:
    texts = ["ab", "ab", "ab", "a" * 30, "ab", "ab"]
    places = range(len(texts))
    assert split_into_batches(texts, places, BatchLimits(texts=2)) == [[0, 1], [2, 3], [4, 5]]
    assert split_into_batches(texts, places, BatchLimits(tokens=3)) == [[0, 1, 2], [3], [4, 5]]
    assert split_into_batches(texts, [1, 3, 5], BatchLimits(tokens=12)) == [[1, 3], [5]]
    assert split_into_batches(texts, [], BatchLimits()) == []


@pytest.mark.parametrize(("text", "tokens"), [("", 1), ("rain", 2), ("雨が降る", 5), ("broken \ud800", 3)])
def test_tokens_are_estimated_for_any_script(text: str, tokens: int) -> None:
    assert overestimate_tokens(text) == tokens


def test_concurrent_calls_never_exceed_the_limit(paid: PaidProvider, connect: Connect) -> None:
    provider = connect(texts=2, concurrency=3)
    paid.stall()
    answers: list[Embeddings] = []
    threads = [threading.Thread(target=lambda: answers.append(provider.embed(TEXTS))) for _ in range(2)]
    for thread in threads:
        thread.start()
    paid.await_calls(3)
    paid.release()
    for thread in threads:
        thread.join()
    assert [right(answer) for answer in answers] == [True, True]
    assert (paid.bill.most_at_once, paid.bill.calls) == (3, 16)


def test_a_result_is_yielded_before_more_batches_are_sent(paid: PaidProvider, connect: Connect) -> None:
    parts = connect(texts=1, concurrency=2).embed_parts(TEXTS)
    assert right(next(parts))
    assert right(next(parts))
    assert paid.bill.calls <= 3
    assert sum(len(part.positions) for part in parts) == len(TEXTS) - 2


def test_a_caller_that_stops_early_pays_for_no_further_batches(paid: PaidProvider, connect: Connect) -> None:
    parts = connect(texts=1, concurrency=2).embed_parts(TEXTS)
    next(parts)
    parts.close()
    # Closing a client during a request would leave its connection open.
    until(lambda: not [one for one in threading.enumerate() if one.name == "holdfast-provider"], "requests to end")
    assert paid.bill.calls <= 2


def test_results_that_arrived_are_yielded_before_the_failure(paid: PaidProvider, connect: Connect) -> None:
    paid.next(FINE, FINE, RATE_LIMITED)
    arrived: list[int] = []

    def embed() -> None:
        for part in connect(texts=2, concurrency=1).embed_parts(TEXTS):
            arrived.extend(part.positions)

    assert failure(embed).code == "rate_limited"
    assert (arrived, paid.bill.calls) == ([0, 1, 2, 3], 3)


def test_results_of_concurrent_calls_are_yielded_although_one_call_failed(paid: PaidProvider, connect: Connect) -> None:
    paid.next(BAD_KEY, FINE, FINE)
    paid.stall()
    arrived: list[int] = []

    def embed() -> None:
        for part in connect(texts=1, concurrency=3).embed_parts(TEXTS):
            arrived.extend(part.positions)

    failures: list[WorkError] = []
    thread = threading.Thread(target=lambda: failures.append(failure(embed)))
    thread.start()
    paid.await_calls(3)
    paid.release()
    thread.join()
    assert [one.code for one in failures] == ["provider_key_refused"]
    assert len(arrived) == len(set(arrived)) == sum(paid.bill.texts.values()) >= 2


class Gated:
    """A provider that gets two batches at once and rejects the second one after the call has ended."""

    def __init__(self, then: Exception | None) -> None:
        self.errand = _BatchedCall(TEXTS, self.ask)
        self.asked: list[int] = []
        self.told = False  # whether the call has ended
        self._then = then
        self._both = threading.Barrier(2)

    def ask(self, texts: Sequence[str]) -> tuple[Matrix, int]:
        places = [TEXTS.index(text) for text in texts]
        self.asked.extend(places)
        if len(places) == 2:
            self._both.wait(PATIENCE_SECONDS)
        if places == [0, 1]:
            if self._then is not None:
                raise self._then
            return np.zeros((2, 8), dtype=np.float32), 2
        self.told = self.errand._stopped.wait(PATIENCE_SECONDS)
        raise Permanent("content_refused")

    def ended(self) -> bool:
        """Wait for all provider threads; return whether they ended."""
        mine = [thread for thread in threading.enumerate() if thread.name == "holdfast-provider"]
        for thread in mine:
            thread.join(PATIENCE_SECONDS)
        return not any(thread.is_alive() for thread in mine)


def test_a_rejected_batch_is_not_halved_when_the_call_has_failed() -> None:
    gated = Gated(Permanent("quota_exhausted"))
    assert failure(lambda: list(gated.errand.results([[0, 1], [2, 3], [4, 5]], 2))).code == "quota_exhausted"
    assert gated.told
    assert gated.ended()
    assert sorted(gated.asked) == [0, 1, 2, 3]


def test_a_rejected_batch_is_not_halved_after_the_caller_closed_the_call() -> None:
    gated = Gated(None)
    parts = gated.errand.results([[0, 1], [2, 3], [4, 5]], 2)
    assert next(parts).positions == (0, 1)
    parts.close()  # type: ignore[attr-defined]
    assert gated.ended()
    assert gated.told
    assert sorted(gated.asked) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (REFUSED, "content_refused"),
        (AGAINST_POLICY, "content_refused"),
        (TOO_LONG, "input_too_large"),
        (UNCLEAR, "bad_provider_request"),
    ],
)
@pytest.mark.parametrize("place", [0, 5, 15])
def test_a_rejected_batch_is_halved_until_the_bad_text_is_isolated(
    fault: Fault, code: str, place: int, paid: PaidProvider, connect: Connect
) -> None:
    paid.refuses["poison"] = fault
    texts = [*TEXTS[:place], "poison", *TEXTS[place + 1 :]]
    embedded = connect().embed(texts)
    assert {bad: (why.code, type(why)) for bad, why in embedded.refused.items()} == {place: (code, Permanent)}
    assert right(embedded, texts)
    assert len(embedded.positions) == 15
    assert {text: paid.bill.texts[text] for text in texts} == {text: int(text != "poison") for text in texts}
    assert embedded.tokens == paid.bill.tokens
    assert paid.bill.texts["text"] == int(fault is UNCLEAR and place == 0)  # only if no text was accepted before
    assert paid.bill.calls <= 10


def test_several_bad_texts_are_all_found(paid: PaidProvider, connect: Connect) -> None:
    paid.refuses["number 1"] = REFUSED
    paid.longest = 20
    texts = [*TEXTS, "long " * 20]
    embedded = connect(texts=8).embed(texts)
    found = {place: why.code for place, why in embedded.refused.items()}
    assert found == dict.fromkeys([1, *range(10, 16)], "content_refused") | {16: "input_too_large"}
    assert right(embedded, texts)
    assert max(paid.bill.texts.values()) == 1


def test_a_batch_that_is_too_large_for_the_provider_is_sent_in_halves(paid: PaidProvider, connect: Connect) -> None:
    paid.most_texts = 5
    embedded = connect().embed(TEXTS)
    assert right(embedded)
    assert (len(embedded.positions), embedded.refused, paid.bill.calls) == (16, {}, 7)


def test_a_provider_that_rejects_every_text_is_a_provider_error(paid: PaidProvider, connect: Connect) -> None:
    paid.rejects = {"encoding_format"}
    texts = [f"text {number}" for number in range(64)]
    error = failure(lambda: connect().embed(texts))
    assert (error.code, error.params["provider_param"]) == ("bad_provider_request", "encoding_format")
    assert (paid.bill.calls, paid.bill.tokens) == (8, 0)


def test_a_text_is_blamed_only_after_the_provider_accepted_a_harmless_one(paid: PaidProvider, connect: Connect) -> None:
    paid.refuses["number"] = UNCLEAR
    embedded = connect().embed(TEXTS[:4])
    assert set(embedded.refused) == {0, 1, 2, 3}
    assert dict(paid.bill.texts) == {"text": 1}
    assert embedded.tokens == paid.bill.tokens == tokens_of("text")


def test_a_failure_while_a_batch_is_halved_keeps_paid_results(paid: PaidProvider, connect: Connect) -> None:
    paid.refuses["number 7"] = REFUSED
    paid.next(REFUSED, FINE, OUT_OF_QUOTA)
    arrived: list[int] = []

    def embed() -> None:
        for part in connect().embed_parts(TEXTS):
            arrived.extend(part.positions)

    assert failure(embed).code == "quota_exhausted"
    assert (arrived, paid.bill.calls) == (list(range(8)), 3)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_blank_text_is_refused_without_a_call(text: str, paid: PaidProvider, connect: Connect) -> None:
    embedded = connect().embed([text, "a"])
    assert {place: why.code for place, why in embedded.refused.items()} == {0: "empty_text"}
    assert (embedded.positions, dict(paid.bill.texts)) == ((1,), {"a": 1})
    assert connect().embed([text]).positions == ()


@pytest.mark.parametrize(("fault", "code", "meaning"), EVERYBODYS)
def test_a_provider_failure_ends_the_call_immediately(
    fault: Fault, code: str, meaning: type[WorkError], paid: PaidProvider, connect: Connect
) -> None:
    paid.always(fault)
    provider = connect(texts=2, concurrency=1)
    error = failure(lambda: provider.embed(TEXTS))
    assert (error.code, type(error), paid.bill.calls) == (code, meaning, 1)
    error = failure(lambda: provider.complete(QUESTION))
    assert (error.code, type(error), paid.bill.calls) == (code, meaning, 2)
    error = failure(lambda: provider.complete(SHAPED))
    assert (error.code, type(error), paid.bill.calls) == (code, meaning, 3)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (TOO_LONG, "input_too_large"),
        (REFUSED, "content_refused"),
        (AGAINST_POLICY, "content_refused"),
        (FILTERED, "content_refused"),
        (DECLINED, "content_refused"),
        (UNCLEAR, "bad_provider_request"),
    ],
)
def test_a_prompt_that_the_provider_rejects_is_a_permanent_failure(
    fault: Fault, code: str, paid: PaidProvider, connect: Connect
) -> None:
    paid.always(fault)
    provider = connect()
    for ask in (lambda: provider.complete(QUESTION), lambda: list(provider.stream(QUESTION))):
        error = failure(ask)
        assert (error.code, type(error)) == (code, Permanent)
    assert paid.bill.calls == 2 + (code == "bad_provider_request")  # a stream is retried once without usage


def test_a_rate_limit_carries_the_retry_after_of_the_provider(paid: PaidProvider, connect: Connect) -> None:
    paid.always(RATE_LIMITED)
    error = failure(lambda: connect().embed(TEXTS))
    assert isinstance(error, Transient)
    assert error.retry_after == timedelta(seconds=7)
    assert error.params["request_id"] == "req_1"


def test_a_missing_answer_is_a_timeout(paid: PaidProvider, connect: Connect) -> None:
    paid.stall()
    provider = connect(timeout=timedelta(milliseconds=200))
    for ask in (lambda: provider.embed(["a"]), lambda: provider.complete(QUESTION)):
        error = failure(ask)
        assert (error.code, type(error)) == ("provider_timeout", Transient)


def test_a_slow_answer_within_the_timeout_is_accepted(paid: PaidProvider, connect: Connect) -> None:
    paid.stall(0.05)
    assert right(connect().embed(TEXTS))


def test_a_refused_connection_is_an_outage(connect: Connect) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        error = failure(lambda: connect(base_url=f"http://127.0.0.1:{free.getsockname()[1]}/v1").embed(["a"]))
    assert (error.code, type(error)) == ("provider_down", Outage)


def test_a_wrong_key_and_a_wrong_model_have_different_codes(connect: Connect) -> None:
    assert failure(lambda: connect(key="sk-other").embed(["a"])).code == "provider_key_refused"
    assert failure(lambda: connect(key="").embed(["a"])).code == "provider_key_refused"
    assert failure(lambda: connect(embedding_model="other").embed(["a"])).code == "model_unknown"


def test_without_a_configured_model_no_call_is_made(paid: PaidProvider, connect: Connect) -> None:
    deaf, mute = connect(embedding_model=None), connect(chat_model=None)
    assert failure(lambda: deaf.embed(["a"])).code == "no_embedding_model"
    assert failure(lambda: mute.complete(QUESTION)).code == "no_language_model"
    assert failure(lambda: list(mute.stream(QUESTION))).code == "no_language_model"
    assert paid.bill.calls == 0


@pytest.mark.parametrize("only_floats", [False, True])
@pytest.mark.parametrize("fault", [SHORT, WRONG_INDEXES, NOT_A_NUMBER, INFINITE, TOO_LARGE, RAGGED], ids=str)
def test_an_incomplete_or_invalid_answer_is_rejected(
    fault: Fault, only_floats: bool, paid: PaidProvider, connect: Connect
) -> None:
    paid.only_floats = only_floats
    for texts in (TEXTS, TEXTS[:2]):
        paid.next(fault)
        error = failure(lambda texts=texts: connect().embed(texts))  # type: ignore[misc]
        assert (error.code, type(error)) == ("bad_answer", Transient)
    assert paid.bill.calls == 2


def test_vectors_are_sorted_by_their_index(paid: PaidProvider, connect: Connect) -> None:
    paid.next(REORDERED)
    assert right(connect().embed(TEXTS))


def test_vectors_of_a_different_dimension_are_rejected(paid: PaidProvider, connect: Connect) -> None:
    paid.next(FINE, WRONG_DIMENSION)
    arrived: list[int] = []

    def embed() -> None:
        for part in connect(texts=8, concurrency=1).embed_parts(TEXTS):
            arrived.extend(part.positions)

    assert failure(embed).code == "bad_answer"
    assert arrived == list(range(8))


@pytest.mark.parametrize(
    "body",
    [
        "null",
        "[]",
        "{}",
        '{"data": null}',
        '{"data": [null]}',
        '{"data": [{"index": 0}]}',
        '{"data": [{"index": 0, "embedding": null}]}',
        '{"data": [{"index": 0, "embedding": []}]}',
        '{"data": [{"index": 0, "embedding": "?"}]}',
        '{"data": [{"index": 0, "embedding": "QUJD"}]}',
        '{"data": [{"index": 0, "embedding": "AACA?Pw=="}]}',
        '{"data": [{"index": 0, "embedding": [[1, 2]]}]}',
        '{"data": [{"index": 0, "embedding": ["one"]}]}',
        '{"data": [{"index": "first", "embedding": [1, 2]}]}',
        '{"data": [{"embedding": [1, 2]}]}',
        '{"data": [{"index": 0, "embedding": [1, 2]}, {"index": 0, "embedding": [1, 2]}]}',
        '{"choices": []}',
        '{"choices": [{}]}',
        '{"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}',
    ],
)
def test_any_other_json_is_a_bad_answer(
    body: str, paid: PaidProvider, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid_faults._Handler, "_finish", lambda handler, *_: handler._send(200, body.encode()))
    assert failure(lambda: connect().embed(["a"])).code == "bad_answer"
    assert failure(lambda: connect().complete(QUESTION)).code == "bad_answer"


def test_a_provider_that_reports_no_tokens_still_works(
    paid: PaidProvider, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid_faults, "_usage", lambda *_: None)
    assert connect().embed(TEXTS).tokens == 0
    assert connect().complete(QUESTION).tokens_in == 0


def test_a_prompt_is_answered_and_its_tokens_counted(paid: PaidProvider, connect: Connect) -> None:
    paid.reply = lambda _: "An anchor."
    answer = connect().complete(QUESTION)
    assert answer == Completion(
        text="An anchor.", tokens_in=tokens_of(QUESTION.system) + tokens_of(QUESTION.text), tokens_out=3
    )
    sent = paid.requests[-1]
    assert [(one["role"], one["content"]) for one in sent["messages"]] == [
        ("system", "Be brief."),
        ("user", "What holds fast?"),
    ]
    assert (sent["temperature"], sent["max_tokens"]) == (0, 2048)
    assert "response_format" not in sent


def test_a_cut_answer_is_marked_as_truncated(paid: PaidProvider, connect: Connect) -> None:
    paid.always(CUT)
    assert connect().complete(QUESTION).truncated
    paid.reply = lambda _: "all"
    assert connect().complete(QUESTION) == Completion(text="", tokens_in=8, tokens_out=1, truncated=True)


def test_an_empty_answer_is_rejected(paid: PaidProvider, connect: Connect) -> None:
    paid.next(SILENT)
    assert failure(lambda: connect().complete(QUESTION)).code == "bad_answer"


def test_a_structured_prompt_sends_its_json_schema(paid: PaidProvider, connect: Connect) -> None:
    answer = connect().complete(SHAPED)
    assert list(answer.json()) == ["answer"]
    assert paid.requests[-1]["response_format"]["json_schema"]["schema"] == SHAPE
    assert paid.requests[-1]["max_tokens"] == 77
    assert len(paid.requests[-1]["messages"]) == 1


@pytest.mark.parametrize(
    ("rejects", "form", "calls"), [({"json_schema"}, {"type": "json_object"}, 2), ({"response_format"}, None, 3)]
)
def test_an_endpoint_without_schema_support_gets_the_schema_in_the_prompt(
    rejects: set[str], form: object, calls: int, paid: PaidProvider, connect: Connect
) -> None:
    paid.rejects = rejects
    provider = connect()
    provider.complete(SHAPED)
    sent = paid.requests[-1]
    assert (sent.get("response_format"), paid.bill.calls) == (form, calls)
    assert sent["messages"][0]["role"] == "system"
    assert json.dumps(SHAPE) in sent["messages"][0]["content"]
    provider.complete(SHAPED)
    assert paid.bill.calls == calls + 1  # the provider remembers it


def test_parameters_that_a_newer_model_rejects_are_no_longer_sent(paid: PaidProvider, connect: Connect) -> None:
    paid.rejects = {"max_tokens", "temperature"}
    provider = connect()
    provider.complete(SHAPED)
    sent = paid.requests[-1]
    assert (sent["max_completion_tokens"], sent["response_format"]["type"]) == (77, "json_schema")
    assert not {"max_tokens", "temperature"} & set(sent)
    list(provider.stream(QUESTION))
    assert paid.bill.calls == 4


@pytest.mark.parametrize("param", ["max_tokens", "temperature", "seed"])
def test_a_model_that_rejects_an_unsent_parameter_is_not_retried_forever(
    param: str, paid: PaidProvider, connect: Connect
) -> None:
    paid.always(Fault(status=400, param=param))
    assert failure(lambda: connect().complete(QUESTION)).code == "bad_provider_request"
    assert paid.bill.calls == 1 + (param != "seed")


def test_a_prompt_rejected_in_every_form_does_not_change_later_requests(paid: PaidProvider, connect: Connect) -> None:
    paid.refuses["poison"] = UNCLEAR
    provider = connect()
    poison = Prompt(text="poison", schema=SHAPE)
    assert failure(lambda: provider.complete(poison)).code == "bad_provider_request"
    assert paid.bill.calls == 3
    provider.complete(SHAPED)
    assert paid.requests[-1]["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("text", ['{"a": 1}', ' {"a": 1}\n', '```json\n{"a": 1}\n```', '\n```\n{"a": 1}```\n'])
def test_json_inside_a_code_fence_is_parsed(text: str) -> None:
    assert Completion(text=text).json() == {"a": 1}


@pytest.mark.parametrize("text", ["", "I think so.", '{"a": ', "```json\nno\n```"])
def test_an_answer_that_is_not_json_is_rejected(text: str) -> None:
    assert failure(Completion(text=text).json).code == "bad_answer"


def test_a_stream_yields_words_as_they_arrive(paid: PaidProvider, connect: Connect) -> None:
    paid.reply = lambda _: "An anchor holds fast."
    provider = connect()
    *words, end = provider.stream(QUESTION)
    assert words == ["An", " anchor", " holds", " fast."]
    assert paid.bill.prompts == {QUESTION.text: 1}
    assert (end.text, end.truncated, end.tokens_in + end.tokens_out) == (
        "An anchor holds fast.",
        False,
        paid.bill.tokens,
    )
    (request,) = provider.recorder.requests
    assert (request.usage, request.failed) == ((end.tokens_in, end.tokens_out), False)


@pytest.mark.parametrize("fault", [CUT, UNFINISHED], ids=["length", "no reason"])
def test_a_stream_that_ends_early_is_marked_as_truncated(fault: Fault, paid: PaidProvider, connect: Connect) -> None:
    paid.next(fault)
    assert [*connect().stream(QUESTION)][-1].truncated


@pytest.mark.parametrize("named", [True, False])
def test_an_endpoint_without_usage_in_streams_still_streams(
    paid: PaidProvider, connect: Connect, *, named: bool
) -> None:
    provider = connect()
    if named:
        paid.rejects = {"stream_options"}
    else:
        paid.next(UNCLEAR)
    words = [*provider.stream(QUESTION)]
    assert (words[-1].truncated, words[-1].tokens_in) == (False, 0)
    rejected, streamed = provider.recorder.requests
    assert rejected.unbilled
    assert (streamed.usage, streamed.words) == (None, words[-1].text)
    before = paid.bill.calls
    assert [*provider.stream(QUESTION)] == words
    assert paid.bill.calls == before + 1


def test_the_meter_records_every_request_with_its_cost(paid: PaidProvider, connect: Connect) -> None:
    provider = connect(texts=2, concurrency=1)
    provider.embed(["a", "b", "c"])
    provider.complete(QUESTION)
    paid.next(BROKEN)
    failure(lambda: provider.complete(QUESTION))
    paid.next(DROPPED)
    failure(lambda: provider.complete(QUESTION))
    paid.next(NOT_A_NUMBER)
    failure(lambda: provider.embed(["d"]))
    found = [(one.model, len(one.texts), one.usage is not None, one.unbilled) for one in provider.recorder.requests]
    assert found == [
        ("embedder", 2, True, False),
        ("embedder", 1, True, False),
        ("speaker", 1, True, False),
        ("speaker", 1, False, True),  # an error response costs nothing
        ("speaker", 1, False, False),  # unknown whether it was billed
        ("embedder", 1, True, False),  # billed, but unusable
    ]
    assert all(one.ended for one in provider.recorder.requests)
    assert paid.bill.calls == len(found)


def test_an_unreachable_provider_is_not_billed(connect: Connect) -> None:
    provider = connect(base_url="http://127.0.0.1:9/v1")
    failure(lambda: provider.embed(["a"]))
    assert [one.unbilled for one in provider.recorder.requests] == [True]


@pytest.mark.parametrize(
    ("fault", "code"),
    [(DROPPED, "provider_down"), (FAILED_IN_STREAM, "quota_exhausted"), (MALFORMED, "bad_answer")],
)
def test_words_that_arrived_before_a_failure_are_yielded(
    fault: Fault, code: str, paid: PaidProvider, connect: Connect
) -> None:
    paid.next(fault)
    heard: list[str] = []
    assert failure(lambda: heard.extend(connect().stream(QUESTION))).code == code
    assert heard == ["The", " answer"]


def test_a_stream_counts_as_a_concurrent_call_until_it_ends(paid: PaidProvider, connect: Connect) -> None:
    provider = connect(concurrency=1)
    words = provider.stream(QUESTION)
    next(words)
    assert not provider._process_client().concurrency.acquire(blocking=False)
    words.close()
    assert provider.complete(QUESTION).text
    assert paid.bill.calls == 2


@pytest.mark.parametrize(
    ("given", "subcode", "told"),
    [
        ({"base_url": "api.example"}, "provider_url_scheme", "http://"),
        ({"key": "sk-1\n"}, "provider_key_characters", "Copy it again"),
        ({"key": "sk 1"}, "provider_key_characters", "Copy it again"),
        ({"key": "schlüssel"}, "provider_key_characters", "Copy it again"),
        ({"embedding_model": None}, "provider_without_model", "HOLDFAST_CHAT_MODEL"),
        ({"timeout": timedelta()}, "provider_timeout_too_short", "A timeout of 0 seconds"),
    ],
)
def test_invalid_settings_are_refused_when_they_are_built(given: dict[str, Any], subcode: str, told: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(told)) as refused:
        Endpoint(**({"embedding_model": "embedder"} | given))
    assert refused.value.subcode == subcode
    assert "sk" not in str(refused.value)
    assert "api.example" not in str(refused.value)


@pytest.mark.parametrize("limit", ["texts", "tokens", "concurrency"])
def test_a_batch_limit_of_zero_is_refused(limit: str) -> None:
    with pytest.raises(BadSettings) as refused:
        BatchLimits(**{limit: 0})
    assert (refused.value.subcode, refused.value.params[limit]) == ("batch_limits_too_small", "0")


def test_the_key_is_not_in_the_repr() -> None:
    assert "sk-secret" not in repr(Endpoint(key="sk-secret", chat_model="speaker"))


def test_without_the_openai_package_the_error_names_what_to_install(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtra, match=r"pip install .holdfast\[documents\]"):
        connect().embed(["a"])


def test_parts_are_merged_in_the_order_of_the_texts() -> None:
    refusal = Permanent("content_refused")
    late = Embeddings(positions=(3, 1), vectors=np.array([[3.0], [1.0]], dtype=np.float32), tokens=2)
    early = Embeddings(positions=(0,), vectors=np.array([[0.0]], dtype=np.float32), tokens=1, refused={2: refusal})
    whole = merge_embeddings([late, early])
    assert (whole.positions, whole.vectors.tolist(), whole.tokens) == ((0, 1, 3), [[0.0], [1.0], [3.0]], 3)
    assert whole.refused == {2: refusal}
