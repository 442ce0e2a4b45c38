"""Slots, their owners and jobs, events, the audit of refused requests, counters."""

from alembic import op

from holdfast.stores.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first schema."""
    metadata.create_all(op.get_bind())
    op.bulk_insert(
        metadata.tables["counters"],
        [
            {"name": f"stale_write_rejected.{verb}", "value": 0}
            for verb in ("completed", "failed", "released", "forgotten", "extended", "guarded")
        ],
    )
    if op.get_context().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION holdfast_now() RETURNS bigint LANGUAGE sql STABLE AS "
            "$$ SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint $$"
        )
