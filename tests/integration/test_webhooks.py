"""Webhooks deliver events to a real receiver, retry failures, and never send to a forbidden address."""

from __future__ import annotations

import json
import ssl
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from standardwebhooks.webhooks import WebhookVerificationError

from holdfast.clock import as_datetime
from holdfast.engine.admission import Verdict as Admitted
from holdfast.engine.effects import Event
from holdfast.engine.slot import JobId
from holdfast.engine.states import Operation
from holdfast.engine.store.transitions import record_events
from holdfast.errors import BadRequest, StateConflict, UnknownDelivery, UnknownWebhook
from holdfast.events.log import EventLog, LogPage
from holdfast.events.public_events import Cursor, EventFilter
from holdfast.sources.address_policy import PUBLIC_ONLY, Reach
from holdfast.webhooks.deliveries import LEASE, LOG_PAGE_SIZE, MAX_CONCURRENT_ATTEMPTS, Attempt, DeliveryOutbox
from holdfast.webhooks.encryption import SecretCipher
from holdfast.webhooks.endpoints import SECRET_OVERLAP, StoredWebhook, WebhookRepository
from holdfast.webhooks.http_post import PostOptions, post
from holdfast.webhooks.retry_policy import MAX_PAUSE, RETRY_DELAYS, AttemptResult, DeliveryState, WebhookState
from holdfast.webhooks.sender import THREADS, Sender
from tests.contract.steps import ask, build, side_by_side
from tests.support.receiver import Receiver, say
from tests.support.scripted_site import Site, certificate
from tests.support.stores import open_test_store
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.engine.store.sql_store import SqlStore
    from holdfast.events.public_events import PublicEvent
    from tests.support.clock import FakeClock
    from tests.support.receiver import Message, Said

HERE = Reach.parse("127.0.0.1")
OUTSIDE = Reach.parse("127.0.0.2")  # the public internet in these tests; 127.0.0.1 is the private network
SENT, WAITING, FAILED = DeliveryState.SENT, DeliveryState.WAITING, DeliveryState.FAILED
DAY, TICK = timedelta(days=1), timedelta(microseconds=1)
KEEP = 30 * DAY
KEY = "k" * 44


