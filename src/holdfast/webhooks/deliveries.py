"""The transactional outbox of webhooks: deliveries to send, and their results.

Deliveries are made from the event log, so an event is sent only after its transaction has committed: a receiver that
learns that a job has ended can start the next one at once. The transaction that adds deliveries also moves the
webhook's cursor in the log, so each event becomes exactly one delivery, despite crashes and concurrent processes.
Sending is at least once: an attempt is claimed for `LEASE`. If its process dies before it records the result, another
process sends the message again, with the same message id.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.clock import Moment, as_datetime, micros
from holdfast.engine import WHOLE_QUEUE, Event, Total
from holdfast.engine.store import add_increments, record_events
from holdfast.errors import BadSecretKey, StateConflict, UnknownDelivery, UnknownWebhook
from holdfast.events import Cursor
from holdfast.webhooks import signing
from holdfast.webhooks import statements as sql
from holdfast.webhooks.delivery import Delivery
from holdfast.webhooks.endpoints import DISABLED_FAILING, DISABLED_GONE, WebhookFilter
from holdfast.webhooks.retry_policy import (
    AttemptOutcome,
    AttemptResult,
    DeliveryState,
    decide_retry,
    pause_after_failure,
    should_disable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.db import Database, Transaction
    from holdfast.events import EventLog, LogPage, PublicEvent
    from holdfast.webhooks.encryption import SecretCipher

log = logging.getLogger("holdfast")

LEASE = timedelta(seconds=60)  # far longer than the timeout of an attempt
MAX_CONCURRENT_ATTEMPTS = 2  # attempts for one webhook, in all processes together
MAX_CONCURRENT_PROBES = 1  # attempts for one webhook while it fails
LOG_PAGE_SIZE = 100  # lines of the log read for one transaction
UNREADABLE_RETRY_DELAY = timedelta(seconds=1)
MAX_DELIVERY_ID = 2**62
WEBHOOK_FAILURES = Total("webhook_failures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A claimed delivery, with everything that is needed to send it."""

    delivery: int
    webhook: int
    url: str
    secrets: tuple[str, ...]
    message_id: str
    body: str
    attempt_number: int  # 1 for the first
    fence: int
    claimed_at: Moment

    @property
    def headers(self) -> dict[str, str]:
        """The signature headers; their timestamp is the time of the claim."""
        return signing.sign(self.secrets, self.message_id, self.claimed_at // 1_000_000, self.body.encode())


class DeliveryOutbox:
    def __init__(self, database: Database, log: EventLog, cipher: SecretCipher) -> None:
        self._database = database
        self._log = log
        self._cipher = cipher

    def collect_events(self) -> timedelta | None:
        """Add deliveries for new events.

        Returns the time until more events may be readable; None: not before the next commit.
        """
        with self._database.reading() as tx:
            cursors: dict[str, list[int]] = defaultdict(list)
            for webhook, cursor in tx.run(sql.SELECT_CURSORS):
                cursors[cursor].append(webhook)
        delays = set()
        for cursor, webhooks in cursors.items():
            page = self._read_log(Cursor.parse(cursor))
            if str(page.cursor) != cursor:
                self._add_deliveries(cursor, webhooks, page)
            delays |= {timedelta()} if page.has_more else {UNREADABLE_RETRY_DELAY} if page.has_unreadable else set()
        return min(delays, default=None)

    def _read_log(self, cursor: Cursor) -> LogPage:
        """Read the next page. If retention removed unread events, continue with the oldest that is left."""
        page = self._log.read(cursor, LOG_PAGE_SIZE)
        if not page.reset:
            return page
        log.warning("webhook.events_lost cursor=%s", cursor)
        return self._log.read(None, LOG_PAGE_SIZE) if cursor < page.cursor else page

    def _add_deliveries(self, cursor: str, webhooks: Sequence[int], page: LogPage) -> None:
        moves = [[webhook, cursor, str(page.cursor)] for webhook in webhooks]

        def work(tx: Transaction) -> None:
            rows = []
            for webhook, types, bases in tx.run(sql.MOVE_CURSOR, moves):
                filter_ = WebhookFilter.from_columns(types, bases)
                matching = (event for event in page.events if filter_.matches(event.type, event.base))
                rows += [_make_delivery_row(webhook, event) for event in matching]
            tx.run(sql.ADD_DELIVERIES, rows)

        self._database.write(work, durable=True)

    def claim(self, limit: int) -> list[Attempt]:
        """Claim at most `limit` due deliveries; of one webhook at most `MAX_CONCURRENT_ATTEMPTS` in all processes."""
        if limit < 1:
            return []
        claimed = self._database.write(lambda tx: _claim_due(tx, limit), durable=False)
        return [attempt for attempt in map(self._decrypt_secrets, claimed) if attempt is not None]

    def _decrypt_secrets(self, attempt: Attempt) -> Attempt | None:
        """Return the attempt with readable secrets. If they cannot be decrypted, record a failure and return None."""
        try:
            return replace(attempt, secrets=tuple(map(self._cipher.decrypt, attempt.secrets)))
        except BadSecretKey as error:
            log.error("webhook.secret_key webhook=%d error=%s", attempt.webhook, error)  # noqa: TRY400 - no trace is needed
            self.record_result(attempt, AttemptResult(reason="secret_key"), 0.0)
            return None

    def record_result(self, attempt: Attempt, answer: AttemptResult, chance: float) -> None:
        """Record the result of an attempt.

        If another process has taken the delivery over, only the health of the webhook is updated.
        """
        decision = decide_retry(answer, attempt.attempt_number, chance)
        columns: dict[str, Any] = {
            "delivery": attempt.delivery,
            "fence": attempt.fence,
            "status": answer.status,
            "reason": answer.reason,
        }

        def work(tx: Transaction) -> str | None:
            if decision.outcome is AttemptOutcome.RETRY:
                tx.run(sql.POSTPONE_DELIVERY, wait=micros(decision.delay), **columns)
            else:
                state = DeliveryState.SENT if decision.outcome is AttemptOutcome.SENT else DeliveryState.FAILED
                tx.run(sql.END_DELIVERY, state=str(state), **columns)
            if decision.outcome is not AttemptOutcome.SENT:
                add_increments(tx, {WEBHOOK_FAILURES: 1.0})
            return _update_webhook_health(tx, attempt.webhook, decision.outcome, answer, chance)

        disabled = self._database.write(work, durable=True)
        log.log(
            logging.DEBUG if decision.outcome is AttemptOutcome.SENT else logging.INFO,
            "webhook.attempted outcome=%s webhook=%d delivery=%d attempt=%d status=%s reason=%s",
            decision.outcome, attempt.webhook, attempt.delivery, attempt.attempt_number, answer.status, answer.reason,
        )  # fmt: skip
        if disabled:
            log.warning("webhook.disabled webhook=%d reason=%s", attempt.webhook, disabled)

    def delay_until_due(self) -> timedelta | None:
        """Return the time until the next delivery is due; None if none waits."""
        with self._database.reading() as tx:
            ((now, due),) = tx.run(sql.SELECT_NEXT_DUE)
        return None if due is None else timedelta(microseconds=max(0, due - now))

    def list_for_webhook(self, webhook: int, *, before: int | None = None, limit: int = 50) -> list[Delivery]:
        """Return deliveries of a webhook, newest first; `before` is the last id of the previous page."""
        with self._database.reading() as tx:
            if not tx.run(sql.READ_WEBHOOK, id=webhook):
                raise UnknownWebhook(webhook)
            rows = tx.run(
                sql.LIST_DELIVERIES,
                webhook=webhook,
                before=MAX_DELIVERY_ID if before is None else before,
                limit=limit,
            )
        return [_row_to_delivery(row) for row in rows]

    def redeliver(self, id_: int) -> Delivery:
        """Queue a delivery for an immediate attempt with the same message id, whatever its state.

        A delivery that is being sent at this moment stays as it is.
        """

        def work(tx: Transaction) -> Delivery:
            delivery = _read_delivery(tx, id_)
            ((disabled_at,),) = tx.run(sql.LOCK_WEBHOOK, id=delivery.webhook)
            if disabled_at is not None:
                raise StateConflict("webhook_disabled", webhook=delivery.webhook)
            tx.run(sql.PROBE_NOW, id=delivery.webhook)
            tx.run(sql.REQUEUE_DELIVERY, delivery=id_)
            return _read_delivery(tx, id_)

        return self._database.write(work, durable=True)

    def sweep(self, keep: timedelta, limit: int = 500) -> int:
        """Remove deliveries that ended longer ago than `keep`, and the rows of deleted webhooks.

        Returns the number of removed deliveries.
        """

        def work(tx: Transaction) -> int:
            statements = (sql.DELETE_ENDED_DELIVERIES, sql.DELETE_STRANDED_DELIVERIES, sql.DELETE_ORPHANED_DELIVERIES)
            removed = sum(len(tx.run(statement, keep=micros(keep), limit=limit)) for statement in statements)
            tx.run(sql.DELETE_REMOVED_WEBHOOKS)
            tx.run(sql.CLEAR_EXPIRED_SECRETS)
            return removed

        return self._database.write(work, durable=False)


def _make_delivery_row(webhook: int, event: PublicEvent) -> list[Any]:
    """Return the row of a delivery. Its body is fixed here and the same at each attempt."""
    data = event.to_dict()
    body = json.dumps({"type": event.type, "timestamp": data["at"], "data": data}, ensure_ascii=False)
    return [webhook, event.id, signing.new_message_id(), event.type, event.base, body]


def _claim_due(tx: Transaction, limit: int) -> list[Attempt]:
    webhooks = tx.run(sql.LOCK_DUE_WEBHOOKS, limit=limit)
    claimed = dict(tx.run(sql.COUNT_CLAIMED_DELIVERIES, [[row[0]] for row in webhooks]))
    attempts: list[Attempt] = []
    for webhook, url, failures, *secrets in webhooks:
        allowed = MAX_CONCURRENT_PROBES if failures else MAX_CONCURRENT_ATTEMPTS
        room = min(allowed - claimed.get(webhook, 0), limit - len(attempts))
        if room < 1:
            continue
        attempts += [
            Attempt(
                delivery=id_,
                webhook=webhook,
                url=url,
                secrets=tuple(secret for secret in secrets if secret is not None),
                message_id=message_id,
                body=body,
                attempt_number=attempt_number,
                fence=fence,
                claimed_at=claimed_at,
            )
            for id_, message_id, body, attempt_number, fence, claimed_at in tx.run(
                sql.CLAIM_DELIVERIES, webhook=webhook, limit=room, lease=micros(LEASE)
            )
        ]
    return attempts


def _update_webhook_health(
    tx: Transaction, webhook: int, outcome: AttemptOutcome, answer: AttemptResult, chance: float
) -> str | None:
    """Count consecutive failures and pause the webhook; return the reason if this disables it."""
    if outcome is AttemptOutcome.SENT:
        tx.run(sql.RESET_FAILURES, id=webhook)
        return None
    counted = tx.run(sql.COUNT_FAILURE, id=webhook)
    if counted:
        tx.run(sql.PAUSE_WEBHOOK, id=webhook, wait=micros(pause_after_failure(answer, counted[0][0], chance)))
    reason = (
        DISABLED_GONE
        if outcome is AttemptOutcome.GONE
        else DISABLED_FAILING
        if counted and should_disable(*counted[0])
        else None
    )
    if reason is None or not tx.run(sql.DISABLE_WEBHOOK, id=webhook, reason=reason):
        return None
    record_events(
        tx, [Event("webhook.disabled", WHOLE_QUEUE, "", data=json.dumps({"webhook": webhook, "reason": reason}))]
    )
    return reason


def _read_delivery(tx: Transaction, id_: int) -> Delivery:
    rows = tx.run(sql.READ_DELIVERY, delivery=id_)
    if not rows:
        raise UnknownDelivery(id_)
    return _row_to_delivery(rows[0])


def _row_to_delivery(row: Sequence[Any]) -> Delivery:
    id_, webhook, event, message, type_, state, attempts, status, reason, created, tried, next_at, ended = row
    return Delivery(
        id=id_,
        webhook=webhook,
        event=event,
        message=message,
        type=type_,
        state=state,
        attempts=attempts,
        status=status,
        reason=reason,
        created_at=as_datetime(created),
        tried_at=as_datetime(tried),
        next_at=as_datetime(next_at),
        ended_at=as_datetime(ended),
    )
