"""Alembic's entry: run the revisions on the connection that db.migrate lends."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table_schema="public")
with context.begin_transaction():
    context.run_migrations()
