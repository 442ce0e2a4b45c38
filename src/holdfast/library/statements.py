"""Every statement about recipes, builds, chunks, memos and the ledger.

`SERVED` is the promise to whoever searches: what it does not return is not shown.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Text,
    and_,
    case,
    cast,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.core.states import ACTIVE
from holdfast.library.item_statements import OPEN, VISIBLE
from holdfast.library.tables import (
    bases,
    builds,
    chunks,
    condemned,
    files,
    items,
    ledger,
    lists,
    memo_holds,
    memo_uses,
    memos,
    missing,
    recipes,
)
from holdfast.stores.batch import LIMIT, NOW, batch, number, word
from holdfast.stores.tables import owners, slots

Condition = ColumnElement[bool]


# Literal, so that partial indexes see it.
STANDS = chunks.c.doomed == literal_column("0")
DOOMED = chunks.c.doomed == literal_column("1")

# ---------------------------------------------------------------- recipes

_row = batch(base=str, kind=str, spec=str)
KEEP_RECIPE = (
    upsert(recipes).from_select(["created_at", *_row.c.keys()], select(NOW, *_row.c).where(literal_column("true")))
).on_conflict_do_nothing()
READ_RECIPES = (
    select(recipes.c.id, recipes.c.spec)
    .where(recipes.c.base == word("base"), recipes.c.kind == word("kind"))
    .order_by(recipes.c.id.desc())
)
LIVE_RECIPES = READ_RECIPES.where(recipes.c.doomed_at.is_(None))
RECIPES_OF = select(recipes.c.kind, recipes.c.id, recipes.c.spec).where(recipes.c.base == word("base"))
KNOWN_RECIPE = select(recipes.c.id).where(recipes.c.id == number("recipe"))
SPEC_OF_RECIPE = select(recipes.c.spec).where(recipes.c.id == number("recipe"))
_by_it = select(slots.c.id).where(slots.c.recipe == recipes.c.id, slots.c.built > 0).exists()
USED_RECIPES = select(recipes.c.kind, recipes.c.spec).where(recipes.c.base == word("base"), _by_it)
# Of a base that is being deleted, when nobody is left who could make rows by it.
REMOVE_LAST_RECIPE = delete(recipes).where(
    recipes.c.id == number("recipe"), ~select(owners.c.id).where(owners.c.base == recipes.c.base).exists()
)
ALL_RECIPES = select(recipes.c.base, recipes.c.kind, recipes.c.id, recipes.c.spec).order_by(recipes.c.id)

# Only a slot at work can bring a recipe into use, and it looked for the recipe after it was claimed. So what is doomed,
# unserved and without such a slot, all in one look, stays so.
_idle = ~(
    select(slots.c.id)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(owners.c.base == recipes.c.base, slots.c.kind == recipes.c.kind)
    .where(slots.c.state.in_([literal_column(f"'{state}'") for state in sorted(ACTIVE)]))
    .exists()
)
_unserved = ~select(slots.c.id).where(slots.c.recipe == recipes.c.id).exists()
_unneeded = and_(recipes.c.id == number("recipe"), _unserved, _idle)
_long_doomed = recipes.c.doomed_at <= NOW - number("since")
DOOM_RECIPE = (
    update(recipes).values(doomed_at=NOW).where(_unneeded, recipes.c.doomed_at.is_(None)).returning(recipes.c.id)
)
UNUSED_RECIPE = select(recipes.c.id).where(_unneeded, _long_doomed)
REMOVE_RECIPE = delete(recipes).where(_unneeded, _long_doomed)

# ---------------------------------------------------------------- files that no row names

HOLD_BASES = select(bases.c.id).order_by(bases.c.id).with_for_update(key_share=True)
_row = batch(name=str)
NAMED_BLOBS = select(items.c.blob).where(items.c.blob.in_(select(_row.c.name)))
_row = batch(name=str)
CONDEMN = (
    upsert(condemned)
    .from_select(["at", "name"], select(NOW, _row.c.name).where(literal_column("true")))
    .on_conflict_do_nothing()
)
_row = batch(name=str)
CONDEMNED = select(condemned.c.name).where(condemned.c.name.in_(select(_row.c.name)))

_row = batch(id=str)
RECORD_FILES = insert(files).from_select(
    ["holder", "due_at", "id"], select(word("holder"), NOW + number("lease"), _row.c.id)
)
_being_written_to = files.c.name.is_(None)
_row = batch(id=str)
RENEW_FILES = (
    update(files)
    .values(due_at=NOW + number("lease"))
    .where(files.c.id.in_(select(_row.c.id)), _being_written_to)
    .returning(files.c.id)
)
_row = batch(id=str)
NAME_FILES = delete(files).where(files.c.id.in_(select(_row.c.id)), _being_written_to).returning(files.c.id)
_row = batch(id=str, name=str)
REMOVE_FILES_LATER = insert(files).from_select(
    ["holder", "due_at", *_row.c.keys()], select(word("holder"), NOW + number("lease"), *_row.c)
)
FILE_RECORDS = select(files.c.id, files.c.name, files.c.holder, files.c.due_at <= NOW).order_by(files.c.id)
_row = batch(id=str, holder=str)
GIVE_UP_FILES = (
    update(files)
    .values(name=literal_column("''"))
    .where(files.c.id == _row.c.id, files.c.holder == _row.c.holder, _being_written_to)
    .where(or_(files.c.due_at <= NOW, number("dead") == literal_column("1")))
    .returning(files.c.id)
)
_row = batch(id=str)
FORGET_FILES = delete(files).where(files.c.id.in_(select(_row.c.id)))

# ---------------------------------------------------------------- builds: lists of chunks

_row = batch(owner_id=int, digest=str)
KNOWN_CHUNKS = select(chunks.c.owner_id, chunks.c.digest, chunks.c.id).select_from(
    chunks.join(_row, and_(chunks.c.owner_id == _row.c.owner_id, chunks.c.digest == _row.c.digest, STANDS))
)
_row = batch(owner_id=int, digest=str, headings=str, text=str, opening=int)
CREATE_CHUNKS = (
    insert(chunks)
    .from_select([*_row.c.keys()], select(*_row.c))
    .returning(chunks.c.owner_id, chunks.c.digest, chunks.c.id)
)
_row = batch(owner_id=int, chunk_id=int, build=int, ordinal=int, start=int, body=int, stop=int)
LIST_CHUNKS = insert(lists).from_select([*_row.c.keys()], select(*_row.c))
_row = batch(owner_id=int, build=int, title=str, pages=str, facts=str, length=int)
BEGIN_BUILD = insert(builds).from_select([*_row.c.keys()], select(*_row.c))

_in_build = and_(lists.c.owner_id == number("owner_id"), lists.c.build == number("build"))
_row = batch(owner_id=int, build=int)
READ_LISTS = select(lists.c.owner_id, lists.c.chunk_id, lists.c.ordinal).select_from(
    lists.join(_row, and_(lists.c.owner_id == _row.c.owner_id, lists.c.build == _row.c.build))
)
READ_BUILD = select(builds).where(builds.c.owner_id == number("owner_id"), builds.c.build == number("build"))
PASSAGES = (
    select(chunks.c.id, lists.c.ordinal, lists.c.start, lists.c.body, lists.c.stop, chunks.c.headings, chunks.c.text)
    .select_from(lists.join(chunks, chunks.c.id == lists.c.chunk_id))
    .where(_in_build, lists.c.ordinal >= number("first"))
    .order_by(lists.c.ordinal)
    .limit(LIMIT)
)
_row = batch(id=int)
READ_CHUNKS = select(chunks.c.id, chunks.c.headings, chunks.c.text, chunks.c.opening).select_from(
    chunks.join(_row, chunks.c.id == _row.c.id)
)
# All chunks of some owners, in two statements: each reads one of the two partial indexes that begin with the owner.
_row = batch(owner_id=int)
_own = select(chunks.c.id, chunks.c.owner_id, owners.c.base).select_from(
    _row.join(owners, owners.c.id == _row.c.owner_id).join(chunks, chunks.c.owner_id == owners.c.id)
)
OWN_CHUNKS = (_own.where(STANDS), _own.where(DOOMED))

_of_base = chunks.join(owners, owners.c.id == chunks.c.owner_id)
COUNT_CHUNKS = select(func.count()).select_from(_of_base).where(owners.c.base == word("base"), STANDS)
CHUNKS_OF_BASE = (
    select(chunks.c.id, chunks.c.owner_id)
    .select_from(_of_base)
    .where(owners.c.base == word("base"), STANDS)
    .order_by(chunks.c.id)
)
_row = batch(owner=str)
CHUNKS_OF_DOCUMENTS = (
    select(chunks.c.id)
    .select_from(_of_base.join(_row, owners.c.owner == _row.c.owner))
    .where(owners.c.base == word("base"), STANDS)
)
_row = batch(id=int)
OWNERS_OF = select(chunks.c.id, chunks.c.owner_id).select_from(chunks.join(_row, chunks.c.id == _row.c.id))

# ---------------------------------------------------------------- what may be shown


def serves(slot: Any) -> Condition:
    """Hold when this slot shows something: a generation was published, and it is not being deleted."""
    return and_(slot.c.built > 0, slot.c.state != literal_column("'deleting'"))


# An owner that is no document has a name that is no number, and a plan may look at it before it knows.
_is_number = func.substr(owners.c.owner, 1, 1).in_([literal_column(f"'{digit}'") for digit in range(10)])
_item_id = case((_is_number, cast(owners.c.owner, BigInteger)))

_row = batch(chunk=int)
_owned = batch(chunk=int, owner_id=int)


def _if_served(proposed: Any, chunk: Any, owner: Any, *columns: Any) -> Any:
    """Read something of chunks that may be shown; how they are proposed and what is asked changes nothing about who is.

    `proposed` are chunks and their owners. That a list of this owner has the chunk says that it is theirs.
    """
    lacks = select(missing.c.chunk_id).where(missing.c.slot_id == slots.c.id, missing.c.chunk_id == chunk).exists()
    served = (
        proposed.join(slots, and_(slots.c.owner_id == owner, slots.c.kind == word("kind")))
        .join(owners, owners.c.id == slots.c.owner_id)
        .join(lists, and_(lists.c.owner_id == owner, lists.c.chunk_id == chunk, lists.c.build == slots.c.source))
        .join(builds, and_(builds.c.owner_id == lists.c.owner_id, builds.c.build == lists.c.build))
        .join(items, items.c.id == _item_id)
        .join(bases, bases.c.id == items.c.base_id)
    )
    return (
        select(chunk, owners.c.owner, slots.c.built, *columns)
        .select_from(served)
        .where(
            owners.c.base == word("base"),
            OPEN,
            VISIBLE,
            serves(slots),
            slots.c.recipe == number("recipe"),
            ~lacks,
        )
    )


_of_chunks = (_row.join(chunks, chunks.c.id == _row.c.chunk), chunks.c.id, chunks.c.owner_id)
SERVED = _if_served(*_of_chunks)
CONFIRMED = _if_served(_owned, _owned.c.chunk, _owned.c.owner_id, slots.c.source)
SERVED_PASSAGES = _if_served(
    *_of_chunks,
    lists.c.ordinal,
    lists.c.start,
    lists.c.body,
    lists.c.stop,
    chunks.c.headings,
    chunks.c.text,
    items.c.name,
    builds.c.title,
)
SERVED_RECIPES = (
    select(recipes.c.id)
    .where(
        recipes.c.base == word("base"),
        recipes.c.kind == word("kind"),
        select(slots.c.id).where(slots.c.recipe == recipes.c.id, serves(slots)).exists(),
    )
    .order_by(recipes.c.id.desc())
)

_row = batch(slot_id=int, chunk_id=int, reason=str)
NOTE_MISSING = insert(missing).from_select([*_row.c.keys()], select(*_row.c))
CLEAR_MISSING = delete(missing).where(missing.c.slot_id == number("slot_id"))
_row = batch(slot_id=int)
_removed = select(slots.c.id).where(slots.c.id == missing.c.slot_id, slots.c.state == literal_column("'deleting'"))
CLEAR_REMOVED = delete(missing).where(missing.c.slot_id.in_(select(_row.c.slot_id)), _removed.exists())
_row = batch(slot_id=int)
LACKING_SLOTS = select(missing.c.slot_id).where(missing.c.slot_id.in_(select(_row.c.slot_id))).distinct()
# What the indexes of a document lack of the lists that they serve, with how the own part of each chunk begins.
READ_MISSING = (
    select(
        slots.c.kind,
        lists.c.chunk_id,
        lists.c.ordinal,
        lists.c.start,
        lists.c.stop,
        func.substr(chunks.c.text, lists.c.body - lists.c.start + 1, cast(number("letters"), Integer)),
        missing.c.reason,
    )
    .select_from(
        owners.join(slots, slots.c.owner_id == owners.c.id)
        .join(missing, missing.c.slot_id == slots.c.id)
        .join(
            lists,
            and_(
                lists.c.owner_id == slots.c.owner_id,
                lists.c.chunk_id == missing.c.chunk_id,
                lists.c.build == slots.c.source,
            ),
        )
        .join(chunks, chunks.c.id == lists.c.chunk_id)
    )
    .where(owners.c.base == word("base"), owners.c.owner == word("owner"), serves(slots))
    .order_by(slots.c.id, lists.c.ordinal)
    .limit(LIMIT)
)

# ---------------------------------------------------------------- sweeping

_unsettled = builds.c.settled == literal_column("0")
_of_owner = slots.c.owner_id == builds.c.owner_id
_shown = select(slots.c.id).where(_of_owner, slots.c.source == builds.c.build).exists()
_being_written = (
    select(slots.c.id)
    .where(_of_owner, slots.c.needs.is_(None), slots.c.state == literal_column("'running'"))
    .where(slots.c.fence == builds.c.build)
    .exists()
)
STALE = and_(~_shown, ~_being_written)
_other = builds.alias("other")
_alone = ~(
    select(_other.c.build).where(_other.c.owner_id == builds.c.owner_id, _other.c.build != builds.c.build).exists()
)

_row = batch(owner_id=int)
UNSETTLE_BUILDS = update(builds).values(settled=0).where(builds.c.owner_id.in_(select(_row.c.owner_id)))
STALE_BUILDS = select(builds.c.owner_id, builds.c.build).where(_unsettled, ~_shown, ~_being_written).limit(LIMIT)
_row = batch(owner_id=int, build=int)
STILL_STALE = (
    select(builds.c.build)
    .select_from(builds.join(_row, and_(builds.c.owner_id == _row.c.owner_id, builds.c.build == _row.c.build)))
    .where(~_shown, ~_being_written)
)
SETTLED_BUILDS = select(builds.c.owner_id, builds.c.build).where(_unsettled, _shown, _alone).limit(LIMIT)
_row = batch(owner_id=int, build=int)
SETTLE_BUILDS = (
    update(builds)
    .values(settled=1)
    .where(builds.c.owner_id == _row.c.owner_id, builds.c.build == _row.c.build, _unsettled, _shown, _alone)
    .returning(builds.c.owner_id)
)


def _some_listed(*conditions: Any) -> Any:
    return select(lists.c.chunk_id).where(*conditions).limit(LIMIT)


def _is_deleted(owner: Any) -> Condition:
    """Hold when every slot of an owner is being deleted."""
    return ~select(slots.c.id).where(slots.c.owner_id == owner, slots.c.state != literal_column("'deleting'")).exists()


UNLIST = delete(lists).where(_in_build, lists.c.chunk_id.in_(_some_listed(_in_build))).returning(lists.c.chunk_id)
REMOVE_BUILD = delete(builds).where(builds.c.owner_id == number("owner_id"), builds.c.build == number("build"))
_row = batch(id=int)
DOOM = (
    update(chunks)
    .values(doomed=1)
    .where(
        chunks.c.id == _row.c.id,
        ~select(lists.c.build).where(lists.c.owner_id == chunks.c.owner_id, lists.c.chunk_id == chunks.c.id).exists(),
    )
)
_doomed = select(chunks.c.id, chunks.c.owner_id, owners.c.base).select_from(
    chunks.join(owners, owners.c.id == chunks.c.owner_id)
)
DOOMED_CHUNKS = _doomed.where(DOOMED).limit(LIMIT)
_row = batch(id=int)
REMOVE_CHUNKS = delete(chunks).where(DOOMED, chunks.c.id.in_(select(_row.c.id)))

# What is left of owners that are being deleted; a build of theirs is refused, so nothing is listed again.
_row = batch(owner_id=int)
LIST_SIZES = (
    select(lists.c.owner_id, func.count())
    .select_from(lists.join(_row, lists.c.owner_id == _row.c.owner_id))
    .group_by(lists.c.owner_id)
)
_of_one = lists.c.owner_id == number("owner_id")
UNLIST_SOME = (
    delete(lists)
    .where(_of_one, lists.c.chunk_id.in_(_some_listed(_of_one)), _is_deleted(lists.c.owner_id))
    .returning(lists.c.chunk_id)
)
_row = batch(owner_id=int)
UNLIST_ALL = delete(lists).where(lists.c.owner_id.in_(select(_row.c.owner_id)), _is_deleted(lists.c.owner_id))
REMOVE_BUILDS = delete(builds).where(builds.c.owner_id.in_(select(_row.c.owner_id)), _is_deleted(builds.c.owner_id))
_row = batch(id=int)
REMOVE_OWN_CHUNKS = delete(chunks).where(chunks.c.id.in_(select(_row.c.id)), _is_deleted(chunks.c.owner_id))

_row = batch(id=int)
ORPHANED_CHUNKS = select(chunks.c.id).where(
    DOOMED, chunks.c.id.in_(select(_row.c.id)), ~select(owners.c.id).where(owners.c.id == chunks.c.owner_id).exists()
)
_row = batch(id=int)
EXISTING_CHUNKS = select(chunks.c.id).where(chunks.c.id.in_(select(_row.c.id)))

# ---------------------------------------------------------------- memos and the ledger

# Chunks of the newest list that have no more paid answers than `known`, and on each row how many there are.
_newest = select(func.max(lists.c.build)).where(lists.c.owner_id == owners.c.id).correlate(owners).scalar_subquery()
_answers = select(func.count()).where(memo_uses.c.chunk_id == chunks.c.id).correlate(chunks).scalar_subquery()
UNPAID_CHUNKS = (
    select(chunks.c.text, func.count().over())
    .select_from(
        owners.join(lists, and_(lists.c.owner_id == owners.c.id, lists.c.build == _newest)).join(
            chunks, chunks.c.id == lists.c.chunk_id
        )
    )
    .where(owners.c.base == word("base"), owners.c.owner == word("owner"), _answers <= number("known"))
    .limit(LIMIT)
)

_row = batch(id=int)
_lives = select(slots.c.id).where(slots.c.owner_id == chunks.c.owner_id, slots.c.state != literal_column("'deleting'"))
LIVING_CHUNKS = select(chunks.c.id).where(chunks.c.id.in_(select(_row.c.id)), _lives.exists())
_row = batch(key=str)
KNOWN_MEMOS = select(memos.c.key, memos.c.id, memos.c.value, memos.c.tokens_in, memos.c.tokens_out).select_from(
    memos.join(_row, and_(memos.c.tenant == word("tenant"), memos.c.key == _row.c.key))
)
_row = batch(key=str, value=bytes, joint=int, tokens_in=int, tokens_out=int)
KEEP_MEMOS = (
    upsert(memos)
    .from_select(
        ["tenant", "created_at", *_row.c.keys()], select(word("tenant"), NOW, *_row.c).where(literal_column("true"))
    )
    .on_conflict_do_nothing()
)
_row = batch(memo_id=int, chunk_id=int)
USE_MEMOS = (
    upsert(memo_uses)
    .from_select([*_row.c.keys()], select(*_row.c).where(literal_column("true")))
    .on_conflict_do_nothing()
)
_row = batch(id=int)
END_USES = delete(memo_uses).where(memo_uses.c.chunk_id.in_(select(_row.c.id))).returning(memo_uses.c.memo_id)
_row = batch(id=int)
_used = select(memo_uses.c.memo_id).where(memo_uses.c.memo_id == memos.c.id).exists()
END_JOINT = (
    delete(memo_uses)
    .where(memo_uses.c.memo_id.in_(select(memos.c.id).join(_row, memos.c.id == _row.c.id).where(memos.c.joint == 1)))
    .returning(memo_uses.c.memo_id)
)
END_JOINT_HOLDS = delete(memo_holds).where(
    memo_holds.c.memo_id.in_(select(memos.c.id).join(_row, memos.c.id == _row.c.id).where(memos.c.joint == 1))
)
_held = select(memo_holds.c.memo_id).where(memo_holds.c.memo_id == memos.c.id).exists()
REMOVE_MEMOS = delete(memos).where(memos.c.id.in_(select(_row.c.id)), ~_used, ~_held)

_row = batch(
    base=str,
    owner=str,
    job=str,
    generation=int,
    kind=str,
    model=str,
    paid=int,
    texts=int,
    tokens_in=int,
    tokens_out=int,
    price=float,
    estimated=int,
)
BASE_OF_RECIPE = select(bases.c.id, bases.c.name, bases.c.settings).where(
    cast(bases.c.id, Text) == select(recipes.c.base).where(recipes.c.id == number("recipe")).scalar_subquery()
)
CHARGE = insert(ledger).from_select(["at", *_row.c.keys()], select(NOW, *_row.c)).returning(ledger.c.id)
_row = batch(id=int, tokens_in=int, tokens_out=int, price=float, estimated=int)
SETTLE = (
    update(ledger)
    .values(tokens_in=_row.c.tokens_in, tokens_out=_row.c.tokens_out, price=_row.c.price, estimated=_row.c.estimated)
    .where(ledger.c.id == _row.c.id)
)
_row = batch(id=int)
CANCEL_CHARGE = delete(ledger).where(ledger.c.id.in_(select(_row.c.id)))
_sums = (
    func.sum(ledger.c.texts),
    func.sum(ledger.c.tokens_in),
    func.sum(ledger.c.tokens_out),
    func.sum(ledger.c.price),
    func.sum(case((ledger.c.price.is_(None), ledger.c.texts), else_=0)),
    func.sum(case((ledger.c.estimated == 1, ledger.c.tokens_in + ledger.c.tokens_out), else_=0)),
)
SPENT = (
    select(ledger.c.kind, ledger.c.paid, *_sums)
    .where(ledger.c.base == word("base"))
    .group_by(ledger.c.kind, ledger.c.paid)
    .order_by(ledger.c.kind, ledger.c.paid)
)
_row = batch(owner=str)
SPENT_ON = SPENT.where(ledger.c.owner.in_(select(_row.c.owner)))
SPENT_BY_ALL = select(ledger.c.base, ledger.c.paid, *_sums).group_by(ledger.c.base, ledger.c.paid)
