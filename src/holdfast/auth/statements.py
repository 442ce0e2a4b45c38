"""All statements about keys and idempotent requests."""

from __future__ import annotations

from sqlalchemy import LargeBinary, and_, bindparam, delete, insert, literal_column, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.auth.tables import idempotent_requests, keys
from holdfast.db import LIMIT, NOW, batch, int_param, text_param

_given = {name: text_param(name) for name in ("name", "prefix", "digest", "scope", "bases")}
CREATE_KEY = insert(keys).values(created_at=NOW, expires_at=int_param("expires_at"), **_given).returning(*keys.c)
_valid = and_(keys.c.revoked_at.is_(None), or_(keys.c.expires_at.is_(None), keys.c.expires_at > NOW))
# The prefix finds candidate rows; `KeyRepository.verify` compares digests in constant time.
FIND_KEYS = select(NOW, *keys.c).where(keys.c.prefix == text_param("prefix"), _valid)
READ_KEY = select(*keys.c).where(keys.c.id == int_param("id"))
LIST_KEYS = select(*keys.c).order_by(keys.c.id)
REVOKE_KEY = (
    update(keys)
    .values(revoked_at=NOW)
    .where(keys.c.id == int_param("id"), keys.c.revoked_at.is_(None))
    .returning(*keys.c)
)
SELECT_ANY_KEY = select(keys.c.id).limit(literal_column("1"))
_row = batch(id=int, at=int)
UPDATE_USES = (
    update(keys)
    .values(used_at=_row.c.at)
    .where(keys.c.id == _row.c.id, or_(keys.c.used_at.is_(None), keys.c.used_at <= _row.c.at - int_param("spacing")))
)

_expired = idempotent_requests.c.begun_at <= NOW - int_param("keep")
_abandoned = and_(idempotent_requests.c.status.is_(None), idempotent_requests.c.until <= NOW)
_begun = {"until": NOW + int_param("lease"), "begun_at": NOW, "fingerprint": text_param("fingerprint")}
# One statement, so that of two concurrent requests only one gets the row.
BEGIN_REQUEST = (
    upsert(idempotent_requests)
    .values(caller=int_param("caller"), key=text_param("key"), fence=literal_column("1"), **_begun)
    .on_conflict_do_update(
        index_elements=[idempotent_requests.c.caller, idempotent_requests.c.key],
        set_={**_begun, "fence": idempotent_requests.c.fence + 1, "status": None, "headers": None, "body": None},
        where=or_(_abandoned, _expired),
    )
    .returning(idempotent_requests.c.id, idempotent_requests.c.fence)
)
READ_REQUEST = select(
    idempotent_requests.c.fingerprint,
    idempotent_requests.c.status,
    idempotent_requests.c.headers,
    idempotent_requests.c.body,
).where(idempotent_requests.c.caller == int_param("caller"), idempotent_requests.c.key == text_param("key"))
_is_current_request = and_(
    idempotent_requests.c.id == int_param("id"),
    idempotent_requests.c.fence == int_param("fence"),
    idempotent_requests.c.status.is_(None),
)
FINISH_REQUEST = (
    update(idempotent_requests)
    .values(status=int_param("status"), headers=text_param("headers"), body=bindparam("body", type_=LargeBinary()))
    .where(_is_current_request)
    .returning(idempotent_requests.c.id)
)
RELEASE_REQUEST = delete(idempotent_requests).where(_is_current_request).returning(idempotent_requests.c.id)
DELETE_EXPIRED_REQUESTS = (
    delete(idempotent_requests)
    .where(idempotent_requests.c.id.in_(select(idempotent_requests.c.id).where(_expired).limit(LIMIT)), _expired)
    .returning(idempotent_requests.c.id)
)
