"""The guard as a library, without a broker: request, deliver, publish, cancel, read the status, get notified."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text

from holdfast.engine.admission import Request, Verdict
from holdfast.engine.states import Operation, Outcome, Status
from holdfast.engine.store.factory import open_store_with_own_tables
from holdfast.errors import BadRequest, BadSettings, Permanent, StaleLease, Transient
from holdfast.guard import DeliveryResult, Finished, Guard, Run, Work
from holdfast.guard.lock import EarlyLock
from holdfast.settings import Settings
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.engine import Ring
    from holdfast.engine.store import Job
    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.guard.runs import DeliveryRunner
    from tests.support.servers import Valkey

SECOND = timedelta(seconds=1)


@pytest.fixture
def guard(database_url: str) -> Iterator[Guard]:
    made = Guard(
        Settings(
            database=database_url,
            heartbeat=60 * SECOND,  # so rare that a checkpoint must read the state itself
            backoff=SECOND / 20,
            lock_held_delay=SECOND / 5,
            attempts=2,
        )
    )
    yield made
    made.close()


@pytest.fixture
def cards(guard: Guard) -> Work:
    return guard.work("cards")


def build(text_: str = "built") -> Callable[[Run], str]:
    return lambda _run: text_


def asked(work: Work, key: str = "project-7", **asking: Any) -> str:
    admission = work.admit(key, **asking)
    assert admission.accepted, admission
    assert admission.job is not None
    return admission.job


def test_fifty_requests_at_once_make_one_job_and_forty_nine_refusals_that_name_it(cards: Work) -> None:
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda n: cards.admit("project-7", requester=f"user-{n}", cost=0.05), range(50)))
    assert sorted(answer.verdict for answer in answers) == ["accepted"] + ["joined"] * 49
    assert len({answer.job for answer in answers}) == 1
    refusals = cards.refusals("project-7")
    assert len(refusals) == 49
    assert {one.job for one in refusals} == {answers[0].job}
    assert sum(one.cost for one in refusals) == pytest.approx(49 * 0.05)
    assert len({one.requester for one in refusals}) == 49


def test_a_refusal_has_the_status_and_body_of_a_409_response(cards: Work) -> None:
    job = asked(cards)
    refused = cards.admit("project-7")
    assert refused.http_status is HTTPStatus.CONFLICT
    assert refused.body() == {
        "key": "project-7",
        "verdict": "joined",
        "reason": "already_in_progress",
        "message": "The same work is already queued. Wait until it ends, or cancel it.",
        "status": "queued",
        "state": "queued",
        "job": job,
        "generation": 1,
    }


def test_a_refusal_describes_running_work_in_common_words(cards: Work) -> None:
    result = cards.perform(asked(cards), lambda run: cards.admit(run.key).body())
    assert result.value["state"] == "running"
    assert result.value["message"] == "The same work is already running. Wait until it ends, or cancel it."


def test_the_record_of_a_refused_request_is_json(cards: Work) -> None:
    job = asked(cards)
    cards.admit("project-7", requester="alice", cost=0.05)
    (recorded,) = cards.refusals("project-7")
    shown = json.loads(json.dumps(recorded.as_dict()))
    assert datetime.fromisoformat(shown.pop("at")).tzinfo is UTC
    assert shown == {
        "work": "cards",
        "key": "project-7",
        "reason": "already_in_progress",
        "requester": "alice",
        "cost": 0.05,
        "job": job,
    }


def test_finished_work_is_skipped_and_force_repeats_it(cards: Work) -> None:
    cards.perform(asked(cards), build())
    again = cards.admit("project-7")
    assert (again.verdict, again.reason, again.http_status) == (Verdict.SKIPPED, "already_indexed", HTTPStatus.OK)
    assert cards.admit("project-7", operation="force").http_status is HTTPStatus.ACCEPTED


def test_an_unknown_key_cannot_be_cancelled_and_is_not_indexed(cards: Work) -> None:
    assert cards.cancel("nobody").http_status is HTTPStatus.NOT_FOUND
    assert cards.status("nobody").status is Status.NOT_INDEXED
    assert cards.served("nobody") is None
    assert cards.history("nobody") == []


def test_a_refusal_explains_what_to_do(cards: Work) -> None:
    asked(cards)
    assert "Wait until it ends" in cards.admit("project-7", operation="reindex").message
    assert (
        "nothing to cancel"
        in (cards.perform(cards.history("project-7")[0].id, build()), cards.cancel("project-7"))[1].message
    )


def test_two_works_with_the_same_name_are_refused(guard: Guard) -> None:
    guard.work("cards")
    with pytest.raises(BadSettings, match="already has work named 'cards'"):
        guard.work("cards")


def test_each_work_guards_the_same_key_separately(guard: Guard) -> None:
    one, two = guard.work("one"), guard.work("two")
    assert asked(one) != asked(two)


def test_a_delivery_does_the_work_once_and_a_second_one_is_skipped(cards: Work) -> None:
    job = asked(cards)
    paid: list[int] = []

    def work(run: Run) -> str:
        paid.append(run.fence)
        return "cards"

    done = cards.perform(job, work)
    assert (done.verdict, done.outcome, done.value) == ("done", Outcome.SUCCESS, "cards")
    again = cards.perform(job, work)
    assert (again.verdict, again.reason, again.redeliver_in) == ("skipped", "already_success", None)
    assert len(paid) == 1
    assert cards.status("project-7").status is Status.SUCCESS
    assert cards.served("project-7") == paid[0]


def test_an_unknown_job_is_skipped(cards: Work) -> None:
    assert cards.perform("no-such-job", build()).reason == "unknown_job"


def test_a_delivery_of_an_older_generation_is_skipped(cards: Work) -> None:
    old = asked(cards, operation="change", fingerprint="one")
    new = asked(cards, operation="change", fingerprint="two")
    skipped = cards.perform(old, build())
    assert (skipped.verdict, skipped.reason) == ("skipped", "stale_generation")
    assert cards.perform(new, build()).outcome is Outcome.SUCCESS


def test_a_delivery_during_a_running_one_is_postponed_and_disturbs_nothing(cards: Work) -> None:
    job = asked(cards)
    begun, go_on = threading.Event(), threading.Event()

    def slow(run: Run) -> str:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        run.checkpoint()
        return "cards"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(cards.perform, job, slow)
        assert begun.wait(PATIENCE_SECONDS)
        held = cards.perform(job, build())
        assert (held.verdict, held.reason, held.redeliver_in) == ("lock_held", "lock_held", SECOND / 5)
        go_on.set()
        assert first.result().outcome is Outcome.SUCCESS
    assert cards.perform(job, build()).reason == "already_success"


def test_a_run_whose_lease_was_taken_over_meets_the_run_that_replaced_it(cards: Work, guard: Guard) -> None:
    job = asked(cards)
    begun = [threading.Event(), threading.Event()]
    go_on = [threading.Event(), threading.Event()]

    def hold(number: int) -> Callable[[Run], str]:
        def slow(run: Run) -> str:
            begun[number].set()
            assert go_on[number].wait(PATIENCE_SECONDS)
            threading.Event().wait(1.1)  # longer than a checkpoint uses its cached state
            run.checkpoint()
            return "cards"

        return slow

    def lose_the_lease() -> None:
        slots = guard.place.names.table("slots")
        guard.store.database.write(lambda tx: tx.run_sql(f"UPDATE {slots} SET until = 1, due_at = 1"), durable=True)  # noqa: S608

    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(cards.perform, job, hold(0))
        assert begun[0].wait(PATIENCE_SECONDS)
        lose_the_lease()
        newer = pool.submit(cards.perform, job, hold(1))
        assert begun[1].wait(PATIENCE_SECONDS)
        go_on[0].set()
        assert late.result().verdict == "lock_held"
        go_on[1].set()
        assert newer.result().outcome is Outcome.SUCCESS


def test_a_repeated_delivery_of_finished_work_needs_no_reconciler(
    cards: Work, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = asked(cards)
    cards.perform(job, build())

    def called() -> None:
        raise AssertionError("nothing stands in the way")

    monkeypatch.setattr(guard, "reconcile", called)
    assert cards.perform(job, build()).reason == "already_success"


def test_a_delivery_of_paused_work_is_acknowledged_and_sent_again_when_it_is_resumed(cards: Work, guard: Guard) -> None:
    sent: list[str] = []
    cards.resend = lambda job: sent.append(job.id)
    job = asked(cards)
    guard.store.pause("cards")
    paused = cards.perform(job, build())
    assert (paused.verdict, paused.reason, paused.redeliver_in) == ("postponed", "paused", None)
    guard.reconcile()
    assert sent == []
    guard.store.resume("cards")
    guard.reconcile()
    assert sent == [job]
    assert cards.perform(job, build()).outcome is Outcome.SUCCESS


def test_a_pause_with_stop_releases_running_work_without_counting_an_attempt(cards: Work, guard: Guard) -> None:
    def interrupted(run: Run) -> str:
        guard.store.pause(stop=True)
        threading.Event().wait(1.1)  # longer than a checkpoint uses its cached state
        run.checkpoint()
        return "never"

    job = asked(cards)
    assert cards.perform(job, interrupted).reason == "given_back"
    assert cards.status("project-7").attempt == 0
    assert cards.perform(job, build()).reason == "paused"
    guard.store.resume()
    assert cards.perform(job, build()).outcome is Outcome.SUCCESS


def test_work_beyond_its_quota_is_refused_until_midnight(cards: Work, guard: Guard) -> None:
    guard.store.set_quota("cards", 1)
    asked(cards)
    refused = cards.admit("project-8")
    assert (refused.verdict, refused.reason) == (Verdict.REJECTED, "quota_exhausted")
    assert refused.http_status is HTTPStatus.TOO_MANY_REQUESTS
    assert "midnight UTC" in refused.message


def test_a_delivery_for_a_deleted_key_is_skipped(cards: Work, guard: Guard) -> None:
    job = asked(cards)
    store = guard.store
    store.admit([Request(base="cards", owner="project-7", operation=Operation.DELETE)])
    store.forget(store.claim_next(("cards",), "anybody", 1))
    assert cards.status("project-7").status is Status.NOT_INDEXED
    done = cards.perform(job, build())
    assert (done.verdict, done.reason) == ("skipped", "deleted")


def test_a_key_that_is_being_deleted_is_not_served(cards: Work, guard: Guard) -> None:
    cards.perform(asked(cards), build())
    assert cards.served("project-7") is not None
    guard.store.admit([Request(base="cards", owner="project-7", operation=Operation.DELETE)])
    assert cards.status("project-7").status is Status.DELETING
    assert cards.served("project-7") is None


def test_work_whose_key_is_deleted_while_it_runs_is_skipped(cards: Work, guard: Guard) -> None:
    store = guard.store

    def work(_run: Run) -> str:
        store.admit([Request(base="cards", owner="project-7", operation=Operation.DELETE)])
        return "late"

    done = cards.perform(asked(cards), work)
    assert (done.verdict, done.outcome) == ("skipped", Outcome.DELETED)


def test_an_early_lock_held_elsewhere_refuses_a_delivery_before_it_claims(database_url: str, valkey: Valkey) -> None:
    guard = Guard(Settings(database=database_url), lock=EarlyLock(valkey.url))
    cards = guard.work("cards")
    job = asked(cards)
    elsewhere = EarlyLock(valkey.url)
    with elsewhere.hold("cards:project-7") as ours:
        assert ours
        turned_away = cards.perform(job, build())
        assert (turned_away.verdict, turned_away.redeliver_in) == ("lock_held", timedelta(seconds=15))
        assert cards.status("project-7").attempt == 0
    assert cards.perform(job, build()).outcome is Outcome.SUCCESS
    with elsewhere.hold("cards:project-7") as free_again:
        assert free_again
    elsewhere.close()
    guard.close()


@pytest.mark.parametrize("nothing", [None, "skipped", {"status": "skipped"}, {"verdict": "skipped", "why": "?"}])
def test_work_that_was_admitted_but_returns_no_result_has_failed(cards: Work, nothing: Any) -> None:
    done = cards.perform(asked(cards), lambda _run: nothing)
    assert (done.outcome, done.reason) == (Outcome.FAILED, "no_result")
    assert cards.status("project-7").status is Status.FAILED


def test_a_transient_failure_is_retried_until_the_attempts_are_used_up(cards: Work) -> None:
    def work(_run: Run) -> str:
        raise Transient("rate_limited")

    job = asked(cards)
    first = cards.perform(job, work)
    assert (first.verdict, first.reason, first.outcome) == ("postponed", "rate_limited", None)
    assert first.redeliver_in is not None
    threading.Event().wait(first.redeliver_in.total_seconds())
    last = cards.perform(job, work)
    assert (last.verdict, last.outcome, last.reason) == ("done", Outcome.FAILED, "rate_limited")


def test_an_unexpected_error_is_stored_with_its_type_and_retried(cards: Work) -> None:
    def work(_run: Run) -> str:
        raise ValueError("what is this?")

    assert cards.perform(asked(cards), work).reason == "unexpected"
    error = cards.status("project-7").error
    assert error is not None
    assert error.params == {"type": "ValueError", "detail": "what is this?"}


def test_a_permanent_failure_is_not_retried(cards: Work) -> None:
    def work(_run: Run) -> str:
        raise Permanent("quota_exhausted", "The provider's quota is used up.")

    assert cards.perform(asked(cards), work).outcome is Outcome.FAILED
    error = cards.status("project-7").error
    assert error is not None
    assert error.code == "quota_exhausted"


def test_a_provider_error_is_stored_by_category_without_its_text(cards: Work) -> None:
    class Refused(Exception):
        status_code = 401

    def work(_run: Run) -> str:
        raise Refused("key sk-secret is wrong")

    done = cards.perform(asked(cards), work)
    assert (done.outcome, done.reason) == (Outcome.FAILED, "provider_key_refused")
    assert "sk-secret" not in str(cards.status("project-7").error)


def test_a_change_stops_the_older_run_at_its_next_checkpoint(cards: Work) -> None:
    old = asked(cards, operation="change", fingerprint="one")
    begun, changed = threading.Event(), threading.Event()
    reached: list[str] = []

    def work(run: Run) -> str:
        begun.set()
        assert changed.wait(PATIENCE_SECONDS)
        threading.Event().wait(1.1)  # longer than a checkpoint uses its cached state
        run.checkpoint()
        reached.append("behind the checkpoint")
        return "old"

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(cards.perform, old, work)
        assert begun.wait(PATIENCE_SECONDS)
        new = asked(cards, operation="change", fingerprint="two")
        changed.set()
        stopped = running.result()
    assert (stopped.verdict, stopped.outcome) == ("skipped", Outcome.SUPERSEDED)
    assert reached == []
    assert cards.perform(new, build("new")).outcome is Outcome.SUCCESS


def test_a_cancel_from_another_process_stops_the_run(guard: Guard, database_url: str) -> None:
    cards = guard.work("cards")
    other = Guard(Settings(database=database_url))
    elsewhere = other.work("cards")
    job = asked(cards)
    begun, cancelled = threading.Event(), threading.Event()

    def work(run: Run) -> str:
        begun.set()
        assert cancelled.wait(PATIENCE_SECONDS)
        threading.Event().wait(1.1)
        run.checkpoint()
        return "never"

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(cards.perform, job, work)
        assert begun.wait(PATIENCE_SECONDS)
        assert elsewhere.cancel("project-7").accepted
        cancelled.set()
        stopped = running.result()
    assert (stopped.verdict, stopped.outcome) == ("skipped", Outcome.CANCELLED)
    other.close()
    assert cards.status("project-7").status is Status.NOT_INDEXED
    assert asked(cards)  # the next request is accepted


def test_progress_is_seen_while_the_work_runs(cards: Work) -> None:
    job = asked(cards)
    seen: list[Any] = []

    def work(run: Run) -> str:
        run.checkpoint(stage="embedding", step=2, steps=3, done=5, total=9)
        threading.Event().wait(1.1)
        run.checkpoint(stage="embedding", step=2, steps=3, done=5, total=9)
        seen.append(cards.status("project-7"))
        return "cards"

    cards.perform(job, work)
    (standing,) = seen
    assert standing.status is Status.INDEXING
    assert (standing.progress.stage, standing.progress.done, standing.progress.total) == ("embedding", 5, 9)


@pytest.fixture
def rows(database_url: str) -> Iterator[Callable[[], list[str]]]:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE answers (body TEXT)"))

    def read() -> list[str]:
        with engine.connect() as connection:
            return list(connection.execute(text("SELECT body FROM answers ORDER BY body")).scalars())

    yield read
    engine.dispose()


def write(connection: Any, body: str) -> None:
    connection.execute(text("INSERT INTO answers VALUES (:body)"), {"body": body})


def test_rows_and_result_are_committed_together(cards: Work, rows: Callable[[], list[str]]) -> None:
    def work(run: Run) -> None:
        with run.commit(result="only tasks of Celery store it") as connection:
            write(connection, "forty-two")

    done = cards.perform(asked(cards), work)
    assert (done.outcome, rows()) == (Outcome.SUCCESS, ["forty-two"])
    assert cards.history("project-7")[0].outcome is Outcome.SUCCESS


def test_an_error_while_writing_rows_also_discards_the_result(cards: Work, rows: Callable[[], list[str]]) -> None:
    def work(run: Run) -> None:
        with run.commit() as connection:
            write(connection, "half")
            raise Permanent("bad_rows")

    assert cards.perform(asked(cards), work).outcome is Outcome.FAILED
    assert rows() == []
    assert cards.served("project-7") is None


def test_an_error_after_the_commit_cannot_undo_it(cards: Work, rows: Callable[[], list[str]]) -> None:
    def work(run: Run) -> None:
        with run.commit() as connection:
            write(connection, "kept")
        raise ValueError("after the commit")

    assert cards.perform(asked(cards), work).outcome is Outcome.SUCCESS
    assert rows() == ["kept"]


def test_a_superseded_run_cannot_commit_and_writes_no_row(cards: Work, rows: Callable[[], list[str]]) -> None:
    refused: list[StaleLease] = []

    def work(run: Run) -> None:
        asked(cards, operation="change", fingerprint="two")
        try:
            with run.commit() as connection:
                write(connection, "late")
        except StaleLease as stale:
            refused.append(stale)
            raise

    done = cards.perform(asked(cards, operation="change", fingerprint="one"), work)
    assert (done.verdict, done.outcome) == ("skipped", Outcome.SUPERSEDED)
    assert len(refused) == 1
    assert rows() == []


@pytest.mark.postgres
def test_a_transaction_of_the_app_itself_publishes_when_it_commits(postgres_url: str) -> None:
    guard = Guard(Settings(database=postgres_url))
    cards = guard.work("cards")
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE answers (body TEXT)"))

    def work(run: Run) -> None:
        with engine.begin() as connection:
            write(connection, "forty-two")
            run.commit_in(connection)

    def late(run: Run) -> None:
        asked(cards, operation="change", fingerprint="newest")
        with engine.begin() as connection:
            write(connection, "late")
            run.commit_in(connection)

    assert cards.perform(asked(cards), work).outcome is Outcome.SUCCESS
    assert cards.perform(asked(cards, operation="force"), late).outcome is Outcome.SUPERSEDED
    with engine.connect() as connection:
        assert list(connection.execute(text("SELECT body FROM answers")).scalars()) == ["forty-two"]
    engine.dispose()
    guard.close()


def test_on_sqlite_a_transaction_of_the_app_is_refused_with_a_hint(sqlite_url: str) -> None:
    guard = Guard(Settings(database=sqlite_url, attempts=1))
    cards = guard.work("cards")
    engine = create_engine(sqlite_url)
    seen: list[str] = []

    def work(run: Run) -> None:
        with engine.begin() as connection:
            try:
                run.commit_in(connection)
            except BadRequest as error:
                seen.append(str(error))
                raise

    cards.perform(asked(cards), work)
    assert "On SQLite, use `commit` instead of `commit_in`." in seen[0]
    engine.dispose()
    guard.close()


def test_on_finished_is_called_for_every_job_when_the_next_can_be_requested(guard: Guard) -> None:
    told: list[Finished] = []

    def on_finished(end: Finished) -> None:
        told.append(end)
        if end.outcome is Outcome.FAILED:
            assert work.admit("project-7").accepted, "the slot is free"

    work = guard.work("cards", on_finished=on_finished)
    work.perform(asked(work), lambda _run: None)
    work.perform(work.history("project-7")[0].id, build())
    assert [(end.key, end.outcome, end.generation) for end in told] == [
        ("project-7", Outcome.FAILED, 1),
        ("project-7", Outcome.SUCCESS, 2),
    ]
    assert told[0].results["error"] == "no_result"
    assert guard.store.list_unreported_jobs("cards", 10) == []


def test_the_reconciler_repeats_a_failed_on_finished_callback(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def on_finished(end: Finished) -> None:
        calls.append(end.job)
        if len(calls) == 1:
            raise ConnectionError("the backend is away")

    work = guard.work("cards", on_finished=on_finished)
    job = asked(work)
    work.perform(job, build())
    monkeypatch.setattr("holdfast.guard.work.NOTIFY_GRACE", timedelta())
    guard.reconcile()
    guard.reconcile()
    assert calls == [job, job]


def test_a_delivery_that_met_a_running_job_leaves_the_report_to_the_worker_that_ran_it(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Finished] = []
    work = guard.work("cards", on_finished=told.append)
    job = asked(work)
    process = work._deliveries.process

    def meet_and_end(found: Job, indexer: DeliveryRunner, ring: Ring | None) -> DeliveryResult:
        """Return that the job was running; it ends before the caller goes on, and its worker is about to report it."""
        process(found, indexer, ring)
        return work._deliveries._make_lock_held()

    monkeypatch.setattr(work._deliveries, "process", meet_and_end)
    assert work.perform(job, build()).verdict == "lock_held"
    assert work.job(job).outcome is Outcome.SUCCESS
    assert told == []


def test_on_finished_is_not_called_for_a_postponed_job(guard: Guard) -> None:
    told: list[Finished] = []
    work = guard.work("cards", on_finished=told.append)

    def fail(_run: Run) -> str:
        raise Transient("rate_limited")

    assert work.perform(asked(work), fail).verdict == "postponed"
    assert told == []


def test_a_guard_without_a_callback_leaves_finished_jobs_unreported(
    guard: Guard, database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked(guard.work("cards", on_finished=lambda _end: None))
    deaf = Guard(Settings(database=database_url))
    deaf.work("cards").cancel("project-7")
    monkeypatch.setattr("holdfast.guard.work.NOTIFY_GRACE", timedelta())
    deaf.reconcile()
    deaf.close()
    assert caplog.records == []
    assert len(guard.store.list_unreported_jobs("cards", 10)) == 1


def test_the_reconciler_reports_cancelled_and_superseded_jobs(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Outcome] = []
    work = guard.work("cards", on_finished=lambda end: told.append(end.outcome))
    asked(work, operation="change", fingerprint="one")
    asked(work, operation="change", fingerprint="two")
    work.cancel("project-7")
    monkeypatch.setattr("holdfast.guard.work.NOTIFY_GRACE", timedelta())
    guard.reconcile()
    assert sorted(told) == [Outcome.CANCELLED, Outcome.SUPERSEDED]


FORKING = """
import os, sys
from holdfast.guard import Guard

