"""Deleting a base and changing its settings are jobs with progress. Only the change of settings can be cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.auth import Caller, Scope
from holdfast.bases import removal
from holdfast.bases.rollout import RETRY_AFTER
from holdfast.documents.requests import Upload
from holdfast.engine.states import Outcome
from holdfast.errors import Conflict, UnknownJob
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from tests.support.audit import audit_quiet
from tests.support.harness import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock


@pytest.fixture
def rig(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(database_url, tmp_path / "blobs", clock, indexes=("fulltext",), chunk_size=64, chunk_overlap=0)
    rig.library.adder.add(rig.base, [Upload(f"{number}.md", f"Krill {number}".encode()) for number in range(6)])
    rig.work()
    yield rig
    rig.close()


@pytest.fixture
def service(rig: Rig) -> LocalService:
    return LocalService(rig.library, local_caller())


def remove(rig: Rig) -> None:
    """Run only the removal of the base."""
    worker = rig.hire("remover")
    worker.indexers = {"base": rig.indexers["base"]}
    worker.run_next(1)


def roll(rig: Rig) -> None:
    """Run only the rollout."""
    worker = rig.hire("roller")
    worker.indexers = {"rollout": rig.indexers["rollout"]}
    worker.run_next(1)


def sizes(rig: Rig) -> list[int]:
    """Return for each document the chunk size behind what it serves."""
    with rig.store.database.reading() as tx:
        specs = tx.run_sql(
            "SELECT library_recipes.spec FROM slots JOIN library_recipes ON library_recipes.id = slots.recipe "
            "WHERE slots.kind = 'content' ORDER BY slots.owner_id"
        )
    return [96 if '"size": 96' in spec else 64 for (spec,) in specs]


def test_the_delete_of_a_base_is_a_job_with_progress(rig: Rig, service: LocalService) -> None:
    reply = service.bases.delete("shelf")
    assert (reply.accepted, reply.name, reply.status) == (True, "shelf", "deleting")
    job = reply.job or ""
    found = service.jobs.get(job)
    assert (found.state, found.subject, found.operation) == ("deleting", "base", "delete")
    assert found.progress is not None
    assert (found.progress.done, found.progress.total) == (0, 6)
    assert service.jobs.list().items[0].id == job
    remove(rig)
    rig.worker.run_next(2)
    while service.jobs.get(job).progress.done == 0:  # type: ignore[union-attr]
        rig.worker.run_next(2)
    rig.work()
    rig.clock.advance(removal.LOOK_AGAIN_AFTER)
    rig.work()
    assert service.jobs.get(job).outcome is Outcome.SUCCESS
    assert (rig.count("bases"), rig.count("items"), rig.count("owners")) == (0, 0, 0)


def test_the_delete_of_a_base_cannot_be_cancelled(rig: Rig, service: LocalService) -> None:
    job = service.bases.delete("shelf").job or ""
    with pytest.raises(Conflict, match="A delete cannot be cancelled"):
        service.jobs.cancel(job)
    service.jobs.cancel_all()
    remove(rig)
    with pytest.raises(Conflict, match="A delete cannot be cancelled"):
        service.jobs.cancel(job)
    assert service.jobs.get(job).outcome is None


def test_a_delete_ends_the_work_of_the_base_before_it_is_claimed(rig: Rig, service: LocalService) -> None:
    items = [one.id for one in service.documents.list("shelf").items]
    service.documents.many("shelf", "force", items)
    service.bases.delete("shelf")
    rig.worker.run_next(1)
    states = {slot.state for item in items for slot in rig.store.owner(rig.base.key, str(item)).slots}
    assert states == {"deleting"}


def test_only_callers_who_saw_the_base_see_the_job_of_its_delete(rig: Rig, service: LocalService) -> None:
    job = service.bases.delete("shelf").job or ""
    limited = Caller(name="limited", scope=Scope.READ, bases=frozenset({rig.base.id}), key_id=1)
    other = Caller(name="other", scope=Scope.ADMIN, bases=frozenset({rig.base.id + 1}), key_id=2)
    assert LocalService(rig.library, limited).jobs.get(job).id == job
    with pytest.raises(UnknownJob):
        LocalService(rig.library, other).jobs.get(job)
    rig.work()
    rig.clock.advance(removal.LOOK_AGAIN_AFTER)
    rig.work()
    assert LocalService(rig.library, limited).jobs.get(job).ended
    with pytest.raises(UnknownJob):
        LocalService(rig.library, other).jobs.get(job)


def test_a_cancelled_rollout_keeps_new_documents_new_and_old_ones_old(rig: Rig, service: LocalService) -> None:
    changed = service.bases.change("shelf", chunk_size=96)
    job = changed.rollout_job or ""
    roll(rig)
    while not service.documents.list("shelf", states=["success"]).total:
        rig.worker.run_next(1)
    rig.clock.advance(RETRY_AFTER)
    roll(rig)
    found = service.jobs.get(job)
    assert found.progress is not None
    assert 0 < found.progress.done < found.progress.total == 6
    service.jobs.cancel(job)
    before = sizes(rig)
    rig.work()
    rig.clock.advance(RETRY_AFTER)
    rig.work()
    assert sizes(rig) == before
    assert sorted(set(before)) == [64, 96]
    assert len(rig.find("krill")) == 6
    assert service.jobs.get(job).outcome is Outcome.CANCELLED
    assert (service.bases.get("shelf").rollout, service.bases.get("shelf").rollout_job) == (None, None)
    with pytest.raises(Conflict, match="nothing to cancel"):
        service.jobs.cancel(job)


def test_the_next_change_completes_a_cancelled_rollout(rig: Rig, service: LocalService) -> None:
    service.jobs.cancel(service.bases.change("shelf", chunk_size=96).rollout_job or "")
    rig.work()
    assert sizes(rig) == [64] * 6
    service.bases.change("shelf", indexes=["fulltext", "vector"])
    rig.work()
    rig.clock.advance(RETRY_AFTER)
    rig.work()
    assert sizes(rig) == [96] * 6
    assert service.bases.get("shelf").rollout is None
    rig.sweep()
    rig.library.sweep(500)
    audit_quiet(rig)


def test_a_user_s_own_work_on_a_document_survives_the_cancel_of_a_rollout(rig: Rig, service: LocalService) -> None:
    job = service.bases.change("shelf", chunk_size=96).rollout_job or ""
    roll(rig)
    (first, *_) = sorted(one.id for one in service.documents.list("shelf").items)
    service.documents.cancel("shelf", first)
    mine = service.documents.run("shelf", "force", first)
    service.jobs.cancel(job)
    assert service.jobs.get(mine.job or "").outcome is None
    rig.work()
    assert sizes(rig) == [96, 64, 64, 64, 64, 64]