@dataclass
class Office:
    """All parts that send webhooks, on one database."""

    store: SqlStore
    clock: FakeClock
    line: PostOptions

    def __post_init__(self) -> None:
        log = EventLog(self.store.database)
        cipher = SecretCipher(KEY, Path())
        self.webhooks = WebhookRepository(self.store.database, log, cipher, self.line.reach)
        self.deliveries = DeliveryOutbox(self.store.database, log, cipher)
        self.sender = Sender(self.deliveries, self.line, chance=lambda: 0.0)

    def happen(self, base: str = "7", type_: str = "job.success", **facts: Any) -> None:
        event = Event(type_, base, facts.pop("owner", "42"), job=JobId("job-1"), generation=3)
        self.store.database.write(lambda tx: record_events(tx, [event]), durable=True)

    def collect(self) -> None:
        while self.deliveries.collect_events() is not None:  # on PostgreSQL, a concurrent transaction can delay events
            pass

    def send(self, *, after: timedelta = timedelta()) -> None:
        """Advance the clock, then send everything that is due."""
        self.clock.advance(after)
        self.collect()
        for _ in range(100):
            self.sender.step()
            self.sender.wait_until_idle()
            if self.deliveries.delay_until_due() != timedelta():
                return
        raise AssertionError("it never ends")

    def cursor(self, webhook: StoredWebhook) -> str:
        with self.store.database.engine.connect() as connection:
            query = text("SELECT cursor FROM webhooks WHERE id = :id")
            return str(connection.execute(query, {"id": webhook.id}).scalar())

    def states(self, webhook: StoredWebhook) -> list[str]:
        return [one.state for one in reversed(self.deliveries.list_for_webhook(webhook.id))]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def office(store: SqlStore, clock: FakeClock) -> Iterator[Office]:
    clock.jump(timedelta(microseconds=time.time_ns() // 1000 - clock.now()))  # receivers compare with the real time
    office = Office(store, clock, PostOptions(reach=HERE))
    yield office
    office.sender.close()


@pytest.fixture
def other(office: Office, database_url: str, clock: FakeClock) -> Iterator[Office]:
    """The same database as seen by another process."""
    store = open_test_store(database_url, clock)
    other = Office(store, clock, office.line)
    yield other
    other.sender.close()
    store.close()


@pytest.fixture
def hook(office: Office, receiver: Receiver) -> StoredWebhook:
    return office.webhooks.create(receiver.url("/hook"), ["*"])[0]


def only(receiver: Receiver) -> Message:
    (message,) = receiver.got
    return message


class TestAMessage:
    def test_a_message_follows_the_standard_webhooks_format(self, office: Office, receiver: Receiver) -> None:
        webhook, secret = office.webhooks.create(receiver.url("/hook?a=b"), ["job.*"])
        office.happen()
        office.send()
        message = only(receiver)
        read = message.verified(secret)
        at = datetime.fromtimestamp(office.clock.now() / 1_000_000, UTC).isoformat(timespec="milliseconds")
        assert (message.path, message.headers["content-type"]) == ("/hook?a=b", "application/json")
        assert message.headers["user-agent"].startswith("Holdfast/")
        assert {"cookie", "authorization"}.isdisjoint(message.headers)
        assert (read["type"], read["timestamp"]) == ("job.success", at)
        data = read["data"]
        assert isinstance(data, dict)
        assert (data["base"], data["document"], data["job"], data["generation"]) == (7, 42, "job-1", 3)
        assert office.states(webhook) == [SENT]

    def test_the_receiver_detects_an_altered_message(self, office: Office, receiver: Receiver) -> None:
        _, secret = office.webhooks.create(receiver.url(), ["*"])
        office.happen()
        office.send()
        message = only(receiver)
        with pytest.raises(WebhookVerificationError):
            type(message)(message.path, message.headers, message.body.replace(b"42", b"43")).verified(secret)
        with pytest.raises(WebhookVerificationError):
            type(message)(message.path, message.headers | {"webhook-id": "msg_x"}, message.body).verified(secret)

    def test_the_receiver_rejects_a_replayed_message(self, office: Office, receiver: Receiver) -> None:
        _, secret = office.webhooks.create(receiver.url(), ["*"])
        office.clock.jump(-timedelta(minutes=6))
        office.happen()
        office.send()
        with pytest.raises(WebhookVerificationError, match="too old"):
            only(receiver).verified(secret)

    def test_a_message_arrives_after_its_slot_is_free(self, office: Office, receiver: Receiver) -> None:
        """A receiver that is notified of the end of a job may start the next one immediately."""
        office.webhooks.create(receiver.url(), ["job.success"])
        answers = []

        def start_next(_: Message) -> None:
            answers.append(ask(office.store, operation=Operation.FORCE).verdict)

        receiver.before = start_next
        ask(office.store)
        build(office.store, "content", "vector", "graph")
        office.send()
        assert answers == [Admitted.ACCEPTED]

    def test_a_webhook_does_not_show_its_secret(self, office: Office, receiver: Receiver) -> None:
        webhook, secret = office.webhooks.create(receiver.url(), ["*"])
        assert secret not in repr(webhook)
        assert secret not in repr(office.webhooks.list_all())


class TestEvents:
    def test_each_event_becomes_one_delivery_in_order(self, office: Office, hook: StoredWebhook) -> None:
        for number in range(2 * LOG_PAGE_SIZE + 5):
            office.happen(owner=str(number))
        office.collect()
        found = office.deliveries.list_for_webhook(hook.id, limit=1000)
        owners = [office_body(office, one.id)["data"]["document"] for one in reversed(found)]
        assert owners == list(range(2 * LOG_PAGE_SIZE + 5))
        assert len({one.message for one in found}) == len(found)

    def test_events_before_the_creation_of_a_webhook_are_not_sent(self, office: Office, receiver: Receiver) -> None:
        office.happen()
        office.webhooks.create(receiver.url(), ["*"])
        office.send()
        assert receiver.got == []

    @pytest.mark.parametrize(
        ("types", "told"),
        [
            (["*"], ["job.success", "job.failed", "base.created"]),
            (["job.*"], ["job.success", "job.failed"]),
            (["job.failed", "base.*"], ["job.failed", "base.created"]),
            (["base.created"], ["base.created"]),
        ],
    )
    def test_events_are_selected_by_type(self, office: Office, receiver: Receiver, types: list[str], told: Any) -> None:
        webhook, _ = office.webhooks.create(receiver.url(), types)
        for type_ in ("job.success", "job.failed", "base.created"):
            office.happen(type_=type_)
        office.collect()
        assert [one.type for one in reversed(office.deliveries.list_for_webhook(webhook.id))] == told

    def test_events_of_other_bases_are_never_sent(self, office: Office, receiver: Receiver) -> None:
        webhook, _ = office.webhooks.create(receiver.url(), ["*"], bases=[7, 70])
        for base in ("7", "8", "77", "shelf", ""):
            office.happen(base)
        office.store.pause()
        office.send()
        assert [
            office_body(office, one.id)["data"]["base"] for one in office.deliveries.list_for_webhook(webhook.id)
        ] == [7]
        assert len(receiver.got) == 1

    def test_concurrent_processes_collect_each_event_once(
        self, office: Office, other: Office, hook: StoredWebhook
    ) -> None:
        for number in range(40):
            office.happen(owner=str(number))
        side_by_side(4, lambda index: (office, other)[index % 2].collect())
        assert len(office.deliveries.list_for_webhook(hook.id, limit=1000)) == 40

    def test_a_late_collector_does_not_move_the_cursor_back(
        self, office: Office, other: Office, hook: StoredWebhook
    ) -> None:
        before = office.cursor(hook)
        office.happen()
        page = EventLog(office.store.database).read(Cursor.parse(before))
        office.collect()
        office.happen()
        office.collect()
        after = office.cursor(hook)
        other.deliveries._add_deliveries(before, [hook.id], page)
        assert office.cursor(hook) == after != before

    def test_events_read_before_a_webhook_was_disabled_are_not_sent(self, office: Office, hook: StoredWebhook) -> None:
        before = office.cursor(hook)
        office.happen()
        page = EventLog(office.store.database).read(Cursor.parse(before))
        office.webhooks.disable(hook.id)
        office.deliveries._add_deliveries(before, [hook.id], page)
        assert office.deliveries.list_for_webhook(hook.id) == []
        assert office.cursor(hook) == before

    def test_events_are_sent_once_even_if_the_cursor_is_reset(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        before = office.cursor(hook)
        office.happen()
        office.send()
        with office.store.database.engine.begin() as connection:
            connection.execute(text("UPDATE webhooks SET cursor = :cursor"), {"cursor": before})
        office.send()
        assert len(receiver.got) == 1

    def test_an_interrupted_collection_loses_no_events(self, office: Office, hook: StoredWebhook) -> None:
        office.happen()
        office.happen()
        torn = DeliveryOutbox(office.store.database, TornLog(office.store.database), SecretCipher(KEY, Path()))
        with pytest.raises(InterruptedError):
            torn.collect_events()
        assert office.deliveries.list_for_webhook(hook.id) == []
        office.collect()
        assert len(office.deliveries.list_for_webhook(hook.id)) == 2

    def test_events_removed_by_retention_do_not_block_later_events(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        office.happen(owner="1")
        office.clock.advance(KEEP)
        office.happen(owner="2")
        office.clock.advance(TICK)
        assert office.store.delete_old_history(KEEP, 100) == 1
        office.send()
        assert [
            office_body(office, one.id)["data"]["document"] for one in office.deliveries.list_for_webhook(hook.id)
        ] == [2]
        assert len(receiver.got) == 1


class TornLog(EventLog):
    """A log whose last event cannot be serialised."""

    def read(self, after: Cursor | None, limit: int = LOG_PAGE_SIZE, **more: Any) -> LogPage:
        page = super().read(after, limit, **more)
        return LogPage(events=[*page.events[:-1], _Torn(page.events[-1])], cursor=page.cursor)  # type: ignore[list-item]


class _Torn:
    def __init__(self, event: PublicEvent) -> None:
        self.type, self.base = event.type, event.base

    def to_dict(self) -> None:
        raise InterruptedError


def office_body(office: Office, delivery: int) -> Any:
    with office.store.database.engine.connect() as connection:
        query = text("SELECT body FROM webhook_deliveries WHERE id = :id")
        return json.loads(connection.execute(query, {"id": delivery}).scalar() or "")


class TestFailures:
    def test_a_failed_message_is_retried_with_the_same_id_and_a_new_timestamp(
        self, office: Office, receiver: Receiver
    ) -> None:
        webhook, secret = office.webhooks.create(receiver.url(), ["*"])
        receiver.answers += [say(500), say(502, b"stack trace")]
        office.happen()
        office.send()
        (delivery,) = office.deliveries.list_for_webhook(webhook.id)
        assert (delivery.state, delivery.attempts, delivery.status, delivery.reason) == (WAITING, 1, 500, "refused")
        assert delivery.next_at == as_datetime(office.clock.now()) + RETRY_DELAYS[0]
        office.send(after=RETRY_DELAYS[0] - TICK)
        assert len(receiver.got) == 1, "not before its time"
        office.send(after=TICK)
        office.send(after=RETRY_DELAYS[1])
        assert len({message.id for message in receiver.got}) == 1
        assert len({message.headers["webhook-timestamp"] for message in receiver.got}) == 3
        assert len({message.body for message in receiver.got}) == 1
        assert receiver.got[0].verified(secret) == receiver.got[2].verified(secret)
        (delivery,) = office.deliveries.list_for_webhook(webhook.id)
        assert (delivery.state, delivery.attempts, delivery.status, delivery.reason) == (SENT, 3, 204, None)
        assert office.webhooks.get(webhook.id).failures == 0

    @pytest.mark.parametrize(
        ("said", "wait"),
        [
            (say(429, Retry_After="120"), timedelta(seconds=120)),
            (say(503, Retry_After="3600"), timedelta(hours=1)),
            (say(503, Retry_After="99999999"), DAY),
            (say(429, Retry_After="1"), RETRY_DELAYS[0]),
            (say(429, Retry_After="soon"), RETRY_DELAYS[0]),
            (say(500, Retry_After="3600"), RETRY_DELAYS[0]),
        ],
    )
    def test_the_retry_delay_respects_retry_after_in_seconds(
        self, office: Office, receiver: Receiver, hook: StoredWebhook, said: Said, wait: timedelta
    ) -> None:
        receiver.answers.append(said)
        office.happen()
        office.send()
        (delivery,) = office.deliveries.list_for_webhook(hook.id)
        assert delivery.next_at == as_datetime(office.clock.now()) + wait

    def test_the_retry_delay_respects_retry_after_as_a_date(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        office.clock.jump(timedelta(microseconds=-(office.clock.now() % 1_000_000)))
        now = datetime.fromtimestamp(office.clock.now() // 1_000_000, UTC)
        receiver.answers.append(say(503, Retry_After=format_datetime(now + timedelta(hours=2), usegmt=True)))
        office.happen()
        office.send()
        (delivery,) = office.deliveries.list_for_webhook(hook.id)
        assert delivery.next_at == as_datetime(office.clock.now()) + timedelta(hours=2)

    def test_status_410_disables_the_webhook(self, office: Office, receiver: Receiver, hook: StoredWebhook) -> None:
        receiver.answers.append(say(410))
        office.happen()
        office.send()
        webhook = office.webhooks.get(hook.id)
        assert (webhook.enabled, webhook.disabled_reason) == (False, "gone")
        assert office.states(hook) == [FAILED]
        office.happen()
        office.send(after=DAY)
        assert len(receiver.got) == 1

    def test_a_disabled_webhook_is_reported_once_to_webhooks_for_all_bases(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        everything = office.webhooks.create(receiver.url("/all"), ["webhook.*"])[0]
        some = office.webhooks.create(receiver.url("/some"), ["*"], bases=[7])[0]
        receiver.answers += [say(410), say(410)]
        office.webhooks.disable(some.id)  # disabling by a user emits no event
        cursor = office.cursor(some)
        office.happen()
        office.happen()
        office.send()
        office.webhooks.enable(some.id)
        with office.store.database.writing(durable=True) as tx:  # as if it had not been disabled
            tx.run_sql(f"UPDATE webhooks SET cursor = '{cursor}' WHERE id = {some.id}")  # noqa: S608 - test data
        office.send()
        events = [one for one in EventLog(office.store.database).read(None).events if one.type == "webhook.disabled"]
        (event,) = events
        assert (event.base, event.document, event.owner, event.job) == (None, None, "", None)
        assert event.data == {"webhook": hook.id, "reason": "gone"}
        assert not EventFilter(bases=frozenset({"7"})).matches(event)
        (delivery,) = office.deliveries.list_for_webhook(everything.id)
        assert (delivery.type, delivery.state) == ("webhook.disabled", SENT)
        assert "webhook.disabled" not in {one.type for one in office.deliveries.list_for_webhook(some.id)}
        office.webhooks.enable(hook.id)
        office.webhooks.disable(hook.id)
        assert [one.type for one in EventLog(office.store.database).read(None).events].count("webhook.disabled") == 1

    def test_three_days_of_failures_disable_the_webhook(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        receiver.answers += [say(500)] * (len(RETRY_DELAYS) + 1)
        office.happen()
        office.send()
        for wait in RETRY_DELAYS:
            assert office.webhooks.get(hook.id).enabled
            office.send(after=wait)
        webhook = office.webhooks.get(hook.id)
        assert (webhook.enabled, webhook.disabled_reason) == (False, "failing")
        assert webhook.failures == len(receiver.got) == len(RETRY_DELAYS) + 1
        told = [one for one in EventLog(office.store.database).read(None).events if one.type == "webhook.disabled"]
        assert [one.data for one in told] == [{"webhook": hook.id, "reason": "failing"}]
        (delivery,) = office.deliveries.list_for_webhook(hook.id)
        assert (delivery.state, delivery.attempts) == (FAILED, len(RETRY_DELAYS) + 1)

    def test_failures_of_one_message_do_not_disable_a_receiver_that_accepts_others(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        office.happen()
        office.collect()
        (refused,) = office.deliveries.list_for_webhook(hook.id)

        def refuse(message: Message) -> None:
            if message.id == refused.message:
                receiver.answers.append(say(500))

        receiver.before = refuse
        office.send()
        for _ in RETRY_DELAYS:
            office.happen()
            office.send(after=DAY)
            office.send(after=MAX_PAUSE)
        assert office.states(hook) == [FAILED] + [SENT] * len(RETRY_DELAYS)
        assert office.webhooks.get(hook.id).enabled

    def test_a_dead_address_gets_few_attempts_however_many_messages_wait(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        for _ in range(50):
            office.happen()
        receiver.answers += [say(500)] * 1000
        waited = timedelta()
        while waited < timedelta(minutes=4):
            office.send(after=timedelta(seconds=1))
            office.happen()
            waited += timedelta(seconds=1)
        assert len(receiver.got) <= MAX_CONCURRENT_ATTEMPTS + 3
        webhook = office.webhooks.get(hook.id)
        assert (webhook.state, webhook.failures) == (WebhookState.FAILING, len(receiver.got))
        assert webhook.retry_at is not None
        assert webhook.retry_at > office.clock.now()
        assert webhook.waiting == len(office.deliveries.list_for_webhook(hook.id, limit=1000))

    def test_after_failures_one_probe_runs_at_a_time_and_its_success_sends_the_rest(
        self, office: Office, other: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        receiver.answers += [say(500)] * MAX_CONCURRENT_ATTEMPTS
        for _ in range(10):
            office.happen()
        office.send()
        assert len(receiver.got) == MAX_CONCURRENT_ATTEMPTS
        office.clock.advance(RETRY_DELAYS[0] - TICK)
        assert office.deliveries.claim(THREADS) == []
        office.clock.advance(TICK)
        claims = side_by_side(4, lambda index: (office, other)[index % 2].deliveries.claim(THREADS))
        (probe,) = [attempt for claim in claims for attempt in claim]
        office.deliveries.record_result(probe, AttemptResult.from_status(204), 0.0)
        assert office.webhooks.get(hook.id).state is WebhookState.HEALTHY
        office.send(after=RETRY_DELAYS[0])
        assert set(office.states(hook)) == {SENT}
        assert office.webhooks.get(hook.id).waiting == 0

    def test_repeated_failures_increase_the_pause_up_to_an_hour(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        receiver.answers += [say(500)] * 100
        office.happen()
        office.send()
        for wait in (*RETRY_DELAYS[:5], *[timedelta(hours=1)] * 3):
            office.happen()
            sent = len(receiver.got)
            office.send(after=wait - TICK)
            assert len(receiver.got) == sent
            office.send(after=TICK)
            assert len(receiver.got) == sent + 1
        assert office.webhooks.get(hook.id).failures == len(receiver.got)

    def test_an_unreachable_receiver_is_reported(self, office: Office) -> None:
        with Receiver() as gone:
            webhook, _ = office.webhooks.create(gone.url(), ["*"])
        office.happen()
        office.send()
        (delivery,) = office.deliveries.list_for_webhook(webhook.id)
        assert (delivery.state, delivery.status, delivery.reason) == (WAITING, None, "unreachable")

    @pytest.mark.usefixtures("hook")
    def test_the_response_of_the_receiver_is_not_stored(self, office: Office, receiver: Receiver) -> None:
        receiver.answers.append(say(500, b"the password is swordfish", X_Trace="swordfish"))
        office.happen()
        office.send()
        with office.store.database.engine.connect() as connection:
            rows = connection.execute(text("SELECT * FROM webhook_deliveries")).all()
        assert len(rows) == 1
        assert "swordfish" not in str(rows)


class TestForgedRequests:
    """The row `Webhook SSRF` of our threat model."""

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_a_redirect_is_a_failure_and_is_not_followed(
        self, office: Office, receiver: Receiver, hook: StoredWebhook, status: int
    ) -> None:
        with Receiver() as secret:
            receiver.answers.append(say(status, Location=secret.url("/admin")))
            office.happen()
            office.send()
            assert secret.got == []
        (delivery,) = office.deliveries.list_for_webhook(hook.id)
        assert (delivery.state, delivery.status, delivery.reason) == (WAITING, status, "redirected")

    def test_a_name_that_later_resolves_into_the_private_network_is_refused(
        self, store: SqlStore, clock: FakeClock
    ) -> None:
        leads = ["127.0.0.2"]
        line = PostOptions(reach=OUTSIDE, resolve=lambda _: leads)
        office = Office(store, clock, line)
        with Receiver(address="127.0.0.2") as public, Receiver(port=public.port) as private:
            webhook, _ = office.webhooks.create(public.url(host="hooks.test"), ["*"])
            office.happen()
            office.send()
            leads[:] = ["127.0.0.1"]
            office.happen()
            office.send()
            assert (len(public.got), len(private.got)) == (1, 0)
            leads[:] = ["127.0.0.2", "127.0.0.1"]
            office.send(after=RETRY_DELAYS[0])
            assert (len(public.got), len(private.got)) == (1, 0)
        (delivery, _) = office.deliveries.list_for_webhook(webhook.id)
        assert (delivery.state, delivery.status, delivery.reason) == (WAITING, None, "refused_address")
        office.sender.close()

    def test_a_name_is_resolved_once_and_the_checked_address_is_used(self, store: SqlStore, clock: FakeClock) -> None:
        lookups: list[str] = []

        def rebinding(name: str) -> Sequence[str]:
            lookups.append(name)
            return ["127.0.0.2"] if len(lookups) == 1 else ["127.0.0.1"]

        office = Office(store, clock, PostOptions(reach=OUTSIDE, resolve=rebinding))
        with Receiver(address="127.0.0.2") as public, Receiver(port=public.port) as private:
            office.webhooks.create(public.url(host="hooks.test"), ["*"])
            office.happen()
            office.send()
            assert (len(public.got), len(private.got), lookups) == (1, 0, ["hooks.test"])
            assert public.got[0].headers["host"] == f"hooks.test:{public.port}"
        office.sender.close()

    @pytest.mark.parametrize(
        "url",
        [
            "http://127.0.0.1/", "http://10.0.0.1/hook", "https://[::1]/", "http://169.254.169.254/latest",
            "http://2130706433/", "file:///etc/passwd", "ftp://example.org/", "http://user:word@example.org/", "",
        ],
    )  # fmt: skip
    def test_a_private_or_invalid_address_is_refused_on_creation(self, store: SqlStore, url: str) -> None:
        webhooks = WebhookRepository(store.database, EventLog(store.database), SecretCipher(KEY, Path()), PUBLIC_ONLY)
        with pytest.raises(BadRequest):
            webhooks.create(url, ["*"])
        assert webhooks.list_all() == []

    def test_proxies_of_the_environment_are_not_used(
        self, office: Office, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Receiver() as proxy:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, proxy.url())
            office.webhooks.create(receiver.url(), ["*"])
            office.happen()
            office.send()
            assert (len(receiver.got), len(proxy.got)) == (1, 0)

    def test_a_receiver_with_an_invalid_certificate_gets_no_message(self, tmp_path: Path) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate(tmp_path, "elsewhere.test"))
        with Site(tls=tls) as site:
            answer = post(PostOptions(reach=HERE), site.url("/"), {}, b"{}", office_time())
        assert answer == AttemptResult(reason="tls_failed")


def office_time() -> Any:
    return time.time_ns() // 1000


class TestLimits:
    QUICK = PostOptions(reach=HERE, timeout_seconds=0.3)  # for receivers that never answer
    PATIENT = PostOptions(reach=HERE, timeout_seconds=PATIENCE_SECONDS)

    def test_a_receiver_that_does_not_answer_times_out(self) -> None:
        gate = threading.Event()
        with Site() as site:
            site.answers["/"] = lambda _: iter([b""] if gate.wait(PATIENCE_SECONDS) else [])
            answer = post(self.QUICK, site.url("/"), {}, b"{}", office_time())
            gate.set()
        assert answer == AttemptResult(reason="response_too_slow")

    def test_an_endless_response_counts_by_its_status_and_is_not_read_completely(self) -> None:
        sent: list[int] = []

        def endless(_: object) -> Iterator[bytes]:
            yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            for number in range(20_000):
                sent.append(number)
                yield b"10000\r\n" + b"x" * 65536 + b"\r\n"

        with Site() as site:
            site.answers["/"] = endless
            answer = post(self.PATIENT, site.url("/"), {}, b"{}", office_time())
        assert answer == AttemptResult(status=200)
        assert len(sent) < 500, "no more than fits into the network's buffers"

    def test_an_invalid_http_response_is_a_failure(self) -> None:
        with Site() as site:
            site.says("/", b"SSH-2.0-OpenSSH_9.2\r\n")
            answer = post(self.PATIENT, site.url("/"), {}, b"{}", office_time())
        assert answer == AttemptResult(reason="invalid_response")

    def test_a_slow_receiver_does_not_delay_others(self, office: Office, receiver: Receiver) -> None:
        gate, there = threading.Event(), threading.Semaphore(0)

        def hang(_: Message) -> None:
            there.release()
            gate.wait(PATIENCE_SECONDS)

        with Receiver(before=hang) as slow:
            stuck, _ = office.webhooks.create(slow.url(), ["*"])
            quick, _ = office.webhooks.create(receiver.url(), ["*"])
            for _ in range(5):
                office.happen()
            office.collect()
            office.sender.step()
            for _ in range(MAX_CONCURRENT_ATTEMPTS):
                assert there.acquire(timeout=PATIENCE_SECONDS)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while office.states(quick) != [SENT] * 5:
                assert time.monotonic() < deadline
                office.sender.step()
            assert len(slow.got) == MAX_CONCURRENT_ATTEMPTS
            assert office.states(stuck) == [WAITING] * 5
            gate.set()
            office.send()
            assert office.states(stuck) == [SENT] * 5


class TestTwoSenders:
    def test_two_senders_send_each_delivery_once(self, office: Office, other: Office, receiver: Receiver) -> None:
        hooks = [office.webhooks.create(receiver.url(f"/{number}"), ["*"])[0] for number in range(4)]
        for _ in range(10):
            office.happen()
        office.collect()

        def work(index: int) -> None:
            mine = (office, other)[index]
            for _ in range(1000):
                if not any(WAITING in mine.states(hook) for hook in hooks):
                    return
                mine.sender.step()
                mine.sender.wait_until_idle()

        side_by_side(2, work)
        assert len(receiver.got) == len({message.id for message in receiver.got}) == 40

    @pytest.mark.usefixtures("hook")
    def test_two_senders_together_respect_the_limit_of_a_webhook(self, office: Office, other: Office) -> None:
        for _ in range(10):
            office.happen()
        office.collect()
        claims = side_by_side(4, lambda index: (office, other)[index % 2].deliveries.claim(THREADS))
        attempts = [attempt for claim in claims for attempt in claim]
        assert len({attempt.delivery for attempt in attempts}) == len(attempts) == MAX_CONCURRENT_ATTEMPTS

    def test_a_delivery_is_sent_again_if_its_sender_is_killed_before_recording_the_result(
        self, office: Office, other: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        office.happen()
        office.collect()
        (lost,) = office.deliveries.claim(1)
        post(office.line, lost.url, lost.headers, lost.body.encode(), lost.claimed_at)
        other.send(after=LEASE - TICK)
        assert len(receiver.got) == 1, "it may still be noted"
        other.send(after=TICK)
        assert len(receiver.got) == 2
        assert receiver.got[0].id == receiver.got[1].id
        assert other.states(hook) == [SENT]

    def test_a_late_sender_cannot_overwrite_the_result_of_another(
        self, office: Office, other: Office, hook: StoredWebhook
    ) -> None:
        office.happen()
        office.collect()
        (late,) = office.deliveries.claim(1)
        office.clock.advance(LEASE)
        (attempt,) = other.deliveries.claim(1)
        assert attempt.fence > late.fence
        office.deliveries.record_result(late, AttemptResult.from_status(500), 0.0)
        (delivery,) = other.deliveries.list_for_webhook(hook.id)
        assert (delivery.attempts, delivery.status) == (2, None)
        assert other.deliveries.claim(1) == [], "the other one is still at it"
        other.deliveries.record_result(attempt, AttemptResult.from_status(200), 0.0)
        office.deliveries.record_result(late, AttemptResult.from_status(500), 0.0)
        assert other.states(hook) == [SENT]


class TestSecrets:
    def test_both_secrets_sign_during_a_rotation(self, office: Office, receiver: Receiver) -> None:
        webhook, old = office.webhooks.create(receiver.url(), ["*"])
        new = office.webhooks.rotate_secret(webhook.id)
        office.happen()
        office.send()
        assert only(receiver).verified(old) == only(receiver).verified(new)
        assert new != old

    def test_the_old_secret_expires_after_a_day(self, office: Office, receiver: Receiver) -> None:
        webhook, old = office.webhooks.create(receiver.url(), ["*"])
        office.clock.jump(-SECRET_OVERLAP)
        new = office.webhooks.rotate_secret(webhook.id)
        office.clock.advance(SECRET_OVERLAP)
        office.happen()
        office.send()
        assert only(receiver).verified(new)
        assert len(only(receiver).headers["webhook-signature"].split(" ")) == 1
        with pytest.raises(WebhookVerificationError):
            only(receiver).verified(old)

    def test_an_expired_secret_is_removed_from_the_database(self, office: Office, receiver: Receiver) -> None:
        webhook, old = office.webhooks.create(receiver.url(), ["*"])
        office.webhooks.rotate_secret(webhook.id)
        office.clock.advance(SECRET_OVERLAP)
        office.deliveries.sweep(KEEP)
        with office.store.database.engine.connect() as connection:
            assert old not in str(connection.execute(text("SELECT * FROM webhooks")).all())


class TestAWebhook:
    def test_a_disabled_webhook_gets_no_events_and_resumes_with_new_ones(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        office.happen(owner="1")
        office.collect()
        disabled = office.webhooks.disable(hook.id)
        assert (disabled.enabled, disabled.disabled_reason) == (False, "asked")
        office.happen(owner="2")
        office.send()
        assert receiver.got == []
        assert office.webhooks.enable(hook.id).enabled
        office.happen(owner="3")
        office.send()
        assert sorted(b'"document": 1,' in one.body for one in receiver.got) == [False, True]
        assert not any(b'"document": 2,' in one.body for one in receiver.got)

    def test_enabling_a_webhook_resets_its_failures(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        receiver.answers += [say(500), say(410)]
        office.happen()
        office.send()
        office.send(after=RETRY_DELAYS[0])
        assert office.webhooks.get(hook.id).failures == 2
        again = office.webhooks.enable(hook.id)
        assert (again.enabled, again.failures, again.failing_since) == (True, 0, None)

    def test_enabling_an_enabled_webhook_keeps_its_cursor(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        office.happen()
        office.webhooks.enable(hook.id)
        office.send()
        assert len(receiver.got) == 1

    def test_a_deleted_webhook_disappears_immediately_and_is_swept_later(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        office.happen()
        office.collect()
        (delivery,) = office.deliveries.list_for_webhook(hook.id)
        office.webhooks.delete(hook.id)
        assert office.deliveries.claim(1) == []
        office.send()
        assert (receiver.got, office.webhooks.list_all()) == ([], [])
        for act in (office.webhooks.get, office.webhooks.delete, office.deliveries.list_for_webhook,
                    office.webhooks.rotate_secret,
                    office.webhooks.disable, office.webhooks.enable):  # fmt: skip
            with pytest.raises(UnknownWebhook):
                act(hook.id)
        with pytest.raises(UnknownDelivery):
            office.deliveries.redeliver(delivery.id)
        assert office.deliveries.sweep(KEEP) == 1
        with office.store.database.engine.connect() as connection:
            for table in ("webhooks", "webhook_deliveries"):
                assert connection.execute(text(f"SELECT count(*) FROM {table}")).scalar() == 0  # noqa: S608

    @pytest.mark.parametrize("types", [[], ["jobs.*"], ["job"], ["job.**"], ["slot.claimed"], ["job.*", ""]])
    def test_a_webhook_with_unknown_event_types_is_refused(
        self, office: Office, receiver: Receiver, types: list[str]
    ) -> None:
        with pytest.raises(BadRequest):
            office.webhooks.create(receiver.url(), types)

    def test_an_empty_list_of_bases_is_refused_and_never_means_all(self, office: Office, hook: StoredWebhook) -> None:
        with pytest.raises(BadRequest):
            office.webhooks.create(hook.url, ["*"], bases=[])


class TestDeliveries:
    def test_deliveries_are_listed_in_pages_with_the_newest_first(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        for _ in range(4):
            office.happen()
        office.send()
        receiver.answers.append(say(500))
        office.happen()
        office.send()
        first = office.deliveries.list_for_webhook(hook.id, limit=2)
        rest = office.deliveries.list_for_webhook(hook.id, before=first[-1].id)
        assert [one.id for one in first + rest] == sorted((one.id for one in first + rest), reverse=True)
        assert len(first + rest) == 5
        assert office.states(hook) == [SENT, SENT, SENT, SENT, WAITING]

    def test_a_delivery_can_be_repeated_with_the_same_id(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        office.happen()
        office.send()
        (delivery,) = office.deliveries.list_for_webhook(hook.id)
        again = office.deliveries.redeliver(delivery.id)
        assert (again.state, again.attempts) == (WAITING, 0)
        office.send()
        assert [one.id for one in receiver.got] == [delivery.message] * 2
        assert office.states(hook) == [SENT]

    def test_a_waiting_delivery_can_be_retried_immediately(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        receiver.answers.append(say(500))
        office.happen()
        office.send()
        (delivery,) = office.deliveries.list_for_webhook(hook.id)
        office.deliveries.redeliver(delivery.id)
        office.send()
        assert office.states(hook) == [SENT]

    def test_a_running_delivery_is_not_started_twice(self, office: Office, hook: StoredWebhook) -> None:
        office.happen()
        office.collect()
        (attempt,) = office.deliveries.claim(1)
        office.deliveries.redeliver(attempt.delivery)
        assert office.deliveries.claim(1) == []
        office.deliveries.record_result(attempt, AttemptResult.from_status(200), 0.0)
        assert office.states(hook) == [SENT]

    def test_deliveries_of_a_disabled_webhook_cannot_be_repeated(self, office: Office, hook: StoredWebhook) -> None:
        office.happen()
        office.send()
        office.webhooks.disable(hook.id)
        (delivery,) = office.deliveries.list_for_webhook(hook.id)
        with pytest.raises(StateConflict):
            office.deliveries.redeliver(delivery.id)

    def test_deliveries_are_removed_after_the_retention_time(
        self, office: Office, receiver: Receiver, hook: StoredWebhook
    ) -> None:
        office.happen()
        office.send()
        receiver.answers += [say(500)] * 20
        office.clock.advance(KEEP - TICK)
        office.happen()
        office.send()
        assert office.deliveries.sweep(KEEP) == 0
        office.clock.advance(TICK)
        assert office.deliveries.sweep(KEEP) == 1
        assert office.states(hook) == [WAITING]
        office.clock.advance(KEEP)
        assert office.deliveries.sweep(KEEP) == 0, "what waits is kept"
        office.webhooks.disable(hook.id)
        assert office.deliveries.sweep(KEEP) == 1, "unless nobody sends it"


class TestAStep:
    @pytest.mark.usefixtures("hook")
    def test_a_step_returns_the_delay_until_the_next_delivery_is_due(self, office: Office, receiver: Receiver) -> None:
        office.collect()
        assert office.sender.step() is None
        receiver.answers.append(say(500))
        office.happen()
        office.send()
        assert office.sender.step() == RETRY_DELAYS[0]
        office.clock.advance(RETRY_DELAYS[0])
        office.sender.step()
        office.sender.wait_until_idle()
        assert office.sender.step() is None

    @pytest.mark.usefixtures("hook")
    def test_a_step_waits_if_due_deliveries_cannot_be_started(self, office: Office) -> None:
        for _ in range(5):
            office.happen()
        office.collect()
        assert len(office.deliveries.claim(THREADS)) == MAX_CONCURRENT_ATTEMPTS
        assert office.deliveries.claim(THREADS) == []
        wish = Sender(office.deliveries, office.line).step()
        assert wish is not None
        assert wish >= timedelta(seconds=1)

    @pytest.mark.usefixtures("receiver")
    def test_a_finished_delivery_wakes_the_loop(self, office: Office, hook: StoredWebhook) -> None:
        woken = threading.Event()
        sender = Sender(office.deliveries, office.line, wake=woken.set)
        office.happen()
        office.collect()
        sender.step()
        assert woken.wait(PATIENCE_SECONDS)
        sender.close()
        assert office.states(hook) == [SENT]

    def test_a_step_without_webhooks_does_nothing(self, office: Office) -> None:
        office.happen()
        assert office.sender.step() is None

    def test_a_claim_takes_no_more_deliveries_than_requested(self, office: Office, receiver: Receiver) -> None:
        for number in range(THREADS):
            office.webhooks.create(receiver.url(f"/{number}"), ["*"])
        office.happen()
        office.happen()
        office.collect()
        claimed: list[Attempt] = office.deliveries.claim(3)
        assert len(claimed) == 3
        assert office.deliveries.claim(0) == []
