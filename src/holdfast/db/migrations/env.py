"""Alembic's entry: runs on the connection that `migrate.py` hands over, inside its transaction."""

from alembic import context

from holdfast.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    version_table="holdfast_version",  # an app that shares the database may use Alembic, too
    transactional_ddl=False,  # the transaction is ours: everything or nothing, version included
)
context.run_migrations()
