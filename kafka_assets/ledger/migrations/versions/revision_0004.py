"""What was left out has an index, and what planning has looked through a mark: neither is read from all of history."""

from __future__ import annotations

from kafka_assets.ledger.migrations.frozen import run_frozen

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_frozen(revision)
