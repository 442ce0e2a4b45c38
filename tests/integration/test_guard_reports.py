"""What guarded work reports: counters, partial and final results, spending; answers as plain values; callbacks."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.plan import Expire
from holdfast.engine.states import Outcome
from holdfast.errors import BadRequest, BadSettings, Permanent, StopWork, Transient, UnknownJob
from holdfast.guard import Finished, Guard, Run, Work
from holdfast.guard.callbacks import Callbacks, deliver_due, new_secret
from holdfast.settings import Settings
from tests.support.processes import until
from tests.support.receiver import Receiver, say
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = new_secret()


@pytest.fixture
def guard(database_url: str) -> Iterator[Guard]:
    made = Guard(
        Settings(database=database_url, backoff=timedelta(seconds=1), attempts=2),
        callbacks=Callbacks(secret=SECRET, allow="127.0.0.1"),
    )
    yield made
    made.close()


@pytest.fixture
def cards(guard: Guard) -> Work:
    return guard.work("cards")


def ask(work: Work, key: str = "7", **options: Any) -> str:
    admission = work.admit(key, **options)
    assert admission.job is not None
    return admission.job


def test_a_job_is_found_by_its_id_alone_with_what_it_reports(guard: Guard, cards: Work) -> None:
    job = ask(cards, requester="alice", project="biology")
    assert guard.job(job).state == "queued"
    seen: list[Any] = []

    def work(run: Run) -> dict[str, int]:
        run.checkpoint(stage="cards", done=1, total=2, counters={"qa_pairs": 12})
        run.partial([{"q": "krill?"}])
        run._report.flush()
        run.checkpoint(counters={"qa_pairs": 20, "skipped": 1})
        seen.append(guard.job(job))
        return {"pairs": 20}

    cards.perform(job, work)
    (running,) = seen
    assert (running.state, running.counters, running.partial) == ("running", {"qa_pairs": 12}, [{"q": "krill?"}])
    ended = guard.job(job)
    assert (ended.state, ended.counters) == ("succeeded", {"qa_pairs": 20, "skipped": 1})
    assert (ended.result, ended.work, ended.key) == ({"pairs": 20}, "cards", "7")
    assert (ended.requester, ended.project) == ("alice", "biology")
    with pytest.raises(UnknownJob):
        guard.job("nothing")


def test_the_states_of_jobs_and_keys_are_common_words(guard: Guard, cards: Work) -> None:
    def fail_for_now(_run: Run) -> str:
        raise Transient("rate_limited")

    def fail(_run: Run) -> str:
        raise Permanent("quota_exhausted")

    assert cards.status("7").state == "none"
    job = ask(cards)
    assert cards.status("7").state == "queued"
    cards.perform(job, fail_for_now)
    assert (guard.job(job).state, cards.status("7").state, guard.job(job).error) == (
        "waiting", "waiting", "rate_limited",
    )  # fmt: skip
    cards.cancel("7")
    assert guard.job(job).state == "cancelled"
    failed = ask(cards)
    cards.perform(failed, fail)
    assert (guard.job(failed).state, cards.status("7").state, guard.job(failed).error) == (
        "failed", "failed", "quota_exhausted",
    )  # fmt: skip
    old = ask(cards, operation="change", fingerprint="one")
    ask(cards, operation="change", fingerprint="two")
    assert guard.job(old).state == "superseded"


def test_every_answer_is_available_as_plain_values(guard: Guard, cards: Work) -> None:
    told: list[Finished] = []
    work = guard.work("told", on_finished=told.append)
    admission = work.admit("7")
    done = work.perform(str(admission.job), lambda _run: "built")
    values = [admission, work.admit("7"), work.status("7"), done, told[0], guard.job(str(admission.job))]
    for value in values:
        plain = value.as_dict()
        assert json.loads(json.dumps(plain)) == plain
    assert told[0].as_dict()["state"] == "succeeded"
    assert cards.status("7").as_dict()["state"] == "none"


def test_the_callback_gets_the_result_and_the_counters(guard: Guard) -> None:
    told: list[Finished] = []
    work = guard.work("told", on_finished=told.append)

    def build(run: Run) -> list[str]:
        run.checkpoint(counters={"qa_pairs": 2})
        return ["one", "two"]

    work.perform(ask(work), build)
    assert (told[0].result, told[0].counters, told[0].work) == (["one", "two"], {"qa_pairs": 2}, "told")


def test_a_result_that_is_not_json_is_not_stored_and_the_work_succeeds(guard: Guard, cards: Work) -> None:
    job = ask(cards)
    assert cards.perform(job, lambda _run: object()).outcome is Outcome.SUCCESS
    assert guard.job(job).result is None


@pytest.mark.parametrize("counters", [{"rate": float("nan")}, {"set": {1}}, {"text": "x" * 300_000}])
def test_counters_that_cannot_be_stored_are_refused(cards: Work, counters: Any) -> None:
    def work(run: Run) -> str:
        with pytest.raises(BadRequest, match=r"is not JSON|but at most"):
            run.checkpoint(counters=counters)
        return "built"

    assert cards.perform(ask(cards), work).outcome is Outcome.SUCCESS


def test_a_late_run_cannot_change_what_the_newer_one_reports(guard: Guard, cards: Work) -> None:
    job = ask(cards)
    begun, taken, done = threading.Event(), threading.Event(), threading.Event()

    def late(run: Run) -> str:
        run._task._heartbeat.stop()  # as a paused process
        begun.set()
        assert taken.wait(PATIENCE_SECONDS)
        run._report.set_counters({"qa_pairs": 1})
        run._report.flush()
        run.spent(tokens=10, price=0.5)
        done.set()
        raise StopWork("late", refund=False)

    def newer(run: Run) -> str:
        run.checkpoint(counters={"qa_pairs": 99})
        run._report.flush()
        taken.set()
        assert done.wait(PATIENCE_SECONDS)
        return "new"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(cards.perform, job, late)
        assert begun.wait(PATIENCE_SECONDS)
        (slot,) = [guard.store.slot("cards", "7", "cards")]
        guard.store.expire([(slot, Expire("test"))])
        assert cards.perform(job, newer).outcome is Outcome.SUCCESS
        first.result()
    ended = guard.job(job)
    assert (ended.counters, ended.result) == ({"qa_pairs": 99}, "new")
    assert (ended.tokens, ended.price) == (10, 0.5)  # spent is spent


def test_spending_adds_up_over_all_attempts(guard: Guard, cards: Work) -> None:
    job = ask(cards)

    def work(run: Run) -> str:
        run.spent(tokens=100, price=0.25)
        run.spent(tokens=20)
        for wrong in ({"tokens": -1}, {"price": -0.5}, {"price": float("inf")}, {"price": float("nan")}):
            with pytest.raises(BadRequest, match="not negative"):
                run.spent(**wrong)
        if run.attempt == 1:
            raise Transient("rate_limited", retry_after=timedelta(milliseconds=1))
        return "built"

    cards.perform(job, work)
    until(lambda: cards.perform(job, work).outcome, "the second attempt")
    assert (guard.job(job).tokens, guard.job(job).price) == (240, 0.5)


# Calls to requesters


def test_the_requester_gets_a_signed_message_when_the_job_ends(guard: Guard, cards: Work) -> None:
    with Receiver() as receiver:
        address = f"http://127.0.0.1:{receiver.port}/done"
        job = ask(cards, callback=address, requester="alice")

        def work(run: Run) -> str:
            run.checkpoint(counters={"qa_pairs": 3})
            return "built"

        cards.perform(job, work)
        until(lambda: receiver.got, "the callback")
        (message,) = receiver.got
        body: Any = message.verified(SECRET)
        assert (body["type"], message.id) == ("job.succeeded", f"msg_{job}")
        assert body["data"]["result"] == "built"
        assert body["data"]["counters"] == {"qa_pairs": 3}
        assert body["data"]["requester"] == "alice"
        guard.close()  # ends the thread
        guard.reconcile()
        assert len(receiver.got) == 1


def test_the_end_of_a_job_without_an_address_leaves_the_messages_of_others_to_the_reconciler(
    guard: Guard, cards: Work
) -> None:
    with Receiver() as receiver:
        ask(cards, "other", callback=f"http://127.0.0.1:{receiver.port}/done")
        cards.cancel("other")
        cards.perform(ask(cards), lambda _run: "built")
        guard._threads.close()  # waits for all calls
        assert receiver.got == []


def test_a_worker_without_callbacks_leaves_them_to_the_reconciler_of_another(
    guard: Guard, cards: Work, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Guard(database_url)
    with Receiver() as receiver:
        worker.work("cards").perform(ask(cards, callback=f"http://127.0.0.1:{receiver.port}/done"), lambda _run: "done")
        worker.close()
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []
        assert receiver.got == []
        guard.reconcile()
        assert len(receiver.got) == 1


def test_a_job_of_a_version_without_details_is_reported_when_it_ends(guard: Guard) -> None:
    told: list[Finished] = []
    work = guard.work("reported", on_finished=told.append)
    job = ask(work)
    name = guard.place.names.table("job_details")
    guard.store.database.write(lambda tx: tx.run_sql(f"DELETE FROM {name}"), durable=True)  # noqa: S608
    work.perform(job, lambda _run: "built")
    assert [(end.outcome, end.result, end.counters) for end in told] == [(Outcome.SUCCESS, None, {})]


def test_a_message_that_is_refused_is_sent_again_with_the_same_id(guard: Guard, cards: Work) -> None:
    with Receiver() as receiver:
        receiver.answers.append(say(500))
        job = ask(cards, callback=f"http://127.0.0.1:{receiver.port}/done")
        cards.cancel("7")  # no worker reports it; the reconciler does
        guard.reconcile()
        assert len(receiver.got) == 1
        details = guard.store.job_details(job)
        assert details is not None
        assert (details.callback_error, details.callback_attempts) == ("refused", 1)
        assert details.callback_due is not None
        assert details.callback_due > guard.clock.now()
        guard.reconcile()
        assert len(receiver.got) == 1  # not due yet
        make_due(guard, job)
        guard.reconcile()
        assert [message.id for message in receiver.got] == [f"msg_{job}"] * 2
        assert receiver.got[1].verified(SECRET)["type"] == "job.cancelled"
        make_due(guard, job)
        guard.reconcile()
        assert len(receiver.got) == 2


def make_due(guard: Guard, job: str) -> None:
    """Let the time pass until the next attempt, if there is one."""
    name = guard.place.names.table("job_details")
    guard.store.database.write(
        lambda tx: tx.run_sql(f"UPDATE {name} SET callback_due = 1 WHERE callback_due IS NOT NULL"),  # noqa: S608
        durable=True,
    )
    assert guard.job(job)


def test_many_processes_make_each_call_once(guard: Guard, cards: Work, database_url: str) -> None:
    with Receiver() as receiver:
        for number in range(10):
            ask(cards, str(number), callback=f"http://127.0.0.1:{receiver.port}/{number}")
            cards.cancel(str(number))
        callbacks = Callbacks(secret=SECRET, allow="127.0.0.1")
        with ThreadPoolExecutor(4) as pool:
            attempted = sum(pool.map(lambda _: deliver_due(guard, callbacks), range(4)))
        assert attempted == len(receiver.got) == 10
    assert database_url


def test_a_private_address_is_called_only_if_it_is_allowed(database_url: str) -> None:
    strict = Guard(Settings(database=database_url), callbacks=Callbacks(secret=SECRET))
    work = strict.work("cards")
    with Receiver() as receiver:
        job = ask(work, callback=f"http://127.0.0.1:{receiver.port}/done")
        work.cancel("7")
        strict.reconcile()
        assert receiver.got == []
    details = strict.store.job_details(job)
    assert details is not None
    assert details.callback_error is not None
    strict.close()


def test_an_address_that_can_never_be_called_is_refused_with_the_request(guard: Guard, database_url: str) -> None:
    with pytest.raises(BadRequest, match="begins with https"):
        guard.work("cards").admit("7", callback="ftp://example.com")
    without = Guard(database_url)
    with pytest.raises(BadSettings, match="secret"):
        without.work("cards").admit("7", callback="https://example.com")
    without.close()
    assert SECRET not in repr(guard.callbacks)
