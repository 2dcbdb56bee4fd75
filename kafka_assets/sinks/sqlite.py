"""SQLite's road: chunks spooled to disk before its one lock is taken, then INSERTs of many rows each.

Only the standard library's SQLite touches the file: a second SQLite library in the process would drop
its locks when it closes a connection, and committed rows would be lost (measured).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from sqlalchemy import Connection

from kafka_assets.errors import CountsDisagree, TableIncompatible
from kafka_assets.ledger.constructs import storable
from kafka_assets.records import OFFSET, PARTITION, SOURCE, BadRecord, Chunk, Chunks, Refused
from kafka_assets.schema import compares
from kafka_assets.sinks.nested import json_texts
from kafka_assets.sinks.parts import filled
from kafka_assets.sinks.road import Table, quoted_table
from kafka_assets.sinks.spool import spool_folder, spool_place, spooling
from kafka_assets.sinks.sqlite_deferred import orphans
from kafka_assets.slices import SliceKey

_BAD = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.large_string()),
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("headers", pa.list_(pa.struct([("name", pa.large_string()), ("value", pa.large_binary())]))),
        ("timestamp", pa.int64()),
        ("code", pa.string()),
        ("field", pa.large_string()),
    ]
)

_EXACT_DIGITS = 15
"""A double holds so many decimal digits exactly: up to here a decimal is a number, beyond it is text."""
_SHORT_SCALE = 6
_MARKS = 999
"""Values in one statement: as many as every SQLite takes."""
_STATEMENTS = 40
"""Statements whose values are Python objects at the same time: so few that a processor's cache holds them."""


