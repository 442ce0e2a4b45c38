"""Two stages of erasing: SQLite overwrites rows, then it compacts the database file.

Earlier versions had one counter for both stages. Rows that it counted as erased are complete in both.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Create the table of counters again, under the same name, because triggers of other tables use it."""
    counted = op.get_bind().execute(sa.text("SELECT place, removed, erased FROM erasures")).all()
    op.drop_table("erasures")
    erasures = op.create_table(
        "erasures",
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("removed", sa.BigInteger(), nullable=False),
        sa.Column("overwritten", sa.BigInteger(), nullable=False),
        sa.Column("compacted", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "0 <= compacted AND compacted <= overwritten AND overwritten <= removed",
            name=op.f("erasures_stages_check"),
        ),
        sa.PrimaryKeyConstraint("place", name=op.f("erasures_pkey")),
    )
    stages = op.create_table(
        "erasure_stages",
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=True),
        sa.Column("tried_at", sa.BigInteger(), nullable=True),
        sa.Column("done_at", sa.BigInteger(), nullable=True),
        sa.Column("obstacle", sa.Text(), nullable=True),
        sa.Column("blocked_since", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("stage IN ('compact', 'overwrite')", name=op.f("erasure_stages_stage_check")),
        sa.PrimaryKeyConstraint("stage", name=op.f("erasure_stages_pkey")),
    )
    op.bulk_insert(
        erasures,
        [
            {"place": place, "removed": removed, "overwritten": erased, "compacted": erased}
            for place, removed, erased in counted
        ],
    )
    op.bulk_insert(stages, [{"stage": "overwrite"}, {"stage": "compact"}])
