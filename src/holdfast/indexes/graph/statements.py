"""Every statement about names, relations and what is merged of them, each with a name; the same on both databases.

`SHOWN` is derived from the library's `SERVED`, so that what may be shown is decided in one place. A change is *due*
when the chunk that came is served, or the chunk that went is gone: a description merged between would leave it out.
"""

from __future__ import annotations

from sqlalchemy import (
    ColumnElement,
    Text,
    and_,
    cast,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from holdfast.catalog import OPEN, SERVED, bases, chunks, items, lists, recipes, serves
from holdfast.db import LIMIT, NOW, batch, number, word
from holdfast.engine.store import IS_QUEUED, IS_TIMED, owners, slots
from holdfast.indexes.graph.tables import graph_changes, graph_chunks, merged, merged_sources, names, relations

RECIPE = number("recipe")

# ---------------------------------------------------------------- names and relations of chunks

_row = batch(chunk_id=int)
KNOWN = select(graph_chunks.c.chunk_id).select_from(
    graph_chunks.join(_row, and_(graph_chunks.c.recipe == RECIPE, graph_chunks.c.chunk_id == _row.c.chunk_id))
)
_row = batch(recipe=int, chunk_id=int)
MARK_KNOWN = (
    upsert(graph_chunks)
    .from_select([*_row.c.keys()], select(*_row.c).where(literal_column("true")))
    .on_conflict_do_nothing()
)
_row = batch(recipe=int, chunk_id=int, key=str, role=str, label=str)
PUT_NAMES = insert(names).from_select([*_row.c.keys()], select(*_row.c))
_row = batch(recipe=int, chunk_id=int, key=str, role=str, label=str, kind=str, description=str)
PUT_ENTITIES = insert(names).from_select([*_row.c.keys()], select(*_row.c))
_row = batch(recipe=int, chunk_id=int, source=str, target=str, label=str, description=str)
PUT_RELATIONS = insert(relations).from_select([*_row.c.keys()], select(*_row.c))

_row = batch(chunk_id=int)
DROP_NAMES = delete(names).where(names.c.recipe == RECIPE, names.c.chunk_id.in_(select(_row.c.chunk_id)))
DROP_RELATIONS = delete(relations).where(
    relations.c.recipe == RECIPE, relations.c.chunk_id.in_(select(_row.c.chunk_id))
)
DROP_KNOWN = delete(graph_chunks).where(
    graph_chunks.c.recipe == RECIPE, graph_chunks.c.chunk_id.in_(select(_row.c.chunk_id))
)
SCAN = (
    select(graph_chunks.c.chunk_id)
    .where(graph_chunks.c.recipe == RECIPE, graph_chunks.c.chunk_id > number("after"))
    .order_by(graph_chunks.c.chunk_id)
    .limit(LIMIT)
)

_row = batch(chunk_id=int)
OF_CHUNKS = select(names.c.chunk_id, names.c.key, names.c.role).select_from(
    names.join(_row, and_(names.c.recipe == RECIPE, names.c.chunk_id == _row.c.chunk_id))
)
_row = batch(key=str)
BY_KEY = select(names.c.key, names.c.chunk_id, names.c.role).select_from(
    names.join(_row, and_(names.c.recipe == RECIPE, names.c.key == _row.c.key))
)
_row = batch(chunk_id=int)
ENDS_OF_CHUNKS = select(relations.c.chunk_id, relations.c.source, relations.c.target).select_from(
    relations.join(_row, and_(relations.c.recipe == RECIPE, relations.c.chunk_id == _row.c.chunk_id))
)
_row = batch(key=str)
STATED_FROM, STATED_TO = (
    select(end, relations.c.chunk_id)
    .select_from(relations.join(_row, and_(relations.c.recipe == RECIPE, end == _row.c.key)))
    .distinct()
    for end in (relations.c.source, relations.c.target)
)
_defines = names.c.role != literal_column("'named'")
DEFINITIONS = (
    select(names.c.id, names.c.chunk_id, names.c.key, names.c.role)
    .where(names.c.recipe == RECIPE, names.c.id > number("after"), _defines)
    .order_by(names.c.id)
    .limit(LIMIT)
)
COUNT_DEFINITIONS = select(func.count()).where(names.c.recipe == RECIPE, names.c.id <= number("until"), _defines)

# ---------------------------------------------------------------- what chunks say, to be checked before it is shown

SHOWN = SERVED.with_only_columns(chunks.c.id, owners.c.owner, items.c.name)

_row = batch(key=str)
ENTITIES = select(names.c.key, names.c.chunk_id, names.c.label, names.c.kind, names.c.description).select_from(
    names.join(_row, and_(names.c.recipe == RECIPE, names.c.key == _row.c.key))
)
_listed = select(lists.c.chunk_id).where(lists.c.owner_id == number("owner_id"), lists.c.build == number("build"))
NAMED_IN = select(names.c.key, names.c.chunk_id, names.c.label, names.c.kind).where(
    names.c.recipe == RECIPE, names.c.chunk_id.in_(_listed)
)
_row = batch(source=str, target=str)
_from, _to = names.alias("source_name"), names.alias("target_name")
_of_chunk = relations.join(
    _from, and_(_from.c.recipe == RECIPE, _from.c.chunk_id == relations.c.chunk_id, _from.c.key == relations.c.source)
).join(_to, and_(_to.c.recipe == RECIPE, _to.c.chunk_id == relations.c.chunk_id, _to.c.key == relations.c.target))
RELATIONS = select(
    relations.c.source,
    relations.c.target,
    relations.c.chunk_id,
    relations.c.label,
    relations.c.description,
    _from.c.label.label("source_label"),
    _to.c.label.label("target_label"),
).select_from(
    _of_chunk.join(
        _row,
        and_(relations.c.recipe == RECIPE, relations.c.source == _row.c.source, relations.c.target == _row.c.target),
    )
)
_ends = select(relations.c.source, relations.c.target).distinct().limit(LIMIT)
_row = batch(key=str)
RELATED_TO = _ends.select_from(
    relations.join(_row, and_(relations.c.recipe == RECIPE, relations.c.source == _row.c.key))
)
RELATED_FROM = _ends.select_from(
    relations.join(_row, and_(relations.c.recipe == RECIPE, relations.c.target == _row.c.key))
)
_row = batch(key=str)
LABELS_FROM = select(relations.c.source, relations.c.target, relations.c.chunk_id, relations.c.label).select_from(
    relations.join(_row, and_(relations.c.recipe == RECIPE, relations.c.source == _row.c.key))
)
COMMONEST = (
    select(names.c.key, func.count().label("times"))
    .where(names.c.recipe == RECIPE, names.c.key.like(word("beginning"), escape="\\"))
    .group_by(names.c.key)
    .order_by(func.count().desc(), names.c.key)
    .limit(LIMIT)
)

# ---------------------------------------------------------------- what is merged

_row = batch(key=str, other=str)
MERGED = select(merged.c.key, merged.c.other, merged.c.description, merged.c.digest).select_from(
    merged.join(_row, and_(merged.c.recipe == RECIPE, merged.c.key == _row.c.key, merged.c.other == _row.c.other))
)
_of = merged_sources
SOURCES = select(_of.c.key, _of.c.other, _of.c.chunk_id).select_from(
    _of.join(_row, and_(_of.c.recipe == RECIPE, _of.c.key == _row.c.key, _of.c.other == _row.c.other))
)
_these = select(_row.c.key, _row.c.other)
FORGET_MERGED = delete(merged).where(merged.c.recipe == RECIPE, tuple_(merged.c.key, merged.c.other).in_(_these))
FORGET_SOURCES = delete(_of).where(_of.c.recipe == RECIPE, tuple_(_of.c.key, _of.c.other).in_(_these))
_row = batch(recipe=int, key=str, other=str, description=str, digest=str)
KEEP_MERGED = insert(merged).from_select([*_row.c.keys()], select(*_row.c))
_row = batch(recipe=int, key=str, other=str, chunk_id=int)
KEEP_SOURCES = insert(_of).from_select([*_row.c.keys()], select(*_row.c))
_row = batch(chunk_id=int)
MADE_FROM = (
    select(_of.c.key, _of.c.other)
    .select_from(_of.join(_row, and_(_of.c.recipe == RECIPE, _of.c.chunk_id == _row.c.chunk_id)))
    .distinct()
)
REMOVE_MERGED = delete(merged).where(merged.c.recipe == RECIPE)
REMOVE_SOURCES = delete(_of).where(_of.c.recipe == RECIPE)

# ---------------------------------------------------------------- what changed

_row = batch(recipe=int, key=str, other=str, chunk_id=int)
NOTE_CHANGES = insert(graph_changes).from_select(["at", *_row.c.keys()], select(NOW, *_row.c))
_written = ["at", "recipe", "key", "other", "chunk_id"]
_row = batch(chunk_id=int)
NOTE_LOST_ENTITIES = insert(graph_changes).from_select(
    _written,
    select(NOW, names.c.recipe, names.c.key, literal_column("''"), names.c.chunk_id).where(
        names.c.recipe == RECIPE,
        names.c.chunk_id.in_(select(_row.c.chunk_id)),
        names.c.description != literal_column("''"),
    ),
)
NOTE_LOST_RELATIONS = insert(graph_changes).from_select(
    _written,
    select(NOW, relations.c.recipe, relations.c.source, relations.c.target, relations.c.chunk_id).where(
        relations.c.recipe == RECIPE, relations.c.chunk_id.in_(select(_row.c.chunk_id))
    ),
)

_written_down = (
    select(graph_chunks.c.chunk_id)
    .where(graph_chunks.c.recipe == graph_changes.c.recipe, graph_chunks.c.chunk_id == graph_changes.c.chunk_id)
    .correlate(graph_changes)
    .exists()
)
_is_served = (
    select(chunks.c.id)
    .select_from(
        chunks.join(slots, slots.c.owner_id == chunks.c.owner_id).join(
            lists,
            and_(
                lists.c.owner_id == chunks.c.owner_id,
                lists.c.chunk_id == chunks.c.id,
                lists.c.build == slots.c.source,
            ),
        )
    )
    .where(
        chunks.c.id == graph_changes.c.chunk_id,
        slots.c.kind == literal_column("'graph'"),
        slots.c.recipe == graph_changes.c.recipe,
        serves(slots),
    )
    .correlate(graph_changes)
    .exists()
)
_due = or_(~_written_down, _is_served)
_entity, _relation = graph_changes.c.other == literal_column("''"), graph_changes.c.other != literal_column("''")
_due_changes = (
    select(graph_changes.c.id, graph_changes.c.key, graph_changes.c.other)
    .where(graph_changes.c.recipe == RECIPE, _due)
    .order_by(graph_changes.c.key, graph_changes.c.other, graph_changes.c.id)
    .limit(LIMIT)
)
DUE_ENTITIES, DUE_RELATIONS = _due_changes.where(_entity), _due_changes.where(_relation)
ANY_DUE = (
    select(graph_changes.c.id)
    .where(graph_changes.c.recipe == RECIPE, graph_changes.c.at > number("since"), _due)
    .limit(1)
)
_subjects = select(graph_changes.c.key, graph_changes.c.other).where(graph_changes.c.recipe == RECIPE, _due).distinct()
COUNT_ENTITIES = select(func.count()).select_from(_subjects.where(_entity).subquery())
COUNT_RELATIONS = select(func.count()).select_from(_subjects.where(_relation).subquery())
_described = select(names.c.id).where(
    names.c.recipe == RECIPE, names.c.key == graph_changes.c.key, names.c.description != literal_column("''")
)
_end = select(relations.c.id).where(relations.c.recipe == RECIPE)
_there = _end.where(relations.c.source == graph_changes.c.key, relations.c.target == graph_changes.c.other)
_back = _end.where(relations.c.source == graph_changes.c.other, relations.c.target == graph_changes.c.key)
_row = batch(chunk_id=int)
_gone = and_(graph_changes.c.recipe == RECIPE, graph_changes.c.chunk_id.in_(select(_row.c.chunk_id)))
FORGET_UNNAMED = delete(graph_changes).where(_gone, _entity, ~_described.correlate(graph_changes).exists())
FORGET_UNRELATED = delete(graph_changes).where(
    _gone, _relation, ~_there.correlate(graph_changes).exists(), ~_back.correlate(graph_changes).exists()
)
_row = batch(id=int)
FORGET_CHANGES = delete(graph_changes).where(graph_changes.c.id.in_(select(_row.c.id)))
REMOVE_CHANGES = delete(graph_changes).where(graph_changes.c.recipe == RECIPE)

# ---------------------------------------------------------------- when to merge

_kind: ColumnElement[str] = literal_column("'graph'")
_noted = select(graph_changes.c.id).where(graph_changes.c.recipe == recipes.c.id).correlate(recipes).exists()
_open = select(bases.c.id).where(cast(bases.c.id, Text) == recipes.c.base, OPEN).correlate(recipes).exists()
CHANGED_BASES = select(recipes.c.base, recipes.c.id).where(recipes.c.kind == _kind, _noted, _open)
_at_work = (
    select(slots.c.id)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(slots.c.kind.in_([literal_column("'content'"), _kind]), owners.c.base == word("base"))
    .limit(1)
)
QUEUED = _at_work.where(literal_column(IS_QUEUED))
TAKEN = _at_work.where(
    literal_column(IS_TIMED),
    or_(
        slots.c.state == literal_column("'running'"),
        and_(
            slots.c.state == literal_column("'deleting'"),
            or_(slots.c.holder.is_not(None), slots.c.due_at.is_(None), slots.c.due_at <= NOW),
        ),
    ),
)
MERGING_SLOT = (
    select(slots.c.state, slots.c.queued_at)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(owners.c.base == word("base"), owners.c.owner == word("owner"), slots.c.kind == word("kind"))
)
MERGING_OWNER = (
    select(owners.c.id)
    .select_from(owners.join(recipes, recipes.c.base == owners.c.base))
    .where(recipes.c.id == RECIPE, owners.c.owner == word("owner"))
)