class SQLiteRoad:
    """Rows into SQLite, inside the caller's transaction."""

    spools = True
    table_options = " WITHOUT ROWID"
    misfits = frozenset({"nan"})  # it would become NULL without a word
    adds_one_column = True

    def __init__(self, database: str) -> None:
        self._place = spool_place(database)

    @contextmanager
    def spooled(self, chunks: Chunks) -> Generator[Chunks]:
        """Write the chunks to a folder of their own: the lock is then held for the rows alone, never for Spark."""
        with spool_folder(self._place) as folder:
            spooled: list[_Spooled] = []
            for number, chunk in enumerate(chunks()):
                rows = _written(chunk.rows, folder / f"{number}.arrow")
                deletes = None
                if chunk.deletes is not None:
                    deletes = _written(chunk.deletes, folder / f"{number}.deletes.arrow")
                bad = _written(table_of(chunk.bad), folder / f"{number}.bad.arrow") if chunk.bad else None
                left = replace(chunk, rows=chunk.rows.schema.empty_table(), deletes=None, bad=())
                spooled.append(_Spooled(left, rows, deletes, bad))

            yield lambda: (one.chunk_again() for one in spooled)

    def column_type(self, kind: Any) -> str | None:
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            return "INTEGER"
        if pa.types.is_floating(kind):
            return "REAL"
        if pa.types.is_decimal(kind):
            return "NUMERIC" if kind.precision <= _EXACT_DIGITS else "TEXT"
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return "BLOB"
        if pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_time(kind):
            return None
        return "TEXT"

    def key_type(self, kind: Any, *, of: int) -> str | None:
        return self.column_type(kind) if compares(kind) else None

    def plain_type(self, declared: str) -> str:
        plain = declared.upper()
        return "INTEGER" if "INT" in plain else plain  # what SQLite itself goes by

    def quoted(self, name: str) -> str:
        if not name or "\0" in name:
            raise TableIncompatible(f"SQLite cannot have a table or column named {name!r}", cure="choose another name")
        return '"' + name.replace('"', '""') + '"'

    def undefer(self, connection: Connection, table: Table) -> None:
        """Nothing can be done: what is deferred, SQLite checks at COMMIT alone."""

    def overdue(
        self, connection: Connection, table: Table, slices: Iterable[tuple[int, SliceKey]]
    ) -> Sequence[Refused]:
        return orphans(connection, self, table, slices)

    def insert(self, connection: Connection, table: Table, rows: pa.Table, *, source_id: int) -> int:
        if rows.num_rows == 0:
            return 0
        names = (PARTITION, OFFSET, *table.columns)
        listed = ", ".join(self.quoted(name) for name in (SOURCE, *names))
        into = f"INSERT INTO {quoted_table(self, table.name)} ({listed}) VALUES "
        row = f"({source_id}, {', '.join('?' * len(names))})"
        # Within one statement SQLite goes on where it stands in the table; each new one looks for the place again.
        together = max(_MARKS // len(names), 1)
        several = into + ", ".join([row] * together)
        for batch in filled(rows, most=together * _STATEMENTS):
            columns = [values(cast("pa.Array[Any]", batch.column(name))) for name in names]
            flat = chain.from_iterable(zip(*columns, strict=True))
            full = list(islice(zip(*repeat(flat, together * len(names)), strict=False), batch.num_rows // together))
            rest = list(zip(*repeat(flat, len(names)), strict=True))
            parts = ((several, full), (into + row, rest))
            taken = sum(connection.exec_driver_sql(*part).rowcount for part in parts if part[1])
            if taken != batch.num_rows:
                raise CountsDisagree(
                    f"{batch.num_rows} rows were sent to the table {table.name!r}, and {taken} arrived",
                    why="a trigger of the table takes rows away: RAISE(IGNORE)",
                    cure="remove it, or let it RAISE(ABORT, …): the records that it means are quarantined then",
                )
        return rows.num_rows


@dataclass(frozen=True)
class _Spooled:
    """A chunk whose rows and bytes lie on disk."""

    chunk: Chunk
    rows: Path
    deletes: Path | None
    bad: Path | None

    def chunk_again(self) -> Chunk:
        return replace(
            self.chunk,
            rows=_mapped(self.rows),
            deletes=None if self.deletes is None else _mapped(self.deletes),
            bad=() if self.bad is None else bad_of(_mapped(self.bad)),
        )


def table_of(bad: Sequence[BadRecord]) -> pa.Table:
    """Bad records as Arrow."""
    rows = [
        {
            **vars(one),
            "reason": storable(one.reason),
            "headers": [{"name": name, "value": value} for name, value in one.headers],
        }
        for one in bad
    ]
    return pa.Table.from_pylist(rows, _BAD)


def bad_of(table: pa.Table) -> tuple[BadRecord, ...]:
    """What `table_of` was made of."""
    found: list[dict[str, Any]] = table.to_pylist()
    for row in found:
        row["headers"] = tuple((one["name"], one["value"]) for one in row["headers"])
    return tuple(BadRecord(**row) for row in found)


def _written(rows: pa.Table, path: Path) -> Path:
    with spooling(path.parent.parent), pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return path


def _mapped(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def values(column: pa.Array[Any]) -> list[Any]:
    """A column as values that SQLite keeps as they are; Arrow writes the text, without a Python object in between."""
    kind: Any = column.type
    plain: Any = column
    if pa.types.is_nested(kind):
        return json_texts(column)
    if pa.types.is_boolean(kind):
        plain = plain.cast(pa.int8())
    elif pa.types.is_timestamp(kind):
        # UTC, so that text sorts as time does; without a zone, as it stands.
        plain = plain.cast(pa.timestamp("us", kind.tz)).view(pa.timestamp("us")).cast(pa.string())
    elif pa.types.is_decimal(kind):
        return _written_out(plain.cast(pa.string()).to_pylist(), scale=kind.scale)
    elif pa.types.is_date(kind):
        plain = plain.cast(pa.string())
    return plain.to_pylist()


def _written_out(numbers: list[str | None], *, scale: int) -> list[str | None]:
    """Decimals without exponents: Arrow writes one where a fraction begins with more than six zeros, and in 0E-10."""
    if scale <= _SHORT_SCALE:
        return numbers
    return [format(Decimal(one), "f") if one is not None and "E" in one else one for one in numbers]
