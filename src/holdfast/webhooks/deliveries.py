"""The outbox: what is to be sent to webhooks, and what became of it.

Deliveries come from the log, so an event is sent only after its transaction has committed: whoever is told that a job
has ended may start the next one at once. A webhook's place in the log moves in the transaction that adds its
deliveries, so each event becomes one delivery, whoever crashes or does the same beside us. Sending is at least once:
an attempt is claimed for `LEASE`, and whoever dies between sending and noting leaves it to be sent again, under the
same id.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.clock import Moment, as_datetime, micros
from holdfast.engine import EVERYTHING, Event
from holdfast.engine.store import record
from holdfast.errors import BadSecretKey, NotNow, UnknownDelivery, UnknownWebhook
from holdfast.events import Cursor
from holdfast.webhooks import signing
from holdfast.webhooks import statements as sql
from holdfast.webhooks.delivery import Delivery
from holdfast.webhooks.endpoints import FAILING, GONE, Wanted
from holdfast.webhooks.retry_policy import Answer, DeliveryState, Verdict, decide, hopeless, pause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.db import Database, Transaction
    from holdfast.events import Log, Page, PublicEvent
    from holdfast.webhooks.encryption import SecretCipher

log = logging.getLogger("holdfast")

LEASE = timedelta(seconds=60)  # far longer than an attempt may take
AT_ONCE = 2  # attempts for one webhook, in all processes together
PROBES = 1  # attempts for one webhook while it fails
PAGE = 100  # lines of the log that are looked at for one transaction
SOON = timedelta(seconds=1)
NEWEST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A delivery that is ours to send."""

    delivery: int
    webhook: int
    url: str
    secrets: tuple[str, ...]
    message: str
    body: str
    attempts: int  # with this one
    fence: int
    at: Moment

    @property
    def headers(self) -> dict[str, str]:
        """What proves where it comes from; the time is that of the attempt."""
        return signing.sign(self.secrets, self.message, self.at // 1_000_000, self.body.encode())


class Deliveries:
    """The outbox of one database."""

    def __init__(self, database: Database, log: Log, cipher: SecretCipher) -> None:
        self._database = database
        self._log = log
        self._cipher = cipher

    # ---------------------------------------------------------------- from the log

    def collect(self) -> timedelta | None:
        """Make deliveries of new events; return when there may be more, None if nobody knows."""
        with self._database.reading() as tx:
            cursors: dict[str, list[int]] = defaultdict(list)
            for webhook, cursor in tx.run(sql.CURSORS):
                cursors[cursor].append(webhook)
        wishes = set()
        for cursor, webhooks in cursors.items():
            page = self._page(Cursor.parse(cursor))
            if str(page.cursor) != cursor:
                self._add(cursor, webhooks, page)
            wishes |= {timedelta()} if page.more else {SOON} if page.held else set()
        return min(wishes, default=None)

    def _page(self, cursor: Cursor) -> Page:
        """Read on; where events were removed that nobody has looked at, with the oldest that is left."""
        page = self._log.read(cursor, PAGE)
        if not page.reset:
            return page
        log.warning("webhook.reset cursor=%s", cursor)
        return self._log.read(None, PAGE) if cursor < page.cursor else page

    def _add(self, cursor: str, webhooks: Sequence[int], page: Page) -> None:
        moves = [[webhook, cursor, str(page.cursor)] for webhook in webhooks]

        def work(tx: Transaction) -> None:
            rows = []
            for webhook, types, bases in tx.run(sql.MOVE_CURSOR, moves):
                wanted = Wanted.read(types, bases)
                rows += [_row(webhook, event) for event in page.events if wanted.includes(event.type, event.base)]
            tx.run(sql.ADD_DELIVERIES, rows)

        self._database.write(work, durable=True)

    # ---------------------------------------------------------------- attempts

    def claim(self, limit: int) -> list[Attempt]:
        """Take deliveries that are due, at most so many, and at most `AT_ONCE` of a webhook in all processes."""
        if limit < 1:
            return []
        claimed = self._database.write(lambda tx: _claim(tx, limit), durable=False)
        return [attempt for attempt in map(self._decrypted, claimed) if attempt is not None]

    def _decrypted(self, attempt: Attempt) -> Attempt | None:
        """Return an attempt that can be signed; without its secret it has failed."""
        try:
            return replace(attempt, secrets=tuple(map(self._cipher.decrypt, attempt.secrets)))
        except BadSecretKey as error:
            log.error("webhook.secret_key webhook=%d: %s", attempt.webhook, error)  # noqa: TRY400 - the sentence says it
            self.note(attempt, Answer(reason="secret_key"), 0.0)
            return None

    def note(self, attempt: Attempt, answer: Answer, chance: float) -> None:
        """Write down what came of an attempt; of one that somebody took over, only what it tells of the receiver."""
        decision = decide(answer, attempt.attempts, chance)
        told: dict[str, Any] = {
            "delivery": attempt.delivery,
            "fence": attempt.fence,
            "status": answer.status,
            "reason": answer.reason,
        }

        def work(tx: Transaction) -> str | None:
            if decision.verdict is Verdict.AGAIN:
                tx.run(sql.POSTPONE, wait=micros(decision.wait), **told)
            else:
                state = DeliveryState.SENT if decision.verdict is Verdict.SENT else DeliveryState.FAILED
                tx.run(sql.END_DELIVERY, state=str(state), **told)
            return _judge(tx, attempt.webhook, decision.verdict, answer, chance)

        disabled = self._database.write(work, durable=True)
        log.log(
            logging.DEBUG if decision.verdict is Verdict.SENT else logging.INFO,
            "webhook.%s webhook=%d delivery=%d attempt=%d status=%s reason=%s",
            decision.verdict, attempt.webhook, attempt.delivery, attempt.attempts, answer.status, answer.reason,
        )  # fmt: skip
        if disabled:
            log.warning("webhook.disabled webhook=%d reason=%s", attempt.webhook, disabled)

    def next_due(self) -> timedelta | None:
        """Return how long it is until something is to be sent; None if nothing waits."""
        with self._database.reading() as tx:
            ((now, due),) = tx.run(sql.NEXT_DUE)
        return None if due is None else timedelta(microseconds=max(0, due - now))

    # ---------------------------------------------------------------- for people

    def delivery(self, id_: int) -> Delivery:
        """Read a delivery, or raise `UnknownDelivery`."""
        with self._database.reading() as tx:
            return _read(tx, id_)

    def of(
        self, webhook: int, *, state: DeliveryState | None = None, before: int | None = None, limit: int = 50
    ) -> list[Delivery]:
        """Read the deliveries of a webhook, newest first; `before` is the last of the page before."""
        with self._database.reading() as tx:
            if not tx.run(sql.READ_WEBHOOK, id=webhook):
                raise UnknownWebhook(webhook)
            rows = tx.run(
                sql.LIST_DELIVERIES,
                webhook=webhook,
                before=NEWEST if before is None else before,
                state=None if state is None else str(state),
                limit=limit,
            )
        return [_delivery_of(row) for row in rows]

    def redeliver(self, id_: int) -> Delivery:
        """Send a delivery once more, at once and under the same id, whatever became of it."""

        def work(tx: Transaction) -> Delivery:
            found = _read(tx, id_)
            ((_, *_, disabled_at, _, _, _),) = tx.run(sql.LOCK_WEBHOOK, id=found.webhook)
            if disabled_at is not None:
                raise NotNow("webhook_disabled", "The webhook is disabled; enable it, then deliver once more.")
            tx.run(sql.PROBE_NOW, id=found.webhook)
            tx.run(sql.REDELIVER, delivery=id_)
            return _read(tx, id_)

        return self._database.write(work, durable=True)

    def sweep(self, keep: timedelta, limit: int = 500) -> int:
        """Remove what ended longer ago than `keep`, and what is left of deleted webhooks; return how many."""

        def work(tx: Transaction) -> int:
            sweeps = (sql.SWEEP_OLD, sql.SWEEP_STRANDED, sql.SWEEP_ORPHANED)
            swept = sum(len(tx.run(one, keep=micros(keep), limit=limit)) for one in sweeps)
            tx.run(sql.SWEEP_DELETED)
            tx.run(sql.SWEEP_SECRETS)
            return swept

        return self._database.write(work, durable=False)


def _row(webhook: int, event: PublicEvent) -> list[Any]:
    """Show a delivery to the statement that adds it; what is sent is fixed here."""
    shown = event.shown()
    body = json.dumps({"type": event.type, "timestamp": shown["at"], "data": shown}, ensure_ascii=False)
    return [webhook, event.id, signing.new_message_id(), event.type, event.base, body]


def _claim(tx: Transaction, limit: int) -> list[Attempt]:
    found = tx.run(sql.LOCK_DUE_WEBHOOKS, limit=limit)
    held = dict(tx.run(sql.HELD, [[row[0]] for row in found]))
    attempts: list[Attempt] = []
    for webhook, url, types, bases, failures, *secrets in found:
        most = PROBES if failures else AT_ONCE
        room = min(most - held.get(webhook, 0), limit - len(attempts))
        if room < 1:
            continue
        rows = tx.run(sql.CLAIM, webhook=webhook, limit=room, lease=micros(LEASE))
        wanted = Wanted.read(types, bases)
        # What the webhook no longer wants since it was changed never leaves.
        tx.run(sql.DROP, [[row[0]] for row in rows if not wanted.includes(row[2], row[3])])
        attempts += [
            Attempt(
                delivery=id_,
                webhook=webhook,
                url=url,
                secrets=tuple(secret for secret in secrets if secret is not None),
                message=message,
                body=body,
                attempts=count,
                fence=fence,
                at=at,
            )
            for id_, message, type_, base, body, count, fence, at in rows
            if wanted.includes(type_, base)
        ]
    return attempts


def _judge(tx: Transaction, webhook: int, verdict: Verdict, answer: Answer, chance: float) -> str | None:
    """Count failures in a row and pause the webhook; return why it was disabled, if it was."""
    if verdict is Verdict.SENT:
        tx.run(sql.SUCCEEDED, id=webhook)
        return None
    counted = tx.run(sql.FAILED, id=webhook)
    if counted:
        tx.run(sql.PAUSE_WEBHOOK, id=webhook, wait=micros(pause(answer, counted[0][0], chance)))
    reason = GONE if verdict is Verdict.GONE else FAILING if counted and hopeless(*counted[0]) else None
    if reason is None or not tx.run(sql.DISABLE_WEBHOOK, id=webhook, reason=reason):
        return None
    record(tx, [Event("webhook.disabled", EVERYTHING, "", data=json.dumps({"webhook": webhook, "reason": reason}))])
    return reason


def _read(tx: Transaction, id_: int) -> Delivery:
    rows = tx.run(sql.READ_DELIVERY, delivery=id_)
    if not rows:
        raise UnknownDelivery(id_)
    return _delivery_of(rows[0])


def _delivery_of(row: Sequence[Any]) -> Delivery:
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
