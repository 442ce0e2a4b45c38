"""The event log as people read it."""

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Change nothing yet."""
