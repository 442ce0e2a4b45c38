"""All statements about webhooks and their deliveries.

A transaction that claims or records an attempt locks the webhook first. This enforces the limit of concurrent attempts
per webhook across processes; on SQLite all writers run one after the other anyway.
"""

from __future__ import annotations

from sqlalchemy import and_, case, delete, func, insert, literal_column, null, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.db import LIMIT, NOW, batch, int_param, text_param
from holdfast.webhooks.tables import deliveries, webhooks

_is_this_webhook = and_(webhooks.c.id == int_param("id"), webhooks.c.deleted_at.is_(None))
_enabled = and_(webhooks.c.disabled_at.is_(None), webhooks.c.deleted_at.is_(None))
_waiting = deliveries.c.state == literal_column("'waiting'")  # a literal, so that partial indexes apply
_of_webhook = deliveries.c.webhook_id == webhooks.c.id
_due_webhook = or_(webhooks.c.retry_at.is_(None), webhooks.c.retry_at <= NOW)

WEBHOOK_COLUMNS = (
    webhooks.c.id, webhooks.c.url, webhooks.c.types, webhooks.c.bases, webhooks.c.created_at, webhooks.c.failures,
    webhooks.c.failing_since, webhooks.c.retry_at, webhooks.c.disabled_at, webhooks.c.disabled_reason,
    select(func.count()).where(_of_webhook, _waiting).correlate(webhooks).scalar_subquery(),
)  # fmt: skip

CREATE_WEBHOOK = (
    insert(webhooks)
    .values(created_at=NOW, **{name: text_param(name) for name in ("url", "types", "bases", "cursor", "secret")})
    .returning(webhooks.c.id)
)
READ_WEBHOOK = select(*WEBHOOK_COLUMNS).where(_is_this_webhook)
LOCK_WEBHOOK = select(webhooks.c.disabled_at).where(_is_this_webhook).with_for_update()
LIST_WEBHOOKS = select(*WEBHOOK_COLUMNS).where(webhooks.c.deleted_at.is_(None)).order_by(webhooks.c.id)
DISABLE_WEBHOOK = (
    update(webhooks)
    .values(disabled_at=NOW, disabled_reason=text_param("reason"))
    .where(_is_this_webhook, webhooks.c.disabled_at.is_(None))
    .returning(webhooks.c.id)
)
ENABLE_WEBHOOK = (
    update(webhooks)
    .values(
        disabled_at=None,
        disabled_reason=None,
        failures=0,
        failing_since=None,
        retry_at=None,
        cursor=text_param("cursor"),
    )
    .where(_is_this_webhook, webhooks.c.disabled_at.is_not(None))
)
DELETE_WEBHOOK = (
    update(webhooks)
    .values(deleted_at=NOW, url="", secret="", old_secret=None, old_until=None)
    .where(_is_this_webhook)
    .returning(webhooks.c.id)
)
ROTATE_SECRET = (
    update(webhooks)
    .values(secret=text_param("secret"), old_secret=webhooks.c.secret, old_until=NOW + int_param("overlap"))
    .where(_is_this_webhook)
    .returning(webhooks.c.id)
)
SELECT_SECRETS = (
    select(webhooks.c.id, webhooks.c.secret, webhooks.c.old_secret)
    .where(webhooks.c.deleted_at.is_(None))
    .order_by(webhooks.c.id)
)
SET_SECRETS = (
    update(webhooks).values(secret=text_param("secret"), old_secret=text_param("old_secret")).where(_is_this_webhook)
)
RESET_FAILURES = (
    update(webhooks)
    .values(failures=0, failing_since=None, retry_at=None)
    .where(_is_this_webhook, webhooks.c.failures > 0)
)
COUNT_FAILURE = (
    update(webhooks)
    .values(failures=webhooks.c.failures + 1, failing_since=func.coalesce(webhooks.c.failing_since, NOW))
    .where(_is_this_webhook)
    .returning(webhooks.c.failures, webhooks.c.failing_since, NOW)
)
# Concurrent attempts fail together: only the first failure lengthens the pause.
PAUSE_WEBHOOK = update(webhooks).values(retry_at=NOW + int_param("wait")).where(_is_this_webhook, _due_webhook)
PROBE_NOW = update(webhooks).values(retry_at=NOW).where(_is_this_webhook, ~_due_webhook)

SELECT_CURSORS = select(webhooks.c.id, webhooks.c.cursor).where(_enabled).order_by(webhooks.c.id)
_row = batch(id=int, before=str, after=str)
# The process that moves the cursor adds the deliveries in the same transaction. Another process that read the same
# events finds the cursor moved and adds none.
MOVE_CURSOR = (
    update(webhooks)
    .values(cursor=_row.c.after)
    .where(webhooks.c.id == _row.c.id, webhooks.c.cursor == _row.c.before, _enabled)
    .returning(webhooks.c.id, webhooks.c.types, webhooks.c.bases)
)
_row = batch(webhook_id=int, event=str, message=str, type=str, base=str, body=str)
ADD_DELIVERIES = (
    upsert(deliveries)
    .from_select(
        ["state", "next_at", "created_at", *_row.c.keys()],
        select(literal_column("'waiting'"), NOW, NOW, *_row.c).where(literal_column("true")),
    )
    .on_conflict_do_nothing()
)