guard = Guard(sys.argv[1])
work = guard.work("cards")
job = work.admit("project-7").job
mine = guard.store
child = os.fork()
if child == 0:
    if guard.store is mine:
        os._exit(2)
    done = work.perform(job, lambda run: "built in the child")
    os._exit(0 if done.outcome == "success" else 1)
assert os.waitpid(child, 0)[1] == 0, "the child could not use the guard"
assert work.status("project-7").status == "success", "the parent cannot use it any more"
assert work.admit("project-7", operation="force").accepted
guard.close()
print("both")
"""


def test_a_forked_child_has_its_own_connections(database_url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, database_url], capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == ("both\n", 0), ran.stderr


def test_a_store_belongs_to_the_process_that_opened_it(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = guard.store
    assert guard.store is mine
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: 1)
        assert guard.store is not mine
        guard.close()
    mine.close()


def test_a_guard_needs_only_an_address_and_reads_other_settings_from_the_environment(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LEASE", "7m")
    monkeypatch.setenv("HOLDFAST_DATABASE", "sqlite:///elsewhere.db")
    assert (Guard(sqlite_url).settings.database, Guard(sqlite_url).settings.lease) == (sqlite_url, timedelta(minutes=7))
    assert Guard().settings.database == "sqlite:///elsewhere.db"


def test_two_threads_that_open_the_store_concurrently_share_one_and_close_the_other(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.close()
    opened: list[SqlStore] = []
    closed: list[SqlStore] = []
    both = threading.Barrier(2)

    def open_at_once(*args: Any, **more: Any) -> SqlStore:
        store = open_store_with_own_tables(*args, **more)
        monkeypatch.setattr(store, "close", lambda: closed.append(store))
        opened.append(store)
        if len(opened) <= both.parties:
            both.wait()
        return store

    monkeypatch.setattr("holdfast.guard.place.open_store_with_own_tables", open_at_once)
    with ThreadPoolExecutor(2) as threads:
        found = [one.result() for one in [threads.submit(lambda: guard.store) for _ in range(2)]]
    assert found[0] is found[1] is guard.store
    assert len(opened) == 2
    assert closed == [store for store in opened if store is not guard.store]
    monkeypatch.undo()
    for store in opened:
        store.close()
