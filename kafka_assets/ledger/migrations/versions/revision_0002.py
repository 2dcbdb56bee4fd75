"""What keeps all of an asset from landing has a table of its own."""

from __future__ import annotations

from kafka_assets.ledger.migrations.frozen import run_frozen

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_frozen(revision)
