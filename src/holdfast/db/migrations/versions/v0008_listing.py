"""Lists of documents: when an item changed, its name in the form that lists sort by, and its status.

Triggers keep the status, because the engine, which changes slots, knows nothing about items.
"""

from typing import Any
from unicodedata import normalize

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
FOLDED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
STATUS = """CASE
WHEN container = 1 THEN NULL
WHEN problem = 1 THEN 'failed'
WHEN document = 'deleting' OR source = 'deleting' THEN 'deleting'
WHEN document = 'indexing' OR source = 'indexing' THEN 'indexing'
WHEN document = 'queued' OR source = 'queued' THEN 'queued'
WHEN document = 'success' AND coalesce(source, 'success') = 'success' THEN 'success'
WHEN document = 'success' OR document = 'degraded' OR source = 'degraded' THEN 'degraded'
WHEN document = 'failed' OR source = 'failed' THEN 'failed'
ELSE 'not_indexed'
END"""
TOGETHER = 500


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    """Create the columns, the indexes, the table of statuses and its triggers."""
    op.add_column("library_items", sa.Column("changed_at", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("library_items", sa.Column("folded", FOLDED, server_default="", nullable=False))
    op.execute("UPDATE library_items SET changed_at = created_at")
    _fold_names()
    op.drop_index("library_items_deleting", "library_items")
    op.create_index("library_items_deleting", "library_items", ["base_id", "id"], **_only("deleting = 1"))
    for name, column in (("folded", "folded"), ("size", "size"), ("changed", "changed_at")):
        live = _only("deleting = 0")
        op.create_index(f"library_items_{name}", "library_items", ["base_id", column, "id"], **live)
        op.create_index(f"library_items_{name}_in", "library_items", ["base_id", "parent_id", column, "id"], **live)
    op.create_table(
        "library_standings",
        sa.Column("item_id", ID, autoincrement=False, nullable=False),
        sa.Column("base_id", ID, nullable=False),
        sa.Column("parent_id", ID, nullable=False),
        sa.Column("container", sa.Integer(), nullable=False),
        sa.Column("problem", sa.Integer(), nullable=False),
        sa.Column("document", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("served", sa.Integer(), server_default="0", nullable=False),
        sa.Column("status", sa.Text(), sa.Computed(STATUS, persisted=True), nullable=True),
        sa.PrimaryKeyConstraint("item_id", name=op.f("library_standings_pkey")),
    )
    op.create_index("library_standings_status", "library_standings", ["base_id", "status", "item_id"])
    op.create_index(
        "library_standings_status_in", "library_standings", ["base_id", "parent_id", "status", "item_id", "served"]
    )
    op.execute(FILL)
    for statement in ON_POSTGRES if op.get_bind().dialect.name == "postgresql" else ON_SQLITE:
        op.execute(statement)


def _fold_names() -> None:
    """Fill the column that lists sort by. SQL cannot fold the case of all languages, so Python does."""
    connection, after = op.get_bind(), 0
    some = sa.text("SELECT id, name FROM library_items WHERE id > :after ORDER BY id LIMIT :limit")
    write = sa.text("UPDATE library_items SET folded = :folded WHERE id = :id")
    while rows := connection.execute(some, {"after": after, "limit": TOGETHER}).all():
        connection.execute(
            write, [{"id": id_, "folded": normalize("NFC", name.casefold())[:500]} for id_, name in rows]
        )
        after = rows[-1][0]


FILL = """
INSERT INTO library_standings (item_id, base_id, parent_id, container, problem, document, source, served)
SELECT i.id, i.base_id, i.parent_id, CASE WHEN i.kind IN ('directory', 'sitemap') THEN 1 ELSE 0 END,
  CASE WHEN i.problem IS NULL THEN 0 ELSE 1 END, d.status, l.status,
  CASE WHEN EXISTS (SELECT 1 FROM slots WHERE owner_id = d.id AND built > 0 AND needs IS NOT NULL) THEN 1 ELSE 0 END
FROM library_items i
LEFT JOIN owners d ON d.base = CAST(i.base_id AS TEXT) AND d.owner = CAST(i.id AS TEXT)
LEFT JOIN owners l ON l.base = CAST(i.base_id AS TEXT) AND l.owner = 'source:' || CAST(i.id AS TEXT)
WHERE i.deleting = 0
"""

# ---------------------------------------------------------------- SQLite: triggers per row

_SERVED = """served = CASE WHEN new.status IN ('success', 'degraded') THEN 1
WHEN new.status IN ('indexing', 'queued') THEN served ELSE 0 END"""


def _follows(column: str, prefix: str, more: str = "") -> list[str]:
    """Return the triggers that copy the status of owners into a column. The owner is named prefix + item id."""

    def whose(row: str) -> str:
        number = f"CAST(substr({row}.owner, {len(prefix) + 1}) AS INTEGER)"
        return f"item_id = {number} AND '{prefix}' || item_id = {row}.owner AND CAST(base_id AS TEXT) = {row}.base"

    ours = f"substr(%s.owner, 1, 7) {'=' if prefix else '<>'} 'source:'"
    hidden = "EXISTS (SELECT 1 FROM library_items i WHERE i.id = item_id AND i.deleting = 1)"
    follow = f"UPDATE library_standings SET {column} = new.status{more} WHERE {whose('new')};"  # noqa: S608
    drop = f"DELETE FROM library_standings WHERE {whose('new')} AND {hidden};"  # noqa: S608
    nothing = f"{column} = NULL" + (", served = 0" if more else "")
    clear = f"UPDATE library_standings SET {nothing} WHERE {whose('old')};"  # noqa: S608
    name, moved = f"CREATE TRIGGER standings_{column}", "AFTER UPDATE OF status ON owners"
    return [
        f"{name}_made AFTER INSERT ON owners WHEN {ours % 'new'} BEGIN {follow} END",
        f"{name}_moved {moved} WHEN old.status <> new.status AND {ours % 'new'} BEGIN {follow} END",
        f"{name}_deleted {moved} WHEN new.status = 'deleting' AND {ours % 'new'} BEGIN {drop} END",
        f"{name}_gone AFTER DELETE ON owners WHEN {ours % 'old'} BEGIN {clear} END",
    ]


ON_SQLITE = (
    """
    CREATE TRIGGER standings_item_made AFTER INSERT ON library_items WHEN new.deleting = 0 BEGIN
      INSERT INTO library_standings (item_id, base_id, parent_id, container, problem)
      VALUES (new.id, new.base_id, new.parent_id, new.kind IN ('directory', 'sitemap'), new.problem IS NOT NULL);
    END
    """,
    """
    CREATE TRIGGER standings_item_changed AFTER UPDATE OF problem ON library_items
    WHEN (old.problem IS NULL) <> (new.problem IS NULL) BEGIN
      UPDATE library_standings SET problem = new.problem IS NOT NULL WHERE item_id = new.id;
    END
    """,
    """
    CREATE TRIGGER standings_item_hidden AFTER UPDATE OF deleting ON library_items
    WHEN old.deleting = 0 AND new.deleting = 1 BEGIN
      DELETE FROM library_standings WHERE item_id = new.id AND document IS NULL AND source IS NULL;
    END
    """,
    """
    CREATE TRIGGER standings_item_gone AFTER DELETE ON library_items BEGIN
      DELETE FROM library_standings WHERE item_id = old.id;
    END
    """,
    *_follows("document", "", f", {_SERVED}"),
    *_follows("source", "source:"),
)

# ---------------------------------------------------------------- PostgreSQL: triggers per statement

_OWNED = """
  (SELECT base, status, owner LIKE 'source:%' AS looks, CAST(substring(owner FROM '[0-9]+$') AS bigint) AS item
   FROM {rows} WHERE owner ~ '^(source:)?[1-9][0-9]{{0,17}}$')
"""
_SAME = "s.item_id = n.item AND CAST(s.base_id AS text) = n.base"
_SERVED_HERE = _SERVED.replace("new.", "n.").replace("THEN served", "THEN s.served")


def _follow(rows: str) -> str:
    """Return the statement that copies the status of the owners of these rows."""
    owned = _OWNED.format(rows=rows)
    return f"""
      UPDATE library_standings s SET document = n.status, {_SERVED_HERE}
      FROM {owned} n WHERE NOT n.looks AND {_SAME};
      UPDATE library_standings s SET source = n.status FROM {owned} n WHERE n.looks AND {_SAME};
    """  # noqa: S608 - our own words


_MOVED = "(SELECT n.* FROM changed n JOIN former o ON o.id = n.id WHERE o.status <> n.status) m"

ON_POSTGRES = (
    f"""
    CREATE FUNCTION holdfast_owners_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN {_follow("changed")}
    ELSIF TG_OP = 'UPDATE' THEN
      IF EXISTS (SELECT FROM {_MOVED}) THEN
        DELETE FROM library_standings s USING {_OWNED.format(rows=_MOVED)} n, library_items i
        WHERE n.status = 'deleting' AND {_SAME} AND i.id = s.item_id AND i.deleting = 1;
        {_follow(_MOVED)}
      END IF;
    ELSE
      UPDATE library_standings s SET document = NULL, served = 0 FROM {_OWNED.format(rows="former")} n
      WHERE NOT n.looks AND {_SAME};
      UPDATE library_standings s SET source = NULL FROM {_OWNED.format(rows="former")} n WHERE n.looks AND {_SAME};
    END IF;
    RETURN NULL; END $$
    """,  # noqa: S608 - our own words
    """
    CREATE FUNCTION holdfast_items_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN
      INSERT INTO library_standings (item_id, base_id, parent_id, container, problem)
      SELECT id, base_id, parent_id, CAST(kind IN ('directory', 'sitemap') AS int), CAST(problem IS NOT NULL AS int)
      FROM changed WHERE deleting = 0;
    ELSIF TG_OP = 'UPDATE' THEN
      UPDATE library_standings s SET problem = CAST(n.problem IS NOT NULL AS int)
      FROM changed n JOIN former o ON o.id = n.id
      WHERE s.item_id = n.id AND (o.problem IS NULL) <> (n.problem IS NULL);
      DELETE FROM library_standings s USING changed n JOIN former o ON o.id = n.id
      WHERE s.item_id = n.id AND o.deleting = 0 AND n.deleting = 1 AND s.document IS NULL AND s.source IS NULL;
    ELSE
      DELETE FROM library_standings s USING former o WHERE s.item_id = o.id;
    END IF;
    RETURN NULL; END $$
    """,
    *(
        f"CREATE TRIGGER standings_{event.lower()} AFTER {event} ON {table} REFERENCING {rows} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
        for table, function in (("owners", "holdfast_owners_moved"), ("library_items", "holdfast_items_moved"))
        for event, rows in (
            ("INSERT", "NEW TABLE AS changed"),
            ("UPDATE", "OLD TABLE AS former NEW TABLE AS changed"),
            ("DELETE", "OLD TABLE AS former"),
        )
    ),
)
