"""Quotas of guarded work, sums of its spending, and the estimated cost of refused requests."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.clock import Moment
from holdfast.errors import BadRequest
from holdfast.guard import Guard, Run, Work
from holdfast.guard.spending import SpendingGroup, list_quotas, total_spending
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def guard(database_url: str) -> Iterator[Guard]:
    made = Guard(database_url)
    yield made
    made.close()


@pytest.fixture
def cards(guard: Guard) -> Work:
    return guard.work("cards", operation="force")


def spend(work: Work, key: str, *, tokens: int = 0, price: float = 0.0, **options: Any) -> None:
    def run(attempt: Run) -> str:
        attempt.spent(tokens=tokens, price=price)
        return "built"

    job = work.admit(key, **options).job
    assert job is not None
    work.perform(job, run)


def move_jobs_to_yesterday(guard: Guard) -> None:
    name = guard.place.names.table("job_details")
    yesterday = guard.clock.now() - 24 * 3600 * 1_000_000
    guard.store.database.write(
        lambda tx: tx.run_sql(f"UPDATE {name} SET created_at = {yesterday}"),  # noqa: S608
        durable=True,
    )


def test_a_project_beyond_its_quota_is_refused_until_midnight_and_others_are_not(guard: Guard, cards: Work) -> None:
    cards.set_quota(2, scope="project")
    spend(cards, "1", project="biology")
    spend(cards, "2", project="biology")
    refused = cards.admit("3", project="biology", requester="alice")
    assert (refused.verdict, refused.reason) == ("rejected", "project_quota_exhausted")
    assert refused.http_status is HTTPStatus.TOO_MANY_REQUESTS
    midnight = (datetime.now(UTC) + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    assert refused.body()["retry_at"] == midnight.isoformat()
    assert "midnight UTC" in refused.message
    assert cards.admit("3", project="physics").accepted
    assert guard.work("other").admit("3", project="biology").accepted
    (recorded,) = cards.refusals("3")
    assert (recorded.reason, recorded.requester) == ("project_quota_exhausted", "alice")


@pytest.mark.parametrize(
    ("scope", "same", "other"),
    [
        ("key", {"key": "1"}, {"key": "2"}),
        ("requester", {"key": "2", "requester": "alice"}, {"key": "3", "requester": "bob"}),
        ("work", {"key": "2"}, None),
    ],
)
def test_a_quota_counts_each_key_requester_or_the_whole_work(
    cards: Work, scope: str, same: dict[str, Any], other: dict[str, Any] | None
) -> None:
    cards.set_quota(1, scope=scope)
    spend(cards, "1", requester="alice")
    assert cards.admit(**same).reason == f"{scope}_quota_exhausted"
    if other is not None:
        assert cards.admit(**other).accepted


@pytest.mark.parametrize(("unit", "limit"), [("tokens", 1000), ("price", 0.5)])
def test_a_quota_of_tokens_or_money_counts_what_runs_have_spent(cards: Work, unit: str, limit: float) -> None:
    cards.set_quota(limit, unit=unit)
    spend(cards, "1", tokens=600, price=0.3)
    spend(cards, "2", tokens=600, price=0.3)
    assert cards.admit("3").reason == "work_quota_exhausted"
    cards.set_quota(10 * limit, unit=unit)
    assert cards.admit("3").accepted


def test_requests_at_the_same_time_cannot_exceed_a_quota(
    guard: Guard, cards: Work, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request has passed the check and is not committed when the second one arrives."""
    cards.set_quota(1)
    elsewhere = Guard(database_url)  # requests of one guard are committed together
    there = elsewhere.work("cards")
    assert there.quotas()
    checked, go_on = threading.Event(), threading.Event()
    accept = guard.store._accept

    def wait_and_accept(*args: Any) -> Any:
        checked.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return accept(*args)

    monkeypatch.setattr(guard.store, "_accept", wait_and_accept)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cards.admit, "1")
        assert checked.wait(PATIENCE_SECONDS)
        second = pool.submit(there.admit, "2")
        threading.Event().wait(0.5)  # the second request would be decided by now
        go_on.set()
        answers = [first.result(), second.result()]
    assert [answer.accepted for answer in answers] == [True, False]
    assert answers[1].reason == "work_quota_exhausted"
    elsewhere.close()


def test_a_request_that_joins_a_job_uses_no_quota(cards: Work) -> None:
    cards.set_quota(2, scope="key")
    assert cards.admit("1").accepted
    assert cards.admit("1").reason == "already_in_progress"
    assert cards.admit("1", operation="change", fingerprint="new").accepted


def test_yesterdays_jobs_do_not_count(guard: Guard, cards: Work) -> None:
    cards.set_quota(1)
    spend(cards, "1")
    move_jobs_to_yesterday(guard)
    assert cards.admit("2").accepted


def test_a_quota_can_be_read_changed_and_removed(cards: Work) -> None:
    cards.set_quota(1, scope="project")
    cards.set_quota(3, scope="project")
    assert [(one.scope, one.unit, one.per_day) for one in cards.quotas()] == [("project", "jobs", 3.0)]
    cards.set_quota(None, scope="project")
    assert cards.quotas() == []


