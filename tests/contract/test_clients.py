"""The local service and the HTTP client offer the same operations and give the same results and errors."""

from __future__ import annotations

import inspect
import io
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import File, errors
from holdfast.engine.slot import Progress
from holdfast.engine.store.base import LeaseRenewal, Release
from holdfast.llm.failures import to_work_error
from holdfast.service import (
    access,
    archives,
    bases,
    documents,
    jobs,
    remote,
)
from holdfast.service import (
    details as dossiers,
)
from holdfast.service import (
    event_queries as history,
)
from holdfast.service import (
    search as asking,
)
from holdfast.service import (
    usage as accounts,
)
from holdfast.service.local import LocalService
from holdfast.service.opening import local_caller
from holdfast.service.remote import RemoteService
from holdfast.service.schemas import Mode, OnDuplicate, Verdict
from tests.support.harness import Rig
from tests.support.http_site import HttpSite
from tests.support.paid_provider import REFUSED, PaidProvider
from tests.support.question_harness import QuestionRig, sections
from tests.support.scripted_workers import raises

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.clock import FakeClock

PAIRS = [
    (bases.LocalBases, remote.RemoteBases),
    (documents.LocalDocuments, remote.RemoteDocuments),
    (jobs.LocalJobs, remote.RemoteJobs),
    (asking.LocalSearch, remote.RemoteSearch),
    (asking.LocalCards, remote.RemoteCards),
    (dossiers.LocalDocumentDetails, remote.RemoteDocumentDetails),
    (accounts.LocalUsage, remote.RemoteUsage),
    (archives.LocalArchives, remote.RemoteArchives),
    (history.LocalEvents, remote.RemoteEvents),
    (access.LocalKeys, remote.RemoteKeys),
    (access.LocalWebhooks, remote.RemoteWebhooks),
]
# Methods that need the files, the folders or the event log, and exist only on the local side.
OWN = {"LocalDocuments": {"original", "watch"}, "LocalEvents": {"make_filter", "visible_base_keys"}}


@pytest.mark.parametrize(("local", "far"), PAIRS, ids=lambda one: one.__name__)
def test_local_and_remote_services_have_the_same_methods_and_parameters(local: type, far: type) -> None:
    def calls(side: type) -> dict[str, list[tuple[str, Any, Any]]]:
        return {
            name: [(one.name, one.kind, one.default) for one in inspect.signature(call).parameters.values()]
            for name, call in inspect.getmembers(side, inspect.isfunction)
            if not name.startswith("_")
        }

    here = {name: call for name, call in calls(local).items() if name not in OWN.get(local.__name__, ())}
    assert here == calls(far)


@pytest.fixture
def rig(tmp_path: Path, sqlite_url: str, clock: FakeClock) -> Iterator[Rig]:
    rig = Rig(sqlite_url, tmp_path / "blobs", clock, indexes=("fulltext", "vector", "graph"))
    yield rig
    rig.close()


SIDES = ("local", "remote")


@contextmanager
def seen_from(where: str, rig: Rig) -> Iterator[Any]:
    if where == "local":
        yield LocalService(rig.library, local_caller())
        return
    site = HttpSite(rig)
    far = RemoteService(site.address)
    yield far
    far.close()
    site.close()


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest, rig: Rig) -> Iterator[Any]:
    with seen_from(request.param, rig) as made:
        yield made


