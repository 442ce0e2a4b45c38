"""Lets PostgreSQL vacuum the tables of the queue early, and keeps room for updates in the pages of jobs."""

from alembic import op

revision = "0018"
down_revision = "0017"

# By default a table is vacuumed when a fifth of its rows is dead: with a million documents, after 600,000 changed slots.
VACUUM_EARLY = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02"
UPDATED = ("owners", "slots", "jobs", "library_standings", "webhook_deliveries")
APPENDED = ("events", "duplicates")  # rows are added, and removed by age
VACUUM_INSERTS = "autovacuum_vacuum_insert_scale_factor = 0.05"


def upgrade() -> None:
    """Set storage parameters. They apply to pages that are written from now on; nothing is rewritten."""
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in UPDATED:
        op.execute(f"ALTER TABLE {table} SET ({VACUUM_EARLY})")
    # Updates of other tables change indexed columns, so room in a page would not save the new index entries.
    op.execute("ALTER TABLE jobs SET (fillfactor = 85)")
    for table in APPENDED:
        op.execute(f"ALTER TABLE {table} SET ({VACUUM_EARLY}, {VACUUM_INSERTS})")
