"""Indexes for pages of the queue: active jobs by base and by state, and jobs that ended without success."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def _only(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def upgrade() -> None:
    """Create the indexes. They are small: most owners are at rest, and most jobs have ended with success."""
    active = _only("status IN ('deleting', 'indexing', 'queued')")
    op.create_index("owners_active", "owners", ["status", "base", "id"], **active)
    op.create_index("jobs_queue_of_base", "jobs", ["base", "priority", "created_at", "id"], **_only("outcome IS NULL"))
    unsuccessful = _only("outcome <> 'success'")
    op.create_index("jobs_unsuccessful", "jobs", ["outcome", "finished_at", "id", "base"], **unsuccessful)
