"""What Dagster is told of a slice: an echo of its publication row, and the query that gives the row back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from sqlalchemy import Row

from kafka_assets.streams import Stream


def metadata_of(row: Row[Any], stream: Stream) -> Mapping[str, Any]:
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
        "committed_at": dg.MetadataValue.timestamp(row.committed_at),
        **_record_times(row),
        "lineage": dg.MetadataValue.md(f"```sql\n{lineage_query(row, stream)}\n```"),
    }


def lineage_query(row: Row[Any], stream: Stream) -> str:
    return (
        f"select * from kafka_lineage\nwhere asset = '{row.asset}' and table_name = '{stream.target}'\n"
        f"  and slice_id = {row.slice_id};"
    )


def _record_times(row: Row[Any]) -> Mapping[str, Any]:
    return {
        name: dg.MetadataValue.timestamp(value / 1000)
        for name, value in (("first_record_at", row.first_timestamp), ("last_record_at", row.last_timestamp))
        if value is not None
    }
