"""Keys, webhooks and answers kept for repeated requests."""

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Change nothing yet."""
