"""Cancelled slots have no error, and do not make the status of a served owner `degraded`."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Correct the rows of earlier versions."""
    op.execute("UPDATE slots SET error_code = NULL, error_params = NULL WHERE state = 'cancelled'")
    op.execute(
        """
        UPDATE owners SET status = 'success'
        WHERE status = 'degraded' AND NOT EXISTS (
          SELECT 1 FROM slots
          WHERE slots.owner_id = owners.id AND slots.state <> 'deleting'
          AND (slots.missing > 0 OR NOT (slots.state = 'ready' OR (slots.state = 'cancelled' AND slots.built > 0)))
        )
        """
    )
