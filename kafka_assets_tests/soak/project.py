"""The project of the soaks: four streams of JSON records, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

STREAMS = [f"soak_{number}" for number in range(4)]
_STREAM = """\
type: kafka_assets.KafkaTopic
attributes:
  topic: {name}
  target: {name}
  schema: "id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2), placed_at TIMESTAMP, tags ARRAY<STRING>"
  slices: {{max_delay: 1s}}
"""
RECORD = '{"id": %d, "customer": "ada", "amount": 12.30, "placed_at": "2026-01-01T00:00:00Z", "tags": ["a", "b"]}'


def make_project(folder: Path) -> None:
    """Declare the streams in this folder; one that is there goes on."""
    (folder / "defs").mkdir(parents=True, exist_ok=True)
    (folder / "kafka_assets.toml").touch()
    for name in STREAMS:
        (folder / "defs" / f"{name}.yaml").write_text(_STREAM.format(name=name))
