"""The order of the event log, and the position up to which events were removed.

On PostgreSQL a smaller id may become visible after a larger one, so an event also stores the id of its transaction.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the transaction id to events, and the table of positions."""
    op.add_column("events", sa.Column("xid", sa.BigInteger(), server_default="0", nullable=False))
    if op.get_bind().dialect.name == "postgresql":
        op.create_index("events_order", "events", ["xid", "id"])
    marks = op.create_table(
        "event_marks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("xid", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("event_marks_pkey")),
    )
    first = op.get_bind().execute(sa.text("SELECT coalesce(min(id), 1) - 1 FROM events")).scalar()
    op.bulk_insert(marks, [{"name": "swept", "xid": 0, "id": first}])
