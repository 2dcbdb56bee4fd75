"""What Dagster is told of a slice: an echo of its publication row, and the query that gives the row back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import dagster as dg
from sqlalchemy import Engine, Row, select, text

from kafka_assets.ledger.constructs import target_clause
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.publications import Publication
from kafka_assets.ledger.views import lag
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.streams import Derived, Stream

PREVIEW_ROWS = 5
_WIDE = 80
"""A value longer than this is cut in a preview."""


def metadata_of(row: Row[Any], stream: Stream) -> dict[str, Any]:
    """The metadata of one key; the numbers plot in the UI."""
    seconds = (row.duration_ms or 0) / 1000
    return {
        "offsets": row.end_offset - row.start_offset,
        "records_read": row.records_read,
        "landed": row.landed,
        "filtered": row.filtered,
        **({"superseded": row.superseded, "tombstoned": row.tombstoned} if stream.upsert else {}),
        "quarantined": row.quarantined,
        "holes": row.holes,
        "expired": row.expired,
        "dagster/partition_row_count": row.rows_written,
        "bytes": row.bytes_read,
        "seconds": seconds,
        "rows_per_second": round(row.rows_written / seconds) if seconds else 0,
        "attempt": row.committed_attempt or 0,
        **({"made_of": row.fingerprint} if row.fingerprint and isinstance(stream, Derived) else {}),
        "committed_at": dg.MetadataValue.timestamp(row.committed_at),
        **_record_times(row),
        "lineage": dg.MetadataValue.md(f"```sql\n{lineage_query(row, stream)}\n```"),
    }


def step_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    """Where the run's time went, the same for all its keys; beside each other they plot."""
    return {f"seconds_{step}": round(took, 3) for step, took in seconds.items()}


def lineage_query(row: Row[Any], stream: Stream) -> str:
    return f"select * from kafka_lineage\nwhere asset = '{row.asset}' and slice_id = {row.slice_id};"


def lag_after(engine: Engine, stream: Stream) -> dict[tuple[str, int], int]:
    """Per topic and partition the offsets that still wait, as the last look at the broker has it."""
    v = lag.table.c
    with read(engine) as connection:
        rows = connection.execute(select(v.topic, v.topic_partition, v.lag).where(v.asset == stream.asset)).all()
    return {(row[0], row[1]): int(row[2]) for row in rows}


def preview(engine: Engine, stream: Stream, one: Publication) -> dict[str, Any]:
    """The first rows of a slice, as they stand in an append table; none where the stream wants none to be kept."""
    if stream.upsert is not None or not stream.preview:
        return {}
    o = target_clause(stream.target, SOURCE, PARTITION, OFFSET)
    mine = (
        select(text("*"))
        .select_from(o)
        .where(o.c[SOURCE] == one.source_id, o.c[PARTITION] == one.key.partition)
        .where(o.c[OFFSET] >= one.key.start, o.c[OFFSET] < one.key.end)
        .order_by(o.c[OFFSET])
        .limit(PREVIEW_ROWS)
    )
    with read(engine) as connection:
        found = connection.execute(mine)
        names, rows = list(found.keys()), found.all()
    if not rows:
        return {}
    lines = [
        [as_code(name) for name in names],
        ["---"] * len(names),
        *([as_code(value) for value in row] for row in rows),
    ]
    return {"preview": dg.MetadataValue.md("\n".join(f"| {' | '.join(line)} |" for line in lines))}


def as_code(value: object) -> str:
    """A value as code: nothing in it is a picture that a reader's browser would fetch, a link or a tag."""
    plain = " ".join(str(value).split())
    plain = plain if len(plain) <= _WIDE else plain[:_WIDE] + "…"
    # Code ends at a run of backticks that is as long as the one that began it.
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    return f"{fence} {plain} {fence}".replace("|", "\\|") if plain else ""


def _record_times(row: Row[Any]) -> Mapping[str, Any]:
    return {
        name: dg.MetadataValue.timestamp(value / 1000)
        for name, value in (("first_record_at", row.first_timestamp), ("last_record_at", row.last_timestamp))
        if value is not None
    }
