"""Upsert rows on their way to the merge: each with its key's digest and with its version, as columns of Arrow.

A version is the topic's incarnation, then the offset; or, where `order_by` names a value, the incarnation,
that value as a number, the partition and the offset. So no two records have the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from kafka_assets.errors import TableIncompatible
from kafka_assets.records import OFFSET, PARTITION, SOURCE, TIMESTAMP
from kafka_assets.schema import orders
from kafka_assets.sinks.nested import json_text
from kafka_assets.sinks.road import Road
from kafka_assets.streams import Upsert

INCARNATION = "kafka_incarnation"
PUBLICATION = "kafka_publication"
DIGEST = "kafka_digest"
KEY_TEXT = "kafka_key_text"
DELETED = "kafka_deleted"
WORKING = (PUBLICATION, DIGEST, KEY_TEXT, DELETED)
"""Columns that rows have beside their own until they are merged."""

_TEXT = pa.large_string()


def order_column(upsert: Upsert) -> str | None:
    """The column in which a row keeps its order value; its name says what was ordered by. None: the offset orders."""
    if upsert.order_by == "offset":
        return None
    return TIMESTAMP if upsert.order_by == TIMESTAMP else f"kafka_order_{upsert.order_by}"


def version_columns(upsert: Upsert) -> tuple[str, ...]:
    """The columns of a version, the first one weighs most."""
    ordered = order_column(upsert)
    return (INCARNATION, OFFSET) if ordered is None else (INCARNATION, ordered, PARTITION, OFFSET)


def hidden(upsert: Upsert, kinds: Mapping[str, Any]) -> dict[str, str]:
    """What an upsert table has beside the user's columns, with types."""
    columns = {SOURCE: "BIGINT", INCARNATION: "INTEGER", PARTITION: "INTEGER", OFFSET: "BIGINT"}
    ordered = order_column(upsert)
    if ordered is None:
        return columns
    kind = kinds.get(upsert.order_by)
    if kind is None:
        raise TableIncompatible(
            f"the stream delivers no column {upsert.order_by!r}, and is declared with order_by: {upsert.order_by}",
            cure="let it through in the transform, or declare another order_by",
        )
    if not orders(kind):
        raise TableIncompatible(
            f"the column {upsert.order_by!r} of type {kind} cannot order versions",
            why="only whole numbers, dates and timestamps compare alike in every database",
            cure="declare another order_by, or cast the column in the transform",
        )
    return {**columns, ordered: "BIGINT"}


def key_types(road: Road, kinds: Mapping[str, Any], upsert: Upsert) -> dict[str, str]:
    """The SQL types of the key's columns; refused where they cannot be a primary key."""
    types: dict[str, str] = {}
    for column in upsert.key:
        if column not in kinds:
            raise TableIncompatible(
                f"the stream delivers no column {column!r}, and it is part of the key",
                cure="let it through in the transform, or declare another key",
            )
        found = road.key_type(kinds[column], of=len(upsert.key))
        if found is None:
            raise TableIncompatible(
                f"the column {column!r} of type {kinds[column]} cannot be part of a key",
                why="values of that type that are equal here may differ there",
                cure="cast it to a number without fraction, a text, a date or a timestamp in the transform",
            )
        types[column] = found
    return types


def versioned(rows: pa.Table, upsert: Upsert, *, deleted: bool) -> pa.Table:
    """Rows with what the merge compares them by."""
    count = rows.num_rows
    keyed = [(name, _plain(rows.column(name))) for name in upsert.key]
    added: dict[str, Any] = {
        DIGEST: pa.array(_digests([column for _, column in keyed]), pa.string()),
        DELETED: pa.repeat(pa.scalar(int(deleted), pa.int16()), count),
        # Only a tombstone shows its key: rows have it in their own columns.
        KEY_TEXT: pa.array(_texts(rows.select(list(upsert.key))), pa.string()) if deleted else pa.nulls(count, _TEXT),
    }
    ordered = order_column(upsert)
    if ordered is not None:
        added[ordered] = _number(rows.column(upsert.order_by))
    for name, column in added.items():
        # order_by: kafka_timestamp is kept under the same name, as a number.
        rows = rows.drop_columns([name]) if name in rows.column_names else rows
        rows = rows.append_column(name, column)
    return rows


def completed(deletes: pa.Table, schema: pa.Schema) -> pa.Table:
    """Deletes as rows of the same columns, in which all that they do not know is NULL."""
    kinds: dict[str, Any] = dict(zip(schema.names, schema.types, strict=True))
    columns: list[Any] = [
        deletes.column(name).cast(kind) if name in deletes.column_names else pa.nulls(deletes.num_rows, kind)
        for name, kind in kinds.items()
    ]
    return pa.table(columns, names=schema.names)


def _number(column: Any) -> Any:
    """Microseconds, days or the number itself: one unit for each type, so that values compare."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    return column.cast(pa.int64())


def _plain(column: Any) -> Any:
    """A key's column as text, the same for the same value whatever record carried it."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values: list[bytes | None] = column.to_pylist()
        return pa.array([None if value is None else value.hex() for value in values], _TEXT)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        column = _number(column)
    text: Any = column.cast(_TEXT)
    return text.combine_chunks()


def _digests(columns: Sequence[Any]) -> list[str]:
    """SHA-256 of the key; each part with its length before it, so that no two keys read alike."""
    colon = pa.scalar(":", _TEXT)
    join: Any = pc.binary_join_element_wise
    parts: list[Any] = []
    for column in columns:
        parts += [pc.binary_length(column).cast(_TEXT), column]
    joined: list[bytes | None] = join(*parts, colon).cast(pa.large_binary()).to_pylist()
    # A row without its key has no digest: the temporary table refuses it.
    return cast("list[str]", [None if one is None else sha256(one).hexdigest() for one in joined])


def _texts(keys: pa.Table) -> list[str]:
    return [json_text({name: _shown(value) for name, value in key.items()}) for key in keys.to_pylist()]


def _shown(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