_free = or_(deliveries.c.until.is_(None), deliveries.c.until <= NOW)
_due = and_(_waiting, deliveries.c.next_at <= NOW, _free)
_first_due = select(func.min(deliveries.c.next_at)).where(_of_webhook, _due).correlate(webhooks).scalar_subquery()
LOCK_DUE_WEBHOOKS = (
    select(
        webhooks.c.id,
        webhooks.c.url,
        webhooks.c.failures,
        webhooks.c.secret,
        case((webhooks.c.old_until > NOW, webhooks.c.old_secret), else_=null()),
    )
    .where(_enabled, _due_webhook, select(deliveries.c.id).where(_of_webhook, _due).exists())
    .order_by(_first_due, webhooks.c.id)
    .limit(LIMIT)
    .with_for_update(skip_locked=True)
)
_row = batch(id=int)
# Read after the lock, so that claims of other processes are counted.
COUNT_CLAIMED_DELIVERIES = (
    select(deliveries.c.webhook_id, func.count())
    .where(deliveries.c.webhook_id.in_(select(_row.c.id)), deliveries.c.until.is_not(None), deliveries.c.until > NOW)
    .group_by(deliveries.c.webhook_id)
)
_next = (
    select(deliveries.c.id)
    .where(deliveries.c.webhook_id == int_param("webhook"), _due)
    .order_by(deliveries.c.next_at, deliveries.c.id)
    .limit(LIMIT)
)
CLAIM_DELIVERIES = (
    update(deliveries)
    .values(
        attempts=deliveries.c.attempts + 1,
        fence=deliveries.c.fence + 1,
        until=NOW + int_param("lease"),
        tried_at=NOW,
    )
    .where(deliveries.c.id.in_(_next))
    .returning(
        deliveries.c.id, deliveries.c.message, deliveries.c.body, deliveries.c.attempts, deliveries.c.fence,
        deliveries.c.tried_at,
    )
)  # fmt: skip
_is_current_attempt = and_(deliveries.c.id == int_param("delivery"), deliveries.c.fence == int_param("fence"), _waiting)
END_DELIVERY = (
    update(deliveries)
    .values(
        state=text_param("state"),
        status=int_param("status"),
        reason=text_param("reason"),
        until=None,
        next_at=None,
        ended_at=NOW,
    )
    .where(_is_current_attempt)
    .returning(deliveries.c.id)
)
POSTPONE_DELIVERY = (
    update(deliveries)
    .values(status=int_param("status"), reason=text_param("reason"), until=None, next_at=NOW + int_param("wait"))
    .where(_is_current_attempt)
    .returning(deliveries.c.id)
)
_later = case((deliveries.c.until > deliveries.c.next_at, deliveries.c.until), else_=deliveries.c.next_at)
_when = case((webhooks.c.retry_at > _later, webhooks.c.retry_at), else_=_later)
SELECT_NEXT_DUE = (
    select(NOW, func.min(_when)).select_from(webhooks.join(deliveries, _of_webhook)).where(_enabled, _waiting)
)

_columns = (
    deliveries.c.id, deliveries.c.webhook_id, deliveries.c.event, deliveries.c.message, deliveries.c.type,
    deliveries.c.state, deliveries.c.attempts, deliveries.c.status, deliveries.c.reason,
    deliveries.c.created_at, deliveries.c.tried_at, deliveries.c.next_at, deliveries.c.ended_at,
)  # fmt: skip
_visible_deliveries = select(*_columns).select_from(
    deliveries.join(webhooks, and_(webhooks.c.id == deliveries.c.webhook_id, webhooks.c.deleted_at.is_(None)))
)
READ_DELIVERY = _visible_deliveries.where(deliveries.c.id == int_param("delivery"))
LIST_DELIVERIES = (
    _visible_deliveries.where(
        deliveries.c.webhook_id == int_param("webhook"),
        deliveries.c.id < int_param("before"),
    )
    .order_by(deliveries.c.id.desc())
    .limit(LIMIT)
)
REQUEUE_DELIVERY = (
    update(deliveries)
    .values(state="waiting", next_at=NOW, ended_at=None, until=None, attempts=0)
    .where(deliveries.c.id == int_param("delivery"), _free)
    .returning(deliveries.c.id)
)

_old = select(deliveries.c.id).where(
    deliveries.c.ended_at.is_not(None), deliveries.c.ended_at <= NOW - int_param("keep")
)
_disabled = select(webhooks.c.id).where(webhooks.c.disabled_at.is_not(None))
_stranded = select(deliveries.c.id).where(
    _waiting, deliveries.c.webhook_id.in_(_disabled), deliveries.c.created_at <= NOW - int_param("keep")
)
_deleted = select(webhooks.c.id).where(webhooks.c.deleted_at.is_not(None))
_orphaned = select(deliveries.c.id).where(deliveries.c.webhook_id.in_(_deleted))
DELETE_ENDED_DELIVERIES = delete(deliveries).where(deliveries.c.id.in_(_old.limit(LIMIT))).returning(deliveries.c.id)
DELETE_STRANDED_DELIVERIES = (
    delete(deliveries).where(deliveries.c.id.in_(_stranded.limit(LIMIT))).returning(deliveries.c.id)
)
DELETE_ORPHANED_DELIVERIES = (
    delete(deliveries).where(deliveries.c.id.in_(_orphaned.limit(LIMIT))).returning(deliveries.c.id)
)
DELETE_REMOVED_WEBHOOKS = delete(webhooks).where(
    webhooks.c.deleted_at.is_not(None),
    ~select(deliveries.c.id).where(deliveries.c.webhook_id == webhooks.c.id).exists(),
)
CLEAR_EXPIRED_SECRETS = update(webhooks).values(old_secret=None, old_until=None).where(webhooks.c.old_until <= NOW)
