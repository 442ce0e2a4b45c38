"""Testing the providers of a base makes real calls with a short timeout and records their cost."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.auth.principal import Caller, Scope
from holdfast.catalog.repository import BaseSettings
from holdfast.errors import Forbidden
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from tests.support.harness import Rig
from tests.support.paid_provider import BAD_KEY, NO_MODEL, OUT_OF_QUOTA, RATE_LIMITED, PaidProvider
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.service.schemas import ProviderTestResult
    from tests.support.clock import FakeClock
    from tests.support.paid_provider import Fault


@pytest.fixture
def paid() -> Iterator[PaidProvider]:
    with PaidProvider() as provider:
        yield provider


@pytest.fixture
def rig(
    database_url: str, tmp_path: Path, clock: FakeClock, paid: PaidProvider, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rig]:
    """A base with paid providers; the timeout of a test call is long, for busy machines."""
    monkeypatch.setattr("holdfast.wiring.PROBE_TIMEOUT", timedelta(seconds=PATIENCE_SECONDS))
    settings: dict[str, Any] = {
        "embedding_url": paid.url,
        "embedding_key": paid.key,
        "embedding_model": paid.embedding_model,
        "embedding_price": 2.0,
        "chat_url": paid.url,
        "chat_key": paid.key,
        "chat_model": paid.chat_model,
    }
    made = Rig(database_url, tmp_path / "blobs", clock, settings=settings, indexes=("fulltext",))
    yield made
    made.close()


def trials(rig: Rig, base: str = "shelf") -> dict[str, ProviderTestResult]:
    return {one.role: one for one in LocalService(rig.library, local_caller()).bases.test_providers(base)}


def test_a_successful_test_names_the_provider_and_records_its_cost(rig: Rig, paid: PaidProvider) -> None:
    told = trials(rig)
    assert [(one.provider, one.ok, one.code) for one in told.values()] == [("127.0.0.1", True, None)] * 2
    assert (told["embedding"].model, told["chat"].model) == (paid.embedding_model, paid.chat_model)
    assert paid.bill.calls == 2
    usage = LocalService(rig.library, local_caller()).accounts.usage("shelf")
    assert (usage.spent.texts, usage.spent.tokens_in + usage.spent.tokens_out) == (2, paid.bill.tokens)
    assert [one.kind for one in usage.kinds_spent] == ["trial"]
    assert usage.spent.price is not None
    assert usage.spent.price > 0


@pytest.mark.parametrize(
    ("fault", "code", "advice"),
    [
        (BAD_KEY, "provider_key_refused", "Check that the key is set"),
        (RATE_LIMITED, "rate_limited", "run fewer workers"),
        (OUT_OF_QUOTA, "quota_exhausted", ""),
        (NO_MODEL, "model_unknown", ""),
    ],
)
def test_a_failed_test_reports_a_code_and_what_to_do(
    rig: Rig, paid: PaidProvider, fault: Fault, code: str, advice: str
) -> None:
    paid.always(fault)
    for one in trials(rig).values():
        assert (one.ok, one.code, one.provider) == (False, code, "127.0.0.1")
        assert advice in one.message
        assert len(one.message) > 40
        assert paid.key not in one.message
    assert LocalService(rig.library, local_caller()).accounts.usage("shelf").spent.texts == 0
    paid.always(None)
    assert all(one.ok for one in trials(rig).values()), "a trial asks at once, whatever came of the one before"


def test_a_provider_that_does_not_answer_times_out(
    rig: Rig, paid: PaidProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.wiring.PROBE_TIMEOUT", timedelta(seconds=0.5))
    paid.stall()
    told = trials(rig)
    paid.release()
    assert {one.code for one in told.values()} == {"provider_timeout"}
    assert all(one.took_ms > 400 for one in told.values())


def test_an_unreachable_address_is_reported_as_down(database_url: str, tmp_path: Path, clock: FakeClock) -> None:
    settings = {"embedding_url": "http://127.0.0.1:1", "embedding_model": "m"}
    rig = Rig(database_url, tmp_path / "blobs", clock, settings=settings, indexes=("fulltext",))
    told = trials(rig)
    assert (told["embedding"].code, told["embedding"].ok) == ("provider_down", False)
    assert (told["chat"].provider, told["chat"].ok, told["chat"].model) == ("none", True, None)
    rig.close()


def test_offline_providers_need_no_call(rig: Rig, paid: PaidProvider) -> None:
    rig.library.catalog.create_base("here", BaseSettings(embedding="offline", chat="none"))
    told = trials(rig, "here")
    assert (told["embedding"].provider, told["embedding"].ok, told["chat"].provider, told["chat"].ok) == (
        "offline",
        True,
        "none",
        True,
    )
    assert paid.bill.calls == 0
    assert LocalService(rig.library, local_caller()).accounts.usage("here").spent.texts == 0


def test_the_budget_of_a_base_also_limits_provider_tests(rig: Rig, paid: PaidProvider) -> None:
    LocalService(rig.library, local_caller()).bases.change("shelf", budget_tokens=0)
    assert {one.code for one in trials(rig).values()} == {"budget_spent"}
    assert paid.bill.calls == 0


def test_only_a_caller_who_may_change_a_base_can_test_its_providers(rig: Rig, paid: PaidProvider) -> None:
    writer = LocalService(rig.library, Caller(key_id=1, name="", scope=Scope.WRITE, bases=None))
    with pytest.raises(Forbidden):
        writer.bases.test_providers("shelf")
    assert paid.bill.calls == 0
