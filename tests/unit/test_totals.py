"""What the events of slots add to the totals of the metrics."""

from __future__ import annotations

import json
from typing import Any

from holdfast.engine.totals import BUCKETS, INFINITE, SlotEvent, Total, add_up, name_bucket


def event(verb: str, kind: str | None = "vector", **data: Any) -> SlotEvent:
    return SlotEvent(f"slot.{verb}", kind, json.dumps({name.rstrip("_"): value for name, value in data.items()}))


def added(*events: SlotEvent, name: str) -> dict[str, float]:
    """Return what events add to the totals of one name, by detail."""
    return {total.detail: value for total, value in add_up(events).items() if total.name == name}


def test_a_move_is_subtracted_from_one_state_and_added_to_the_other() -> None:
    moves = [event("admitted", from_=None, to="queued"), event("claimed", from_="queued", to="running")]
    assert added(*moves, name="slots") == {"running": 1.0}
    assert added(event("forgotten", from_="deleting", to=None), name="slots") == {"deleting": -1.0}
    assert added(event("claimed", from_="deleting", to="deleting"), name="slots") == {}


def test_claims_commits_and_retries_are_counted_by_kind() -> None:
    assert add_up([event("claimed", from_="deleting", to="deleting", kind="graph")]) == {Total("claims", "graph"): 1.0}
    assert added(event("completed", from_="running", to="ready"), name="commits") == {"": 1.0}
    assert added(event("postponed", from_="running", to="waiting", error="timeout"), name="retries") == {"": 1.0}


def test_failures_are_counted_by_code() -> None:
    failed = event("failed", from_="running", to="failed", error="bad_file")
    postponed = event("postponed", from_="running", to="waiting", error="timeout")
    assert added(failed, failed, postponed, name="failures") == {"bad_file": 2.0, "timeout": 1.0}


def test_a_code_that_is_not_a_short_word_does_not_become_a_label() -> None:
    for code in ("the report of Ms Jones", "x" * 65, "größe", ""):
        assert set(added(event("failed", from_="running", to="failed", error=code), name="failures")) == {"other"}


def test_a_lease_is_lost_when_it_expires_or_another_worker_takes_over() -> None:
    expired = event("expired", from_="running", to="queued")
    takeover = event("claimed", from_="running", to="running")
    given_up = event("given_up", from_="running", to="failed", error="attempts_spent")
    returned = event("released", from_="running", to="queued")
    assert added(expired, takeover, given_up, returned, name="lease_losses") == {"": 3.0}


def test_measured_attempts_are_observed_in_one_bucket_and_in_the_sum() -> None:
    done = event("completed", from_="running", to="ready", ran_ms=400, waited_ms=0, cpu_ms=250, peak_kb=100 * 1024)
    assert added(done, done, name="attempt_seconds") == {"0.5": 2.0, "sum": 0.8}
    assert added(done, name="queue_wait_seconds") == {"0.01": 1.0}
    assert added(done, name="attempt_peak_bytes") == {str(128 * 2**20): 1.0, "sum": 100 * 2**20}
    assert added(done, name="attempt_cpu_seconds") == {"": 0.25}


def test_each_stage_of_an_attempt_is_observed() -> None:
    done = event("completed", ran_ms=450, stages={"reading": 400, "chunking": 50})
    assert added(done, done, name="stage_seconds") == {
        "reading 0.5": 2.0, "reading sum": 0.8, "chunking 0.05": 2.0, "chunking sum": 0.1
    }  # fmt: skip


def test_a_stage_that_is_no_plain_word_does_not_become_a_label() -> None:
    for stage in ("page 17", "x" * 33, "größe", ""):
        assert set(added(event("completed", stages={stage: 1}), name="stage_seconds")) == {"other 0.01", "other sum"}
    assert set(added(event("completed", stages={"asking twice": 1}), name="stage_seconds")) == {
        "asking_twice 0.01", "asking_twice sum"
    }  # fmt: skip


def test_a_value_on_a_bound_is_in_its_bucket_and_a_larger_one_than_all_bounds_in_the_last() -> None:
    assert set(added(event("completed", ran_ms=1000), name="attempt_seconds")) == {"1", "sum"}
    assert set(added(event("completed", ran_ms=10**9), name="attempt_seconds")) == {INFINITE, "sum"}


def test_attempts_that_measured_nothing_are_not_observed() -> None:
    assert added(event("completed", from_="running", to="ready"), name="attempt_seconds") == {}


def test_other_events_add_nothing() -> None:
    assert add_up([SlotEvent("job.success", None, "{}"), SlotEvent("document.added", None, '{"to": "queued"}')]) == {}


def test_every_bucket_has_its_own_name() -> None:
    for bounds in BUCKETS.values():
        names = [name_bucket(bound) for bound in bounds]
        assert [float(name) for name in names] == list(bounds)