@pytest.mark.parametrize("per_day", [0, -1, float("inf"), float("nan")])
def test_a_quota_that_is_no_limit_is_refused(cards: Work, per_day: float) -> None:
    with pytest.raises(BadRequest, match="number above 0"):
        cards.set_quota(per_day)
    with pytest.raises(BadRequest, match="scopes and units"):
        cards.set_quota(1, scope="planet")


def test_spending_is_summed_by_requester_project_and_day(guard: Guard, cards: Work) -> None:
    spend(cards, "1", tokens=100, price=0.25, requester="alice", project="biology")
    spend(cards, "2", tokens=50, price=0.5, requester="alice", project="biology")
    spend(cards, "3", tokens=7, price=0.125, requester="bob")
    found = [(one.requester, one.project, one.jobs, one.tokens, one.price) for one in guard.spending()]
    assert found == [("alice", "biology", 2, 150, 0.75), ("bob", "", 1, 7, 0.125)]
    assert {one.day for one in guard.spending(days=1)} == {datetime.now(UTC).date().isoformat()}
    assert guard.store.sum_spending(Moment(guard.clock.now() + 1)) == []


def test_spending_is_added_up_by_what_the_operator_chooses(guard: Guard, cards: Work) -> None:
    spend(cards, "1", tokens=100, price=0.25, requester="alice", project="biology")
    spend(cards, "2", tokens=50, price=0.5, requester="alice", project="physics")
    spend(cards, "3", tokens=7, price=1.0, requester="bob", project="physics")
    spend(guard.work("index"), "4", tokens=1)
    lines = guard.spending()

    def added_up(by: SpendingGroup) -> list[dict[str, Any]]:
        return [one.as_dict() for one in total_spending(lines, by)]

    assert added_up(SpendingGroup.REQUESTER) == [
        {"requester": "bob", "jobs": 1, "tokens": 7, "price": 1.0},
        {"requester": "alice", "jobs": 2, "tokens": 150, "price": 0.75},
        {"requester": "", "jobs": 1, "tokens": 1, "price": 0.0},
    ]
    assert [one["project"] for one in added_up(SpendingGroup.PROJECT)] == ["physics", "biology", ""]
    assert [(one["work"], one["jobs"]) for one in added_up(SpendingGroup.WORK)] == [("cards", 3), ("index", 1)]
    today = datetime.now(UTC).date().isoformat()
    assert added_up(SpendingGroup.DAY) == [{"day": today, "jobs": 4, "tokens": 158, "price": 1.75}]


def test_days_are_shown_newest_first(guard: Guard, cards: Work) -> None:
    spend(cards, "1", price=0.25)
    move_jobs_to_yesterday(guard)
    spend(cards, "2", price=0.125)
    totals = total_spending(guard.spending(), SpendingGroup.DAY)
    assert [one.price for one in totals] == [0.125, 0.25]
    assert [one.price for one in guard.spending(days=1)] == [0.125]


@pytest.mark.parametrize(
    ("scope", "unit", "use"),
    [
        ("work", "jobs", (3, "")),
        ("work", "price", (1.75, "")),
        ("key", "jobs", (1, "1")),
        ("requester", "jobs", (2, "alice")),
        ("requester", "tokens", (150, "alice")),
        ("requester", "price", (1.0, "bob")),
        ("project", "price", (1.5, "physics")),
    ],
)
def test_a_quota_is_listed_with_its_largest_use_today(
    guard: Guard, cards: Work, scope: str, unit: str, use: tuple[float, str]
) -> None:
    spend(cards, "0", tokens=9999, price=99.0, requester="carol")
    move_jobs_to_yesterday(guard)
    spend(guard.work("other"), "1", tokens=9999, price=99.0, requester="carol")
    spend(cards, "1", tokens=100, price=0.25, requester="alice", project="biology")
    spend(cards, "2", tokens=50, price=0.5, requester="alice", project="physics")
    spend(cards, "3", tokens=7, price=1.0, requester="bob", project="physics")
    cards.set_quota(500, unit=unit, scope=scope)
    (listed,) = list_quotas(guard)
    assert (listed.work, listed.per_day, listed.used, listed.used_by) == ("cards", 500, *use)
    assert list_quotas(guard, "other") == []


def test_an_unused_quota_is_listed(guard: Guard, cards: Work) -> None:
    cards.set_quota(1, scope="project")
    cards.set_quota(2, scope="key", unit="price")
    listed = [(one.scope, one.unit, one.used, one.used_by) for one in list_quotas(guard, "cards")]
    assert listed == [("key", "price", 0, ""), ("project", "jobs", 0, "")]


def test_a_refused_request_is_recorded_with_the_mean_price_of_the_last_runs(cards: Work) -> None:
    spend(cards, "1", price=0.2)
    spend(cards, "2", price=0.4)
    assert cards.admit("3").accepted
    assert not cards.admit("3").accepted
    assert not cards.admit("3", cost=5.0).accepted  # an estimate of the caller counts more
    assert sorted(one.cost for one in cards.refusals("3")) == [pytest.approx(0.3), 5.0]
