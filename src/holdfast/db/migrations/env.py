"""The entry point of Alembic. It uses the connection and the transaction of `migrate.py`."""

from alembic import context

from holdfast.db.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    version_table="holdfast_version",  # an application that shares the database may use Alembic, too
    transactional_ddl=False,  # `migrate.py` commits the changes and the new version together
)
context.run_migrations()
