"""Alembic's entry: it is given a connection that is in a transaction already, and configures no logging."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table="kafka_ledger_version")
with context.begin_transaction():
    context.run_migrations()
