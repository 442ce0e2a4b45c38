"""Answers over HTTP: the response shows whether the answer is complete, and which error a provider caused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.llm.openai import Endpoint, OpenAIProvider
from tests.support.harness import Rig
from tests.support.http_site import HttpSite
from tests.support.paid_provider import (
    BAD_KEY,
    BROKEN,
    CUT,
    DOWN,
    NO_MODEL,
    OUT_OF_QUOTA,
    RATE_LIMITED,
    UNFINISHED,
    Fault,
    PaidProvider,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

WHALES = "# Whales\n\nThe blue whale eats krill.\n"
QUESTION = {"question": "What does the blue whale eat?"}


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> Iterator[PaidProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with PaidProvider() as server:
        server.reply = lambda _: "It eats krill. [1]xx"
        yield server


@pytest.fixture
def site(tmp_path: Path, clock: FakeClock, paid: PaidProvider) -> Iterator[HttpSite]:
    provider = OpenAIProvider(Endpoint(base_url=paid.url, key=paid.key, chat_model=paid.chat_model))
    url = f"sqlite:///{tmp_path / 'holdfast.db'}"
    rig = Rig(url, tmp_path / "blobs", clock, speaker=provider, indexes=("fulltext",))
    site = HttpSite(rig)
    site.index("whales.md", WHALES)
    yield site
    site.close()
    rig.close()
    provider.close()


def streamed(site: HttpSite) -> list[tuple[str, Any]]:
    """Request a streamed answer and return its events, or the problem document if the request failed."""
    answer = site.http.post("/bases/shelf/answers:stream", json=QUESTION)
    if answer.is_error:
        return [("problem", answer.json())]
    parts = [one.split("\n") for one in answer.text.split("\n\n") if one.strip()]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


@pytest.mark.parametrize(
    ("fault", "cut"), [(None, False), (CUT, True), (UNFINISHED, True)], ids=["whole", "length", "no reason"]
)
def test_an_answer_shows_whether_it_was_cut_off(
    site: HttpSite, paid: PaidProvider, fault: Fault | None, *, cut: bool
) -> None:
    for _ in range(2 if fault else 0):
        paid.next(fault)  # type: ignore[arg-type]
    name, last = streamed(site)[-1]
    assert (name, last["outcome"], last["cut"]) == ("answer", "answered", cut)
    if fault is not UNFINISHED:  # without a finish reason, an answer that is not streamed counts as complete
        assert site.http.post("/bases/shelf/answers", json=QUESTION).json()["cut"] is cut


@pytest.mark.parametrize(
    ("fault", "status", "code", "retryable"),
    [
        (BAD_KEY, 502, "provider_key_refused", False),
        (NO_MODEL, 502, "model_unknown", False),
        (OUT_OF_QUOTA, 502, "quota_exhausted", False),
        (RATE_LIMITED, 503, "rate_limited", True),
        (DOWN, 503, "provider_down", True),
        (BROKEN, 503, "provider_busy", True),
    ],
)
def test_a_failed_answer_has_the_status_and_code_of_the_provider_error(
    site: HttpSite, paid: PaidProvider, fault: Fault, status: int, code: str, *, retryable: bool
) -> None:
    paid.always(fault)
    ((_, stream),) = streamed(site)
    for told in (stream, site.http.post("/bases/shelf/answers", json=QUESTION).json()):
        assert (told["status"], told["code"], told["retryable"]) == (status, code, retryable)
        assert "work" not in told["detail"].replace("workers", "")


def test_a_spent_budget_is_reported_without_a_call_to_the_provider(site: HttpSite, paid: PaidProvider) -> None:
    site.http.patch("/bases/shelf", json={"budget_tokens": 50}).raise_for_status()
    ((_, stream),) = streamed(site)
    for told in (stream, site.http.post("/bases/shelf/answers", json=QUESTION).json()):
        assert (told["status"], told["code"], told["retryable"]) == (402, "budget_spent", False)
        assert "'shelf' has a budget of 50 tokens" in told["detail"]
    assert paid.bill.calls == 0
