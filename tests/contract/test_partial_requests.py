"""Renewing or dropping some slots of an owner leaves its other slots unchanged, and every job counts its open slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.engine.admission import Verdict
from holdfast.engine.dependencies import SlotSpec
from holdfast.engine.states import Operation, Outcome, Status
from holdfast.errors import BadRequest
from tests.contract.steps import ask, audit, build, finished, states, take

if TYPE_CHECKING:
    from holdfast.engine.store.sql_store import SqlStore

O, V = Operation, Verdict  # noqa: E741 - short names, as in the table
SLOTS = (SlotSpec("content"), SlotSpec("vector", "content"), SlotSpec("graph", "content"))


def stand(store: SqlStore, owner: str = "doc") -> None:
    """Add a document and build its three slots."""
    ask(store, owner, slots=SLOTS)
    build(store, "content", "vector", "graph", owner=owner)


def test_a_drop_removes_only_the_named_slots_and_the_others_decide_the_status(store: SqlStore) -> None:
    stand(store)
    answer = ask(store, operation=O.DROP, kinds=("graph",))
    assert (answer.verdict, answer.reason, answer.status) == (V.ACCEPTED, "drop", Status.SUCCESS)
    assert states(store) == {"content": "ready", "vector": "ready", "graph": "deleting"}
    assert store.job(answer.job).open == 1  # type: ignore[arg-type]
    audit(store)
    store.forget([take(store, "graph")])
    assert (states(store), store.owner("shelf", "doc").status) == (
        {"content": "ready", "vector": "ready"},
        Status.SUCCESS,
    )
    assert store.job(answer.job).outcome is Outcome.SUCCESS  # type: ignore[arg-type]
    audit(store)


def test_a_drop_is_refused_while_the_owner_is_active_or_deleted(store: SqlStore) -> None:
    assert ask(store, operation=O.DROP, kinds=("graph",)).reason == "unknown_owner"
    ask(store, slots=SLOTS)
    assert ask(store, operation=O.DROP, kinds=("graph",)).reason == "not_terminal"
    ask(store, operation=O.DELETE)
    assert ask(store, operation=O.DROP, kinds=("graph",)).reason == "being_deleted"
    audit(store)


def test_a_slot_is_not_dropped_while_another_slot_needs_it(store: SqlStore) -> None:
    stand(store)
    assert ask(store, operation=O.DROP, kinds=("content",)).reason == "nothing_to_drop"
    assert ask(store, operation=O.DROP, kinds=("content", "vector")).accepted
    assert states(store) == {"content": "ready", "vector": "deleting", "graph": "ready"}
    assert ask(store, operation=O.DROP, kinds=("content", "graph")).accepted
    assert store.owner("shelf", "doc").status is Status.DELETING
    audit(store)


def test_a_new_job_takes_over_an_unfinished_drop(store: SqlStore) -> None:
    stand(store)
    drop = ask(store, operation=O.DROP, kinds=("graph",))
    ticket = take(store, "graph")
    change = ask(store, operation=O.CHANGE, slots=SLOTS, fingerprint="new")
    assert store.job(drop.job).outcome is Outcome.SUPERSEDED  # type: ignore[arg-type]
    assert store.job(change.job).open == 3  # type: ignore[arg-type]
    assert states(store) == {"content": "queued", "vector": "blocked", "graph": "deleting"}
    audit(store)
    build(store, "content", "vector")
    assert store.job(change.job).outcome is None  # type: ignore[arg-type]
    store.forget([ticket])  # the worker that was removing it finishes
    assert store.job(change.job).outcome is Outcome.SUCCESS  # type: ignore[arg-type]
    audit(store)


def test_the_drops_of_other_owners_keep_their_jobs(store: SqlStore) -> None:
    for owner in ("doc", "other"):
        stand(store, owner)
    drops = {owner: ask(store, owner, operation=O.DROP, kinds=("graph",)).job for owner in ("doc", "other")}
    change = ask(store, operation=O.CHANGE, slots=SLOTS, fingerprint="new")
    assert store.slot("shelf", "doc", "graph").job == change.job
    assert store.slot("shelf", "other", "graph").job == drops["other"]
    audit(store)


def test_a_cancel_moves_an_unfinished_drop_to_its_own_job(store: SqlStore) -> None:
    stand(store)
    ask(store, operation=O.DROP, kinds=("graph",))
    force = ask(store, operation=O.FORCE, slots=SLOTS[:2])
    cancel = ask(store, operation=O.CANCEL)
    assert (cancel.accepted, cancel.job, store.job(force.job).outcome) == (True, force.job, Outcome.CANCELLED)  # type: ignore[arg-type]
    assert states(store) == {"content": "cancelled", "vector": "cancelled", "graph": "deleting"}
    audit(store)
    job = store.slot("shelf", "doc", "graph").job
    assert (store.job(job).operation, store.job(job).open) == (O.DROP, 1)
    assert ask(store, operation=O.CANCEL).reason == "nothing_active"
    store.forget([take(store, "graph")])
    assert store.job(job).outcome is Outcome.SUCCESS
    audit(store)


def test_a_delete_takes_over_an_unfinished_drop(store: SqlStore) -> None:
    stand(store)
    drop = ask(store, operation=O.DROP, kinds=("graph",))
    delete = ask(store, operation=O.DELETE)
    assert store.job(drop.job).outcome is Outcome.DELETED  # type: ignore[arg-type]
    assert store.job(delete.job).open == 3  # type: ignore[arg-type]
    audit(store)
    store.forget([take(store, kind) for kind in ("content", "vector", "graph")])
    assert store.job(delete.job).outcome is Outcome.SUCCESS  # type: ignore[arg-type]
    audit(store)


def test_a_slot_cannot_be_requested_again_until_its_drop_has_finished(store: SqlStore) -> None:
    stand(store)
    ask(store, operation=O.DROP, kinds=("graph",))
    assert ask(store, slots=SLOTS).reason == "already_indexed"
    assert ask(store, operation=O.RENEW, slots=SLOTS, kinds=("graph",)).reason == "not_terminal"
    assert ask(store, slots=(*SLOTS, SlotSpec("map", "graph"))).reason == "already_indexed"
    audit(store)
    store.forget([take(store, "graph")])
    assert ask(store, slots=SLOTS).accepted
    assert states(store) == {"content": "ready", "vector": "ready", "graph": "queued"}
    audit(store)


def test_a_renewal_builds_only_the_named_slots_and_their_dependents(store: SqlStore) -> None:
    stand(store)
    answer = ask(store, operation=O.RENEW, slots=SLOTS, kinds=("vector",))
    assert (answer.verdict, answer.reason) == (V.ACCEPTED, "renew")
    assert states(store) == {"content": "ready", "vector": "queued", "graph": "ready"}
    assert ask(store, operation=O.RENEW, slots=SLOTS, kinds=("graph",)).reason == "not_terminal"
    store.complete([finished(take(store, "vector"))])
    assert ask(store, operation=O.RENEW, slots=SLOTS, kinds=("content",)).accepted
    assert states(store) == {"content": "queued", "vector": "blocked", "graph": "blocked"}
    audit(store)


def test_a_renewal_also_builds_incomplete_dependencies(store: SqlStore) -> None:
    ask(store, slots=SLOTS)
    ask(store, operation=O.CANCEL)
    assert ask(store, operation=O.RENEW, slots=SLOTS, kinds=("vector",)).accepted
    assert states(store) == {"content": "queued", "vector": "blocked", "graph": "blocked"}
    audit(store)


@pytest.mark.parametrize(
    ("operation", "slots", "kinds"),
    [
        (O.DROP, (), ()),
        (O.RENEW, SLOTS, ()),
        (O.RENEW, SLOTS, ("cards",)),
        (O.INDEX, SLOTS, ("graph",)),
        (O.DELETE, (), ("graph",)),
    ],
)
def test_only_renew_and_drop_requests_may_name_kinds(
    store: SqlStore, operation: Operation, slots: tuple[SlotSpec, ...], kinds: tuple[str, ...]
) -> None:
    stand(store)
    with pytest.raises(BadRequest):
        ask(store, operation=operation, slots=slots, kinds=kinds)
    audit(store)
