"""Every statement about keys and repeated requests."""

from __future__ import annotations

from sqlalchemy import LargeBinary, and_, bindparam, delete, insert, literal_column, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.auth.tables import keys, repeats
from holdfast.db import LIMIT, NOW, batch, number, word

# ---------------------------------------------------------------- keys

_given = {name: word(name) for name in ("name", "prefix", "digest", "scope", "bases")}
CREATE_KEY = insert(keys).values(created_at=NOW, expires_at=number("expires_at"), **_given).returning(*keys.c)
_valid = and_(keys.c.revoked_at.is_(None), or_(keys.c.expires_at.is_(None), keys.c.expires_at > NOW))
# The shown part of the secret finds the row; whether it is the key is decided by comparing in constant time.
FIND_KEYS = select(NOW, *keys.c).where(keys.c.prefix == word("prefix"), _valid)
READ_KEY = select(*keys.c).where(keys.c.id == number("id"))
LIST_KEYS = select(*keys.c).order_by(keys.c.id)
REVOKE_KEY = (
    update(keys).values(revoked_at=NOW).where(keys.c.id == number("id"), keys.c.revoked_at.is_(None)).returning(*keys.c)
)
ANY_KEY = select(keys.c.id).limit(literal_column("1"))
_row = batch(id=int, at=int)
NOTE_USES = (
    update(keys)
    .values(used_at=_row.c.at)
    .where(keys.c.id == _row.c.id, or_(keys.c.used_at.is_(None), keys.c.used_at <= _row.c.at - number("spacing")))
)

# ---------------------------------------------------------------- repeated requests

_expired = repeats.c.begun_at <= NOW - number("keep")
_abandoned = and_(repeats.c.status.is_(None), repeats.c.until <= NOW)
_begun = {"until": NOW + number("lease"), "begun_at": NOW, "fingerprint": word("fingerprint")}
# One statement, so that of two at the same moment one inserts, and the other finds a row that is not free.
BEGIN = (
    upsert(repeats)
    .values(caller=number("caller"), key=word("key"), fence=literal_column("1"), **_begun)
    .on_conflict_do_update(
        index_elements=[repeats.c.caller, repeats.c.key],
        set_={**_begun, "fence": repeats.c.fence + 1, "status": None, "headers": None, "body": None},
        where=or_(_abandoned, _expired),
    )
    .returning(repeats.c.id, repeats.c.fence)
)
READ_REPEAT = select(repeats.c.fingerprint, repeats.c.status, repeats.c.headers, repeats.c.body).where(
    repeats.c.caller == number("caller"), repeats.c.key == word("key")
)
_mine = and_(repeats.c.id == number("id"), repeats.c.fence == number("fence"), repeats.c.status.is_(None))
FINISH = (
    update(repeats)
    .values(status=number("status"), headers=word("headers"), body=bindparam("body", type_=LargeBinary()))
    .where(_mine)
    .returning(repeats.c.id)
)
RENEW = update(repeats).values(until=NOW + number("lease")).where(_mine).returning(repeats.c.id)
RELEASE = delete(repeats).where(_mine).returning(repeats.c.id)
SWEEP_REPEATS = (
    delete(repeats)
    .where(repeats.c.id.in_(select(repeats.c.id).where(_expired).limit(LIMIT)), _expired)
    .returning(repeats.c.id)
)
