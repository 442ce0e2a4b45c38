"""Statements about names, relations and merged descriptions, the same on both databases.

`SELECT_SERVED_MENTIONS` derives from `SELECT_SERVED_CHUNKS` of the catalog, so that one place decides what is served. A
change is *due* when its chunk is served, or removed. A description merged before that would leave the chunk out.
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

from holdfast.catalog import (
    BASE_OPEN,
    SELECT_SERVED_CHUNKS,
    bases,
    chunks,
    items,
    list_entries,
    recipes,
    slot_is_served,
)
from holdfast.db import LIMIT, NOW, batch, int_param, text_param
from holdfast.engine.store import IS_QUEUED, IS_TIMED, owners, slots
from holdfast.indexes.graph.tables import graph_changes, graph_chunks, merged, merged_sources, names, relations

RECIPE = int_param("recipe")

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
DELETE_WRITTEN_CHUNKS = delete(graph_chunks).where(
    graph_chunks.c.recipe == RECIPE, graph_chunks.c.chunk_id.in_(select(_row.c.chunk_id))
)
_row = batch(chunk_id=int)
SELECT_NAMES_OF_CHUNKS = select(names.c.chunk_id, names.c.key, names.c.role).select_from(
    names.join(_row, and_(names.c.recipe == RECIPE, names.c.chunk_id == _row.c.chunk_id))
)
_row = batch(key=str)
SELECT_CHUNKS_BY_KEY = select(names.c.key, names.c.chunk_id, names.c.role).select_from(
    names.join(_row, and_(names.c.recipe == RECIPE, names.c.key == _row.c.key))
)
_row = batch(key=str)
# The index on names answers this without their rows.
COUNT_ROWS = select(
    _row.c.key,
    select(func.count()).where(names.c.recipe == RECIPE, names.c.key == _row.c.key).correlate(_row).scalar_subquery(),
)
_row = batch(chunk_id=int)
SELECT_RELATION_ENDS = select(relations.c.chunk_id, relations.c.source, relations.c.target).select_from(
    relations.join(_row, and_(relations.c.recipe == RECIPE, relations.c.chunk_id == _row.c.chunk_id))
)
_row = batch(key=str)
SELECT_CHUNKS_BY_SOURCE, SELECT_CHUNKS_BY_TARGET = (
    select(end, relations.c.chunk_id)
    .select_from(relations.join(_row, and_(relations.c.recipe == RECIPE, end == _row.c.key)))
    .distinct()
    for end in (relations.c.source, relations.c.target)
)
_defines = names.c.role != literal_column("'named'")
SELECT_DEFINITIONS = (
    select(names.c.id, names.c.chunk_id, names.c.key, names.c.role)
    .where(names.c.recipe == RECIPE, names.c.id > int_param("after"), _defines)
    .order_by(names.c.id)
    .limit(LIMIT)
)
COUNT_DEFINITIONS = select(func.count()).where(names.c.recipe == RECIPE, names.c.id <= int_param("until"), _defines)

SELECT_SERVED_MENTIONS = SELECT_SERVED_CHUNKS.with_only_columns(chunks.c.id, owners.c.owner, items.c.name)

_row = batch(key=str)
SELECT_ENTITIES = select(names.c.key, names.c.chunk_id, names.c.label, names.c.kind, names.c.description).select_from(
    names.join(_row, and_(names.c.recipe == RECIPE, names.c.key == _row.c.key))
)
_listed = select(list_entries.c.chunk_id).where(
    list_entries.c.owner_id == int_param("owner_id"), list_entries.c.build == int_param("build")
)
SELECT_NAMES_IN_LIST = select(names.c.key, names.c.chunk_id, names.c.label, names.c.kind).where(
    names.c.recipe == RECIPE, names.c.chunk_id.in_(_listed)
)
_row = batch(source=str, target=str)
_from, _to = names.alias("source_name"), names.alias("target_name")
_relations_with_names = relations.join(
    _from, and_(_from.c.recipe == RECIPE, _from.c.chunk_id == relations.c.chunk_id, _from.c.key == relations.c.source)
).join(_to, and_(_to.c.recipe == RECIPE, _to.c.chunk_id == relations.c.chunk_id, _to.c.key == relations.c.target))
SELECT_RELATIONS = select(
    relations.c.source,
    relations.c.target,
    relations.c.chunk_id,
    relations.c.label,
    relations.c.description,
    _from.c.label.label("source_label"),
    _to.c.label.label("target_label"),
).select_from(
    _relations_with_names.join(
        _row,
        and_(relations.c.recipe == RECIPE, relations.c.source == _row.c.source, relations.c.target == _row.c.target),
    )
)
_ends = select(relations.c.source, relations.c.target).distinct().limit(LIMIT)
_row = batch(key=str)
SELECT_ENDS_BY_SOURCE = _ends.select_from(
    relations.join(_row, and_(relations.c.recipe == RECIPE, relations.c.source == _row.c.key))
)
SELECT_ENDS_BY_TARGET = _ends.select_from(
    relations.join(_row, and_(relations.c.recipe == RECIPE, relations.c.target == _row.c.key))
)
_row = batch(key=str)
SELECT_RELATION_LABELS = select(
    relations.c.source, relations.c.target, relations.c.chunk_id, relations.c.label
).select_from(relations.join(_row, and_(relations.c.recipe == RECIPE, relations.c.source == _row.c.key)))
SELECT_COMMON_KEYS = (
    select(names.c.key, func.count().label("times"))
    .where(names.c.recipe == RECIPE, names.c.key.like(text_param("beginning"), escape="\\"))
    .group_by(names.c.key)
    .order_by(func.count().desc(), names.c.key)
    .limit(LIMIT)
)

_row = batch(key=str, other=str)
SELECT_MERGED = select(merged.c.key, merged.c.other, merged.c.description, merged.c.digest).select_from(
    merged.join(_row, and_(merged.c.recipe == RECIPE, merged.c.key == _row.c.key, merged.c.other == _row.c.other))
)
_sources = merged_sources
SELECT_MERGED_SOURCES = select(_sources.c.key, _sources.c.other, _sources.c.chunk_id).select_from(
    _sources.join(
        _row, and_(_sources.c.recipe == RECIPE, _sources.c.key == _row.c.key, _sources.c.other == _row.c.other)
    )
)
_given_subjects = select(_row.c.key, _row.c.other)
DELETE_MERGED = delete(merged).where(
    merged.c.recipe == RECIPE, tuple_(merged.c.key, merged.c.other).in_(_given_subjects)
)
DELETE_MERGED_SOURCES = delete(_sources).where(
    _sources.c.recipe == RECIPE, tuple_(_sources.c.key, _sources.c.other).in_(_given_subjects)
)
_row = batch(recipe=int, key=str, other=str, description=str, digest=str)
INSERT_MERGED = insert(merged).from_select([*_row.c.keys()], select(*_row.c))
_row = batch(recipe=int, key=str, other=str, chunk_id=int)
INSERT_MERGED_SOURCES = insert(_sources).from_select([*_row.c.keys()], select(*_row.c))
_row = batch(chunk_id=int)
SELECT_SUBJECTS_MERGED_FROM = (
    select(_sources.c.key, _sources.c.other)
    .select_from(_sources.join(_row, and_(_sources.c.recipe == RECIPE, _sources.c.chunk_id == _row.c.chunk_id)))
    .distinct()
)
DELETE_MERGED_OF_RECIPE = delete(merged).where(merged.c.recipe == RECIPE)
DELETE_SOURCES_OF_RECIPE = delete(_sources).where(_sources.c.recipe == RECIPE)

_row = batch(recipe=int, key=str, other=str, chunk_id=int)
NOTE_CHANGES = insert(graph_changes).from_select(["at", *_row.c.keys()], select(NOW, *_row.c))
_change_columns = ["at", "recipe", "key", "other", "chunk_id"]
_row = batch(chunk_id=int)
NOTE_LOST_ENTITIES = insert(graph_changes).from_select(
    _change_columns,
    select(NOW, names.c.recipe, names.c.key, literal_column("''"), names.c.chunk_id).where(
        names.c.recipe == RECIPE,
        names.c.chunk_id.in_(select(_row.c.chunk_id)),
        names.c.description != literal_column("''"),
    ),
)
NOTE_LOST_RELATIONS = insert(graph_changes).from_select(
    _change_columns,
    select(NOW, relations.c.recipe, relations.c.source, relations.c.target, relations.c.chunk_id).where(
        relations.c.recipe == RECIPE, relations.c.chunk_id.in_(select(_row.c.chunk_id))
    ),
)

_is_written = (
    select(graph_chunks.c.chunk_id)
    .where(graph_chunks.c.recipe == graph_changes.c.recipe, graph_chunks.c.chunk_id == graph_changes.c.chunk_id)
    .correlate(graph_changes)
    .exists()
)
_is_served = (
    select(chunks.c.id)
    .select_from(
        chunks.join(slots, slots.c.owner_id == chunks.c.owner_id).join(
            list_entries,
            and_(
                list_entries.c.owner_id == chunks.c.owner_id,
                list_entries.c.chunk_id == chunks.c.id,
                list_entries.c.build == slots.c.source,
            ),
        )
    )
    .where(
        chunks.c.id == graph_changes.c.chunk_id,
        slots.c.kind == literal_column("'graph'"),
        slots.c.recipe == graph_changes.c.recipe,
        slot_is_served(slots),
    )
    .correlate(graph_changes)
    .exists()
)
_due = or_(~_is_written, _is_served)
_entity, _relation = graph_changes.c.other == literal_column("''"), graph_changes.c.other != literal_column("''")
_due_changes = (
    select(graph_changes.c.id, graph_changes.c.key, graph_changes.c.other)
    .where(graph_changes.c.recipe == RECIPE, _due)
    .order_by(graph_changes.c.key, graph_changes.c.other, graph_changes.c.id)
    .limit(LIMIT)
)
SELECT_DUE_ENTITIES, SELECT_DUE_RELATIONS = _due_changes.where(_entity), _due_changes.where(_relation)
SELECT_ANY_DUE = (
    select(graph_changes.c.id)
    .where(graph_changes.c.recipe == RECIPE, graph_changes.c.at > int_param("since"), _due)
    .limit(1)
)
_subjects = select(graph_changes.c.key, graph_changes.c.other).where(graph_changes.c.recipe == RECIPE, _due).distinct()
COUNT_DUE_ENTITIES = select(func.count()).select_from(_subjects.where(_entity).subquery())
COUNT_DUE_RELATIONS = select(func.count()).select_from(_subjects.where(_relation).subquery())
_described = select(names.c.id).where(
    names.c.recipe == RECIPE, names.c.key == graph_changes.c.key, names.c.description != literal_column("''")
)
_end = select(relations.c.id).where(relations.c.recipe == RECIPE)
_forward_relations = _end.where(relations.c.source == graph_changes.c.key, relations.c.target == graph_changes.c.other)
_backward_relations = _end.where(relations.c.source == graph_changes.c.other, relations.c.target == graph_changes.c.key)
_row = batch(chunk_id=int)
_gone = and_(graph_changes.c.recipe == RECIPE, graph_changes.c.chunk_id.in_(select(_row.c.chunk_id)))
DELETE_CHANGES_OF_UNNAMED = delete(graph_changes).where(_gone, _entity, ~_described.correlate(graph_changes).exists())
DELETE_CHANGES_OF_UNRELATED = delete(graph_changes).where(
    _gone,
    _relation,
    ~_forward_relations.correlate(graph_changes).exists(),
    ~_backward_relations.correlate(graph_changes).exists(),
)
_row = batch(id=int)
DELETE_CHANGES = delete(graph_changes).where(graph_changes.c.id.in_(select(_row.c.id)))
DELETE_CHANGES_OF_RECIPE = delete(graph_changes).where(graph_changes.c.recipe == RECIPE)

_kind: ColumnElement[str] = literal_column("'graph'")
_has_changes = select(graph_changes.c.id).where(graph_changes.c.recipe == recipes.c.id).correlate(recipes).exists()
_open = select(bases.c.id).where(cast(bases.c.id, Text) == recipes.c.base, BASE_OPEN).correlate(recipes).exists()
SELECT_CHANGED_BASES = select(recipes.c.base, recipes.c.id).where(recipes.c.kind == _kind, _has_changes, _open)
_slots_of_base = (
    select(slots.c.id)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(slots.c.kind.in_([literal_column("'content'"), _kind]), owners.c.base == text_param("base"))
    .limit(1)
)
SELECT_QUEUED_SLOT = _slots_of_base.where(literal_column(IS_QUEUED))
SELECT_RUNNING_SLOT = _slots_of_base.where(
    literal_column(IS_TIMED),
    or_(
        slots.c.state == literal_column("'running'"),
        and_(
            slots.c.state == literal_column("'deleting'"),
            or_(slots.c.holder.is_not(None), slots.c.due_at.is_(None), slots.c.due_at <= NOW),
        ),
    ),
)
SELECT_MERGING_SLOT = (
    select(slots.c.state, slots.c.queued_at)
    .select_from(slots.join(owners, owners.c.id == slots.c.owner_id))
    .where(
        owners.c.base == text_param("base"), owners.c.owner == text_param("owner"), slots.c.kind == text_param("kind")
    )
)
SELECT_MERGING_OWNER = (
    select(owners.c.id)
    .select_from(owners.join(recipes, recipes.c.base == owners.c.base))
    .where(recipes.c.id == RECIPE, owners.c.owner == text_param("owner"))
)