def test_documents_are_added_found_and_deleted(side: Any, rig: Rig, tmp_path: Path) -> None:
    path = tmp_path / "whales.md"
    path.write_text("# Whales\n\nThe blue whale eats krill.\n")
    stones = File(name="stones.md", content=io.BytesIO(b"# Stones\n\nGranite."), metadata={"a": 1})
    first, second, again = side.documents.add("shelf", [path, stones, path])
    assert (first.verdict, second.verdict, again.verdict) == (Verdict.ACCEPTED, Verdict.ACCEPTED, Verdict.JOINED)
    assert (again.document, again.job, again.reason) == (first.document, first.job, "same_content")
    rig.work()
    assert [hit.document for hit in side.asking.search("shelf", "krill", channels=["fulltext"])] == [first.document]
    assert side.documents.get("shelf", second.document).metadata == {"a": 1}
    assert [one.id for one in side.documents.list("shelf", order="name").items] == [second.document, first.document]
    assert [one.status for one in side.documents.statuses("shelf", [first.document])] == ["success"]
    assert side.documents.text("shelf", first.document).text.startswith("# Whales")
    (chunk,) = side.documents.chunks("shelf", first.document).items
    assert side.documents.passage("shelf", first.document, chunk.chunk).text == chunk.text
    saved = io.BytesIO()
    assert side.documents.download("shelf", first.document, saved) == len(saved.getvalue())
    assert saved.getvalue() == path.read_bytes()
    with pytest.raises(errors.BadRequest, match=r"whales\.md' already exists and is not overwritten"):
        side.documents.download("shelf", first.document, path)
    assert side.documents.delete("shelf", first.document).accepted
    with pytest.raises(errors.UnknownItem):
        side.documents.get("shelf", first.document)


def test_a_conflict_keeps_its_code_job_and_status(side: Any, rig: Rig) -> None:
    reply = side.documents.note("shelf", "Whale", "It eats krill.")
    assert reply.accepted
    with pytest.raises(errors.Conflict) as caught:
        side.documents.index("shelf", reply.document)
    assert (caught.value.reason, caught.value.job, caught.value.status) == ("already_in_progress", reply.job, "queued")
    taken = side.documents.note("shelf", "Whale", "Another text.")
    assert (taken.verdict, taken.reason, taken.document) == (Verdict.REJECTED, "name_taken", reply.document)
    changed = side.documents.note("shelf", "Whale", "Another text.", on_duplicate=OnDuplicate.REPLACE)
    assert (changed.accepted, changed.document) == (True, reply.document)
    rig.work()
    with pytest.raises(errors.Conflict) as done:
        side.documents.index("shelf", reply.document)
    assert done.value.reason == "already_indexed"
    assert side.documents.reindex("shelf", reply.document).accepted
    cancelled = side.documents.cancel("shelf", reply.document)
    assert cancelled.accepted
    with pytest.raises(errors.Conflict, match="nothing to cancel"):
        side.documents.cancel("shelf", reply.document)
    assert side.documents.retry("shelf", reply.document).accepted


def test_unknown_names_and_invalid_values_raise_the_same_errors_on_both_sides(side: Any) -> None:
    cases: list[tuple[type[Exception], Callable[[], Any]]] = [
        (errors.UnknownBase, lambda: side.bases.get("none")),
        (errors.UnknownBase, lambda: side.documents.note("none", "n", "t")),
        (errors.UnknownItem, lambda: side.documents.get("shelf", 77)),
        (errors.UnknownJob, lambda: side.jobs.get("none")),
        (errors.BadRequest, lambda: side.documents.list("shelf", cursor="nonsense")),
        (errors.BadSettings, lambda: side.bases.create("b", indexes=["none"])),
        (errors.StateConflict, lambda: side.cards.generate("shelf")),
    ]
    for error, call in cases:
        with pytest.raises(error) as caught:
            call()
        assert len(str(caught.value)) > 20
    with pytest.raises(errors.BadSettings) as overlap:
        side.bases.create("b", chunk_size=300, chunk_overlap=200)
    assert (overlap.value.subcode, overlap.value.params["most"]) == ("overlap_too_long", "100")


