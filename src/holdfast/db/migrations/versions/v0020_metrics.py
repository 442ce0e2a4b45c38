"""Totals for metrics, the mark up to which they contain the log, and additions that are not in the log.

Slots are counted once, here. From the mark on, their events change the counts.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

COUNT_SLOTS = """
INSERT INTO metric_totals (name, kind, detail, value)
SELECT 'slots', kind, state, count(*) FROM slots GROUP BY kind, state
"""
MARK_NEWEST = "INSERT INTO event_marks (name, xid, id) SELECT 'metrics', xid, id FROM events"
NEWEST = "ORDER BY xid DESC, id DESC LIMIT 1"
MARK_START = """
INSERT INTO event_marks (name, xid, id)
SELECT 'metrics', 0, 0 WHERE NOT EXISTS (SELECT 1 FROM event_marks WHERE name = 'metrics')
"""
# Running transactions hold no row yet, because the tables are locked. They will write events with smaller transaction
# ids than this one, so the mark is below them, and the events above the mark are not part of the counts.
FINAL = "WHERE xid < CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)"
SUBTRACT = """
INSERT INTO metric_totals (name, kind, detail, value)
SELECT 'slots', moved.kind, moved.state, sum(moved.added) FROM (
  SELECT events.kind, data::jsonb ->> 'from' AS state, 1 AS added, events.xid, events.id FROM events
  UNION ALL
  SELECT events.kind, data::jsonb ->> 'to' AS state, -1 AS added, events.xid, events.id FROM events
) AS moved, event_marks AS mark
WHERE mark.name = 'metrics' AND (moved.xid, moved.id) > (mark.xid, mark.id) AND moved.kind IS NOT NULL
AND moved.state IS NOT NULL
GROUP BY moved.kind, moved.state
ON CONFLICT (name, kind, detail) DO UPDATE SET value = metric_totals.value + excluded.value
"""


def upgrade() -> None:
    """Create the tables, count the slots and set the mark. No slot can change meanwhile."""
    bind = op.get_bind()
    op.create_table(
        "metric_totals",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", "kind", "detail", name=op.f("metric_totals_pkey")),
    )
    op.create_table(
        "metric_increments",
        sa.Column("id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("metric_increments_pkey")),
        sqlite_autoincrement=True,
    )
    postgres = bind.dialect.name == "postgresql"
    if postgres:
        op.execute("LOCK TABLE slots, events IN SHARE ROW EXCLUSIVE MODE")
    op.execute(f"{MARK_NEWEST} {FINAL if postgres else ''} {NEWEST}")
    op.execute(MARK_START)
    op.execute(COUNT_SLOTS)
    if postgres:
        op.execute(SUBTRACT)
        op.execute(
            "ALTER TABLE metric_increments SET (autovacuum_vacuum_scale_factor = 0.02, "
            "autovacuum_analyze_scale_factor = 0.02)"
        )
        op.execute("ALTER TABLE metric_totals SET (fillfactor = 50)")
