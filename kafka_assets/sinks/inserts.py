"""Rows by INSERT, for a MySQL or MariaDB that may not load files: several rows a statement."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import repeat
from typing import Any, cast

import pyarrow as pa
from sqlalchemy import Connection

from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.sinks.nested import json_texts
from kafka_assets.sinks.parts import filled
from kafka_assets.sinks.road import Road, Table, quoted_table

MAX_ROWS = 10_000


def insert_rows(connection: Connection, road: Road, table: Table, rows: pa.Table, *, source_id: int) -> None:
    """Insert rows; the driver puts as many into one statement as a server takes by default."""
    names = (SOURCE, PARTITION, OFFSET, *table.columns)
    listed = ", ".join(road.quoted(name) for name in names)
    into = f"INSERT INTO {quoted_table(road, table.name)} ({listed}) VALUES ".replace("%", "%%")
    statement = into + f"({', '.join(['%s'] * len(names))})"
    for batch in filled(rows, most=MAX_ROWS):
        columns = [_values(cast("pa.Array[Any]", batch.column(name))) for name in names[1:]]
        connection.exec_driver_sql(statement, list(zip(repeat(source_id, batch.num_rows), *columns, strict=True)))


def _values(column: pa.Array[Any]) -> list[Any]:
    if pa.types.is_nested(column.type):
        return json_texts(column)
    convert = _converter(column.type)
    plain: list[Any] = column.to_pylist()
    return plain if convert is None else [None if value is None else convert(value) for value in plain]


def _converter(kind: Any) -> Callable[[Any], Any] | None:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _in_utc
    return None


def _in_utc(value: datetime) -> datetime:
    """The driver writes a time without its zone."""
    return value.astimezone(UTC).replace(tzinfo=None)
