"""Alembic's entry: runs the revisions on the connection that `arena.store.schema.migrate` hands over.

It opens no connection and reads no settings of its own, so a migration is always inside the caller's transaction.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

connection = context.config.attributes["connection"]
assert isinstance(connection, Connection)
context.configure(connection=connection, version_table_schema="arena", transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