def test_an_operation_with_an_outdated_generation_is_refused(side: Any, rig: Rig) -> None:
    note = side.documents.note("shelf", "Whale", "It eats krill.")
    rig.work()
    seen = side.documents.get("shelf", note.document).generation
    assert side.documents.reindex("shelf", note.document, unless_changed=[seen]).generation == seen + 1
    for ask in (side.documents.index, side.documents.retry, side.documents.cancel, side.documents.delete):
        with pytest.raises(errors.PreconditionFailed) as caught:
            ask("shelf", note.document, unless_changed=[seen])
        assert caught.value.generation == seen + 1
    with pytest.raises(errors.Conflict) as busy:
        side.documents.reindex("shelf", note.document, unless_changed=[seen + 1])
    assert (busy.value.reason, busy.value.document) == ("not_terminal", note.document)
    with pytest.raises(errors.BadRequest, match="one document"):
        side.documents.many("shelf", "delete", [note.document, 99], unless_changed=[seen])
    assert side.documents.delete("shelf", note.document, unless_changed=[seen, seen + 1]).accepted


def test_one_operation_applies_to_every_document_that_matches_a_filter(side: Any, rig: Rig) -> None:
    for name in ("Whale", "Krill", "Stone"):
        side.documents.note("shelf", name, f"About {name}.")
    rig.work()
    counted = side.documents.matching("shelf", "reindex", text="AL", kinds=["note"], dry_run=True)
    assert (counted.found, counted.answers, counted.dry_run) == (1, {}, True)
    done = side.documents.matching("shelf", "reindex", states=["success"], parent=0, priority=2)
    assert (done.found, done.accepted, done.answers, done.dry_run) == (3, 3, {"accepted: reindex": 3}, False)
    assert {one.priority for one in side.documents.list("shelf").items} == {2}
    assert side.documents.matching("shelf", "delete", text="Stone").answers == {"accepted: delete": 1}
    assert side.documents.matching("shelf", "retry", deleting=True).answers == {"joined: already_deleting": 1}
    with pytest.raises(errors.BadRequest, match="clear"):
        side.documents.matching("shelf", "delete")
    with pytest.raises(errors.BadRequest):
        side.documents.matching("shelf", "reindex", deleting=True)


