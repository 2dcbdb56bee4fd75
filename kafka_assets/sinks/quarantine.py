"""Records that could not become rows, kept with their bytes in the same transaction as their slice."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts, storable
from kafka_assets.ledger.index_hints import bad_of_slice
from kafka_assets.ledger.publications import Publication
from kafka_assets.reasons import Kind, kind_of
from kafka_assets.records import BadRecord
from kafka_assets.sinks.road import slice_of
from kafka_assets.slices import SliceKey

KEPT = 65_536
"""Bytes of a key, a value or a header that are kept; of what is longer it is the beginning, and Kafka has the rest."""
_MOST_HEADERS = 100
_REASON = 2000
"""Characters: whoever quarantines by hand may give an error's whole text."""


def delete_quarantine(connection: Connection, publication: Publication) -> None:
    """A replay quarantines anew: what was bad may be good under a corrected schema.

    By the whole key, as `delete_rows` does on MySQL: a search by slice would lock a neighbour's first row.
    """
    q = t.quarantine.c
    place = select(q.kafka_partition, q.kafka_offset, q.kafka_source)
    mine = place.where(q.slice_id == publication.slice_id, q.asset == publication.asset)
    found = connection.execute(bad_of_slice(mine)).all()
    if found:
        connection.execute(
            delete(t.quarantine).where(
                q.asset == publication.asset,
                q.kafka_source == bindparam("source"),
                q.kafka_partition == bindparam("partition"),
                q.kafka_offset == bindparam("offset"),
            ),
            [
                {"source": row.kafka_source, "partition": row.kafka_partition, "offset": row.kafka_offset}
                for row in found
            ],
        )


def insert_quarantine(connection: Connection, bad: Sequence[BadRecord], slices: Mapping[SliceKey, Publication]) -> None:
    """Keep the bad records of these slices; those of slices that are not wanted were kept before."""
    rows: list[dict[str, object]] = []
    for record in bad:
        key = slice_of(tuple(slices), partition=record.partition, offset=record.offset)
        if key is not None:
            rows.append(_row(record, slices[key]))
    if rows:
        connection.execute(insert(t.quarantine).values(quarantined_at=now_ts()), rows)


def headers_json(headers: Sequence[tuple[str, bytes | None]]) -> str | None:
    """Header values are bytes: text where they are UTF-8, else base64 under its own name."""
    if not headers:
        return None
    listed: list[dict[str, object]] = []
    left = KEPT
    for name, value in headers[:_MOST_HEADERS]:
        if len(name) + len(value or b"") > left:
            listed.append({"key": name[:left], "bytes": len(value or b"")})
            break
        left -= len(name) + len(value or b"")
        listed.append(_header(name, value))
    if len(listed) < len(headers):
        listed.append({"left_out": len(headers) - len(listed)})
    return json.dumps(listed, ensure_ascii=False)


def _header(name: str, value: bytes | None) -> dict[str, object]:
    if value is None:
        return {"key": name, "value": None}
    try:
        return {"key": name, "value": value.decode()}
    except UnicodeDecodeError:
        return {"key": name, "base64": base64.b64encode(value).decode()}


def _row(record: BadRecord, publication: Publication) -> dict[str, object]:
    kind = kind_of(record.reason) if record.code is None else Kind(record.code, record.field)
    return {
        "asset": publication.asset,
        "kafka_source": publication.source_id,
        "kafka_partition": record.partition,
        "kafka_offset": record.offset,
        "slice_id": publication.slice_id,
        "reason": storable(record.reason[:_REASON]),  # it may quote what the record says
        "key": None if record.key is None else record.key[:KEPT],
        "value": None if record.value is None else record.value[:KEPT],
        "headers": headers_json(record.headers),
        "kafka_timestamp": record.timestamp,
        "code": kind.code,
        "field": kind.field and storable(kind.field[:255]),
        "key_bytes": None if record.key is None else len(record.key),
        "value_bytes": None if record.value is None else len(record.value),
    }
