"""Quarantine: the kind of a reason, its field, and how long key and value are in Kafka.

SQLite keeps a table's text as it was written, so there the table is made anew: else a ledger that was brought to this
revision and one that began with it would not look alike.
"""

from __future__ import annotations

from kafka_assets.ledger.migrations.frozen import run_frozen

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_frozen(revision)