def test_a_failed_clean_up_can_be_retried(side: Any, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    note = side.documents.note("shelf", "Whale", "It eats krill.")
    rig.work()
    deleted = side.documents.delete("shelf", note.document)
    with pytest.raises(errors.Conflict) as busy:
        side.documents.retry("shelf", note.document)
    assert (busy.value.reason, busy.value.job) == ("already_deleting", deleted.job)
    with monkeypatch.context() as away:
        away.setattr(rig.indexers["content"], "remove", raises(errors.Transient("away", "It is away.")))
        rig.work()
    (left,) = side.documents.list("shelf", deleting=True).items
    assert (left.why.code, left.retry_at is not None) == ("away", True)
    again = side.documents.retry("shelf", note.document)
    assert (again.reason, again.status, again.message) == (
        "clean_up_again",
        "deleting",
        "The clean-up is being tried again.",
    )
    rig.work()
    with pytest.raises(errors.UnknownItem):
        side.documents.retry("shelf", note.document)


def test_bases_are_created_changed_and_deleted(side: Any, rig: Rig) -> None:
    assert side.bases.create("handbook", chunk_size=256).settings.chunk_size == 256
    assert side.bases.change("handbook", budget_tokens=5).settings.budget_tokens == 5
    assert side.bases.change("handbook", budget_tokens=None).settings.budget_tokens is None
    assert side.bases.rename("handbook", "guide").name == "guide"
    assert [base.name for base in side.bases.list()] == ["guide", "shelf"]
    side.documents.note("guide", "n", "text")
    assert side.bases.counts("guide").documents == 1
    side.bases.clear("guide")
    assert side.bases.counts("guide").documents == 0
    assert side.bases.repair("guide").status == "ready"
    side.bases.delete("guide")
    assert [base.name for base in side.bases.list()] == ["shelf"]
    assert rig.library.catalog.bases()[0].name == "shelf"


def test_jobs_are_prioritised_paused_cancelled_and_retried(side: Any, rig: Rig) -> None:
    reply = side.documents.note("shelf", "n", "text")
    assert side.jobs.prioritise(reply.job, 1).reason == "reprioritised"
    (job,) = side.jobs.list("shelf", states=["queued"]).items
    assert (job.id, job.priority, job.document) == (reply.job, 1, reply.document)
    assert {one.code for one in side.jobs.get(job.id).waiting_for} == {"next", "blocked"}
    assert side.accounts.waiting("shelf")[0].job == job.id
    assert side.jobs.pause("shelf")
    assert side.jobs.overview().paused_bases == ["shelf"]
    held, *_ = side.documents.get("shelf", reply.document).waiting_for
    assert (held.code, held.params["base"]) == ("paused_base", "shelf")
    assert datetime.fromisoformat(held.params["since"]).tzinfo is not None
    assert held.message.startswith("Base shelf has been paused since ")
    reasons = side.accounts.waiting("shelf")[0].reasons
    assert held.message in reasons, "a list of what waits shows the name of the base, like the document does"
    assert side.jobs.resume("shelf")
    assert side.jobs.cancel_all("shelf", dry_run=True).found == 1
    assert side.jobs.cancel_all("shelf").accepted == 1
    assert side.jobs.get(job.id).outcome == "cancelled"
    assert side.jobs.retry(job.id).accepted
    rig.work()
    assert side.jobs.retry_all("shelf", degraded=True).found == 0
    assert side.jobs.overview("shelf").ended == {"cancelled": 1, "success": 1}


def test_a_settings_change_is_shown_from_the_moment_it_is_accepted(side: Any, rig: Rig) -> None:
    side.documents.note("shelf", "n", "text")
    rig.work()
    assert side.bases.get("shelf").rollout is None
    changed = side.bases.change("shelf", chunk_size=300)
    assert (changed.rollout.stage, changed.rollout.share) == ("queued", None)
    assert side.bases.get("shelf").rollout == changed.rollout
    rig.store.claim_next(["rollout"], "other", 1)
    assert side.bases.get("shelf").rollout.stage == "running"
    rig.clock.advance(timedelta(hours=1))
    rig.work()
    waiting = side.bases.get("shelf").rollout  # its document is built; the rollout looks again soon
    assert (waiting.done, waiting.total) == (0, 1)
    rig.clock.advance(timedelta(minutes=1))
    rig.work()
    assert side.bases.get("shelf").rollout is None


def test_only_an_index_that_is_being_built_shows_progress(side: Any, rig: Rig) -> None:
    def shares() -> dict[str, float | None]:
        shown = side.documents.get("shelf", note.document).indexes
        return {one.kind: one.progress and one.progress.share for one in shown}

    note = side.documents.note("shelf", "Whale", "It eats krill.")
    (ticket,) = rig.store.claim_next(["content"], "other", 1)
    rig.store.extend(
        [LeaseRenewal(ticket=ticket, progress=Progress(stage="reading", done=28, total=100), progressed=True)]
    )
    assert shares()["content"] == 0.28
    rig.store.release([Release(ticket=ticket)])
    rig.work()
    assert set(shares().values()) == {None}
    side.documents.reindex("shelf", note.document)
    (ticket,) = rig.store.claim_next(["content"], "other", 1)
    rig.store.extend(
        [LeaseRenewal(ticket=ticket, progress=Progress(stage="reading", done=28, total=100), progressed=True)]
    )
    side.documents.cancel("shelf", note.document)
    assert set(shares().values()) == {None}
    deleted = side.documents.delete("shelf", note.document)
    (ticket,) = rig.store.claim_next(["content"], "other", 1)
    rig.store.extend([LeaseRenewal(ticket=ticket, progress=Progress(stage="removing"), progressed=True)])
    assert side.jobs.get(deleted.job).progress.share is None, "a clean-up does not show how far the build was"


def test_a_cancelled_document_shows_no_retry_time(side: Any, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    note = side.documents.note("shelf", "Whale", "It eats krill.")
    with monkeypatch.context() as away:
        away.setattr(rig.indexers["content"], "build", raises(to_work_error(TimeoutError())))
        rig.work()
    waits = side.documents.get("shelf", note.document)
    assert (waits.status, waits.why.code, waits.retry_at is None) == ("indexing", "provider_timeout", False)
    side.documents.cancel("shelf", note.document)
    found = side.documents.get("shelf", note.document)
    assert (found.status, found.why.code, found.retry_at) == ("not_indexed", "cancelled", None)
    assert {one.retry_at for one in found.indexes} == {None}


def test_a_document_stays_searchable_when_its_newer_version_is_cancelled(side: Any, rig: Rig) -> None:
    note = side.documents.note("shelf", "Whale", "It eats krill.")
    rig.work()
    side.documents.note("shelf", "Whale", "It eats plankton.", on_duplicate=OnDuplicate.REPLACE)
    side.documents.cancel("shelf", note.document)
    found = side.documents.get("shelf", note.document)
    assert (found.status, found.searchable, found.why.code) == ("success", True, "newer_cancelled")
    assert (found.built, found.generation) == (1, 2)
    assert [one.text for one in side.asking.search("shelf", "krill", channels=["fulltext"])]
    assert side.documents.retry("shelf", note.document).accepted
    rig.work()
    found = side.documents.get("shelf", note.document)
    assert (found.status, found.why, found.built) == ("success", None, 3)
    assert side.asking.search("shelf", "plankton", channels=["fulltext"])
    assert not side.asking.search("shelf", "krill", channels=["fulltext"])


def test_a_job_shows_the_same_state_alone_and_in_the_list(side: Any, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(job: str) -> tuple[str, str]:
        (listed,) = [one for one in side.jobs.list("shelf").items if one.id == job]
        alone = side.jobs.get(job)
        assert (alone.state, alone.progress, alone.outcome) == (listed.state, listed.progress, listed.outcome)
        return alone.state, alone.progress.stage if alone.progress else ""

    note = side.documents.note("shelf", "Whale", "It eats krill.")
    assert told(note.job) == ("queued", "")
    (ticket,) = rig.store.claim_next(["content"], "other", 1)
    rig.store.extend(
        [LeaseRenewal(ticket=ticket, progress=Progress(stage="reading", done=1, total=4), progressed=True)]
    )
    assert told(note.job) == ("indexing", "reading")
    rig.store.release([Release(ticket=ticket)])
    with monkeypatch.context() as away:
        away.setattr(rig.indexers["content"], "build", raises(errors.Transient("away", "It is away.")))
        rig.work()
    assert told(note.job) == ("indexing", ""), "one that waits for its next attempt has begun"
    assert "retry" in [one.code for one in side.jobs.get(note.job).waiting_for]
    rig.clock.advance(timedelta(hours=1))
    rig.work()
    assert told(note.job) == ("success", "")

    deleted = side.documents.delete("shelf", note.document)
    assert told(deleted.job) == ("deleting", "")
    (ticket,) = rig.store.claim_next(["fulltext"], "other", 1)
    rig.store.extend(
        [LeaseRenewal(ticket=ticket, progress=Progress(stage="removing", done=1, total=4), progressed=True)]
    )
    assert told(deleted.job) == ("deleting", "removing")


def test_questions_are_answered_and_entities_shown(side: Any, rig: Rig) -> None:
    side.documents.note("shelf", "Grey Island", "# Grey Island\n\nThe lighthouse of Grey Island was built in 1850.")
    side.documents.note("shelf", "Keeper", "# Keeper\n\nThe keeper of Grey Island was Mara Lund.")
    rig.work()
    answer = side.asking.ask("shelf", "Who kept Grey Island?", mode=Mode.NAIVE)
    assert (answer.outcome, answer.mode) == ("no_language_model", "naive")
    assert answer.citations[0].quote
    *words, last = side.asking.stream("shelf", "Who kept Grey Island?")
    assert last.outcome == "no_language_model"
    assert all(isinstance(word, str) for word in words)
    (entity, *_) = side.asking.entities("shelf", text="grey")
    assert side.asking.entity("shelf", entity.key).mentions
    assert side.accounts.usage("shelf").base == "shelf"
    assert side.cards.status("shelf").cards == 0
    assert side.cards.list("shelf").items == []
    assert side.cards.export("shelf", "json").strip() == "[]"
    assert side.accounts.doctor() is not None
    assert side.accounts.erase() == side.accounts.erasure()


def test_the_overview_counts_bases_documents_and_jobs(side: Any, rig: Rig) -> None:
    side.documents.note("shelf", "a", "text")
    rig.work()
    side.documents.note("shelf", "b", "other text")
    told = side.overview()
    assert (told.bases, told.documents.documents, told.queue.active, told.workers) == (1, 2, {"queued": 1}, 0)
    assert (len(told.series), told.series[-1].success) == (24, 1)
    assert side.overview(hours=48).queue.window_seconds == 48 * 3600
    with pytest.raises(errors.BadRequest):
        side.overview(hours=0)


def test_the_graph_view_has_nodes_edges_and_evidence(side: Any, rig: Rig) -> None:
    side.documents.note("shelf", "Keeper", "# Keeper\n\nThe keeper of Grey Island was Mara Lund.")
    rig.work()
    view = side.asking.graph("shelf")
    (edge,) = [one for one in view.edges if {one.source, one.target} == {"grey island", "mara lund"}]
    (place,) = side.asking.evidence("shelf", edge.source, edge.target)
    assert (place.name, "Mara Lund" in place.text) == ("Keeper", True)
    near = side.asking.graph("shelf", around="mara lund", depth=2, limit=10)
    assert {one.key for one in near.nodes} >= {"mara lund", "grey island"}
    with pytest.raises(errors.UnknownEntity):
        side.asking.graph("shelf", around="nobody")


def test_document_details_show_entities_cards_usage_history_and_jobs(side: Any, rig: Rig) -> None:
    reply = side.documents.note("shelf", "Keeper", "# Keeper\n\nThe keeper of Grey Island was Mara Lund.")
    rig.work()
    assert ("mara lund", "Mara Lund", 1) in [
        (one.key, one.name, one.mentions) for one in side.dossiers.entities("shelf", reply.document)
    ]
    assert side.dossiers.cards("shelf", reply.document).items == []
    assert side.dossiers.usage("shelf", reply.document).name == "Keeper"
    last, *_, added = side.dossiers.history("shelf", reply.document)
    assert (last.what, last.job, added.what) == ("success", reply.job, "added")
    (job,) = side.jobs.list("shelf", document=reply.document).items
    assert (job.id, job.name) == (reply.job, "Keeper")
    (standing,) = side.documents.statuses("shelf", [reply.document])
    assert (standing.name, standing.kind) == ("Keeper", "note")
    with pytest.raises(errors.UnknownItem):
        side.dossiers.history("shelf", 77)


@pytest.mark.parametrize("where", SIDES)
def test_chunks_missing_from_an_index_are_listed_with_the_reason(
    where: str, sqlite_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    with PaidProvider() as paid:
        rig = QuestionRig(sqlite_url, tmp_path / "blobs", clock, paid, indexes=("vector",), missing_share=0.2)
        paid.refuses["poison"] = REFUSED
        with seen_from(where, rig) as side:
            document = side.documents.note(
                "shelf", "Parts", sections(20, but={4: "A poison.", 9: "More poison."})
            ).document
            rig.work()
            one, other = side.dossiers.missing("shelf", document)
            assert other.ordinal == 9
            assert (one.index, one.ordinal, one.text[:21]) == ("vector", 4, "## Part 4 A poison. P")
            assert side.documents.passage("shelf", document, one.chunk).text.startswith("## Part 4")
            assert side.documents.text("shelf", document).text[one.start : one.end].startswith("## Part 4")
            assert (one.problem.code, one.problem.params["provider_code"]) == ("content_refused", "content_filter")
            assert "choose a provider that accepts it" in one.problem.message
            assert side.dossiers.missing("shelf", document, limit=1) == [one]
            with pytest.raises(errors.UnknownItem):
                side.dossiers.missing("shelf", 77)
        rig.close()


def test_the_providers_of_a_base_can_be_tested(side: Any) -> None:
    assert [(one.role, one.provider, one.ok) for one in side.bases.test_providers("shelf")] == [
        ("embedding", "offline", True),
        ("chat", "none", True),
    ]


def test_events_are_listed_and_duplicates_are_counted(side: Any, rig: Rig) -> None:
    start = side.events.after(None).next_cursor
    reply = side.documents.note("shelf", "n", "text")
    side.documents.note("shelf", "n", "text")
    rig.work()
    types = [event.type for event in side.events.after(start).items]
    assert types[0] == "document.added"
    assert types[-1] == "job.success"
    newest = side.events.list("shelf", document=reply.document, topics=["job"], limit=1)
    assert [event.type for event in newest.items] == ["job.success"]
    assert newest.next_cursor
    (counted,) = side.accounts.duplicate_counts("shelf")
    assert (counted.reason, counted.count) == ("same_content", 1)
    (refused,) = side.accounts.duplicates().items
    assert (refused.document, refused.job) == (reply.document, reply.job)


def test_folders_are_previewed_and_synced(side: Any, rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nalpha")
    assert side.documents.preview("shelf", folder).added == ["a.md"]
    reply = side.documents.sync("shelf", folder)
    rig.work()
    assert [one.name for one in side.documents.list("shelf", parent=reply.document).items] == ["a.md"]
    assert side.documents.refresh("shelf", reply.document).accepted


def test_webhooks_and_keys_are_created_shown_and_removed(side: Any) -> None:
    made = side.webhooks.create("https://example.org/hook", ["job.*"], bases=["shelf"])
    assert made.secret.startswith("whsec_")
    assert side.webhooks.list() == [made.webhook]
    assert side.webhooks.rotate(made.webhook.id).secret != made.secret
    assert side.webhooks.disable(made.webhook.id).enabled is False
    assert side.webhooks.enable(made.webhook.id).enabled is True
    assert side.webhooks.deliveries(made.webhook.id).items == []
    side.webhooks.delete(made.webhook.id)
    with pytest.raises(errors.UnknownWebhook):
        side.webhooks.get(made.webhook.id)
    key = side.keys.create("reader", bases=["shelf"], days=3)
    assert key.secret.startswith("hf_")
    assert (key.key.scope, key.key.bases) == ("read", ["shelf"])


def test_the_first_key_gets_the_admin_scope_by_default_and_later_keys_get_read(rig: Rig) -> None:
    site = HttpSite(rig)
    with closing(RemoteService(site.address)) as far:
        first = far.keys.create("first")  # from here on, every request needs a key
    assert (first.key.scope, first.key.bases) == ("admin", None)
    with closing(RemoteService(site.address, first.secret)) as far:
        assert far.keys.create("second").key.scope == "read"
    assert LocalService(rig.library, local_caller()).keys.create("third").key.scope == "read"
    assert LocalService(rig.library, local_caller()).keys.create("fourth", "write").key.scope == "write"
    site.close()


def test_a_first_key_gets_the_scope_that_the_caller_names(rig: Rig) -> None:
    assert LocalService(rig.library, local_caller()).keys.create("reader", "read").key.scope == "read"


def test_a_revoked_key_is_refused(rig: Rig) -> None:
    site = HttpSite(rig)
    admin = LocalService(rig.library, local_caller()).keys.create("admin", "admin")
    far = RemoteService(site.address, admin.secret)
    assert [key.name for key in far.keys.list()] == ["admin"]
    far.keys.revoke(admin.key.id)
    with pytest.raises(errors.Forbidden):
        far.bases.list()
    far.close()
    site.close()


def test_an_unreachable_server_raises_store_unavailable(tmp_path: Path) -> None:
    far = RemoteService("http://127.0.0.1:1")
    with pytest.raises(errors.StoreUnavailable, match=r"The server at '127\.0\.0\.1' does not respond: ") as caught:
        far.bases.list()
    assert (caught.value.code, caught.value.subcode) == ("database_unavailable", "server_unreachable")
    far.close()


def test_a_base_is_exported_to_one_file_and_restored_under_another_name(side: Any, rig: Rig, tmp_path: Path) -> None:
    side.documents.note("shelf", "Whale", "It eats krill.")
    rig.work()
    file = tmp_path / "shelf.zip"
    assert side.archives.export("shelf", file).bytes == file.stat().st_size
    with pytest.raises(errors.NameTaken):
        side.archives.restore(file)
    restored = side.archives.restore(file, name="copy")
    assert (restored.base, restored.documents) == ("copy", 1)
    rig.work()
    assert [hit.name for hit in side.asking.search("copy", "krill")] == ["Whale"]
    with pytest.raises(errors.HoldfastError):
        side.archives.restore(io.BytesIO(b"no archive"), name="none")
    assert [base.name for base in side.bases.list()] == ["copy", "shelf"]


def test_failed_jobs_are_not_retried_while_their_base_has_failed(side: Any, rig: Rig) -> None:
    rig.put("broken.pdf", b"%PDF-1.4 nothing")
    rig.work()
    assert side.jobs.retry_all("shelf", dry_run=True).found == 1
    rig.library.catalog.fail_base(rig.base.key, errors.Permanent("model_gone", "The model is gone."))
    with pytest.raises(errors.BaseFailed, match="The model is gone"):
        side.jobs.retry_all("shelf")
    assert side.jobs.retry_all(dry_run=True).found == 0


CHOICES = {"OnDuplicate", "Order", "Mode", "Scope"}


def choosing() -> list[Any]:
    """Return each parameter of each operation that accepts one of a fixed set of strings."""
    return [
        pytest.param(local, name, parameter.name, id=f"{local.__name__}.{name}.{parameter.name}")
        for local, _ in PAIRS
        for name, call in inspect.getmembers(local, inspect.isfunction)
        for parameter in inspect.signature(call).parameters.values()
        if not name.startswith("_") and CHOICES & set(str(parameter.annotation).replace("|", " ").split())
    ]


def test_every_parameter_with_fixed_choices_is_covered() -> None:
    assert {str(one.id).rpartition(".")[2] for one in choosing()} == {"on_duplicate", "order", "mode", "scope"}


@pytest.mark.parametrize("where", SIDES)
@pytest.mark.parametrize(("local", "name", "parameter"), choosing())
def test_an_unknown_value_of_a_choice_is_refused(rig: Rig, where: str, local: type, name: str, parameter: str) -> None:
    given = {"base": "shelf", "name": "n", "text": "t", "question": "q", "files": [File(name="f", content=b"f")]}
    with seen_from(where, rig) as library:
        members = [getattr(library, one) for one in dir(library) if not one.startswith("_")]
        groups = {type(group).__name__.replace("Remote", "Local"): group for group in members}
        call = getattr(groups[local.__name__], name)
        taken = {one: value for one, value in given.items() if one in inspect.signature(call).parameters}
        with pytest.raises(errors.BadRequest, match=r"nonsense|should be"):
            list(call(**taken, **{parameter: "nonsense"}))
        assert library.documents.list("shelf").total == 0


@pytest.mark.parametrize("where", SIDES)
def test_a_choice_can_be_passed_as_a_string(rig: Rig, where: str) -> None:
    with seen_from(where, rig) as library:
        (first,) = library.documents.add("shelf", [File(name="a.md", content=b"one")])
        (second,) = library.documents.add("shelf", [File(name="a.md", content=b"two")], on_duplicate="replace")
        assert (second.accepted, second.document) == (True, first.document)
        assert library.documents.note("shelf", "a.md", "three", on_duplicate="rename").name == "a (2).md"
        assert [one.name for one in library.documents.list("shelf", order="name").items] == ["a (2).md", "a.md"]
