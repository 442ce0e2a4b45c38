"""Each logged event becomes the right public event, and each reader gets only the events that it may see."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import Moment
from holdfast.engine.effects import Event
from holdfast.engine.slot import JobId
from holdfast.engine.states import TRANSITIONS, Outcome
from holdfast.engine.store.base import LoggedEvent
from holdfast.errors import BadRequest
from holdfast.events.public_events import (
    EVENT_TYPES,
    TOPICS,
    UNKNOWN_POSITION,
    Cursor,
    EventFilter,
    PublicEvent,
    resolve_topics,
    to_public_event,
)


def line(type_: str, *, base: str = "3", owner: str = "42", kind: str | None = None, **data: Any) -> LoggedEvent:
    event = Event(type_, base, owner, kind, JobId("job"), 7, 2, json.dumps(data))
    return LoggedEvent(id=9, at=Moment(1_800_000_000_123_456), event=event, xid=5)


def public(type_: str, **more: Any) -> PublicEvent:
    found = to_public_event(line(type_, **more))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("stored", "kind", "owner", "type_"),
    [
        ("slot.completed", "vector", "42", "index.ready"),
        ("slot.failed", "graph", "42", "index.failed"),
        ("slot.given_up", "plug-in", "42", "index.failed"),
        ("slot.forgotten", "vector", "42", "index.removed"),
        ("slot.completed", "cards", "cards", "cards.ready"),
        ("slot.failed", "cards", "cards", "cards.failed"),
        ("slot.forgotten", "cards", "cards", "cards.removed"),
    ],
)
def test_the_end_of_a_slot_becomes_an_event_of_its_kind(stored: str, kind: str, owner: str, type_: str) -> None:
    event = public(stored, kind=kind, owner=owner)
    assert (event.type, event.kind) == (type_, kind)
    assert event.document == (42 if owner == "42" else None)


@pytest.mark.parametrize("kind", ["content", "source", "merging", "rollout"])
@pytest.mark.parametrize("stored", ["slot.completed", "slot.failed", "slot.forgotten"])
def test_slots_that_are_no_index_yield_no_index_event(stored: str, kind: str) -> None:
    assert to_public_event(line(stored, kind=kind)) is None


def test_most_moves_of_a_slot_are_not_public() -> None:
    verbs = {str(verb) for verb, _, _ in TRANSITIONS} - {"completed", "failed", "given_up", "forgotten"}
    assert verbs
    for verb in verbs:
        assert to_public_event(line(f"slot.{verb}", kind="vector", **{"from": "queued", "to": "running"})) is None


def test_the_first_move_of_a_job_names_the_operation_and_its_requester() -> None:
    asked = {"operation": "force", "cause": "user", "requester": "ann", "priority": 3}
    event = public("slot.admitted", kind="content", **{"from": None, "to": "queued", **asked, "status": "queued"})
    assert (event.type, event.job, event.generation, event.kind) == ("job.accepted", "job", 7, None)
    assert event.data == {**asked, "status": "queued"}


def test_a_new_status_is_part_of_another_event_or_an_event_of_its_own() -> None:
    alone = public(
        "slot.claimed", kind="vector", holder="w", **{"from": "queued", "to": "running", "status": "indexing"}
    )
    assert (alone.type, alone.data) == ("document.status", {"status": "indexing"})
    together = public("slot.failed", kind="vector", error="no_text", status="failed")
    assert (together.type, together.data) == ("index.failed", {"error": "no_text", "status": "failed"})
    assert to_public_event(line("slot.claimed", owner="rollout", kind="rollout", status="indexing")) is None


def test_a_holder_name_that_looks_like_json_adds_no_facts() -> None:
    holder = '"operation": "status": '
    assert to_public_event(line("slot.claimed", kind="vector", holder=holder)) is None


def test_a_refresh_of_a_source_is_an_event_of_its_document() -> None:
    event = public("job.success", owner="source:42", results={})
    assert (event.document, event.owner) == (42, "source:42")


def test_guarded_work_of_other_pipelines_is_public_only_by_its_jobs() -> None:
    assert public("job.success", base="invoices", owner="42").document is None
    assert to_public_event(line("slot.completed", base="invoices", owner="42", kind="pdf")) is None
    assert to_public_event(line("slot.completed", base="cards", owner="cards", kind="cards")) is None


def test_every_outcome_of_a_job_is_in_the_catalogue() -> None:
    assert {f"job.{outcome}" for outcome in Outcome} <= EVENT_TYPES.keys()


def test_events_of_a_newer_version_are_left_out() -> None:
    assert to_public_event(line("weather.changed")) is None


def test_a_public_event_has_one_representation_as_a_dictionary() -> None:
    assert public("base.renamed", owner="", name="shelf").to_dict() == {
        "id": "5-9",
        "type": "base.renamed",
        "at": "2027-01-15T08:00:00.123+00:00",
        "base": 3,
        "document": None,
        "owner": "",
        "kind": None,
        "job": "job",
        "generation": 7,
        "data": {"name": "shelf"},
    }


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_cursor_survives_formatting_and_parsing(xid: int, id_: int) -> None:
    assert Cursor.parse(str(Cursor(xid, id_))) == (xid, id_)


@given(
    st.text()
    | st.sampled_from(
        ["", "-", "1", "1-", "-1", "1--1", "-1--1", "1-1-1", "9" * 30 + "-1", f"1-{2**63}", "\u0661-\u0661"]
    )
)
def test_an_invalid_cursor_is_a_position_before_all_events(text: str) -> None:
    found = Cursor.parse(text)
    assert found == UNKNOWN_POSITION or str(found) == text or found < (2**63, 2**63)
    if not all(part.isascii() and part.isdecimal() for part in text.split("-")) or text.count("-") != 1:
        assert found == UNKNOWN_POSITION < Cursor(0, 0)


def test_a_number_too_large_for_the_database_is_no_cursor() -> None:
    assert Cursor.parse(f"1-{2**63}") == Cursor.parse("9" * 5000 + "-1") == UNKNOWN_POSITION


def test_a_reader_with_access_to_some_bases_gets_only_their_events() -> None:
    some = EventFilter(bases=frozenset({"3"}))
    assert some.matches(public("job.success"))
    assert not some.matches(public("job.success", base="4"))
    assert not some.matches(public("queue.paused", base="", owner=""))
    assert not EventFilter(bases=frozenset()).matches(public("job.success"))
    assert EventFilter().matches(public("queue.paused", base="", owner=""))


def test_a_filter_by_types_and_documents_restricts_the_events() -> None:
    one = EventFilter(document=42, types=frozenset({"job.success"}))
    assert one.matches(public("job.success"))
    assert one.matches(public("job.success", owner="source:42"))
    assert not one.matches(public("job.failed"))
    assert not one.matches(public("job.success", owner="43"))
    assert not one.matches(public("job.success", owner="rollout"))


def test_a_topic_includes_all_its_event_types() -> None:
    assert resolve_topics(TOPICS) == EVENT_TYPES.keys()
    assert resolve_topics(["queue", "job.failed", "progress"]) == {"queue.paused", "queue.resumed", "job.failed"}
    with pytest.raises(BadRequest, match="no events about 'weather'"):
        resolve_topics(["weather"])
