"""The committed rows of slices, read back as Arrow: what a downstream asset on the same slices works on.

Which attempt was read is remembered, and asked again under the publication's lock just before what was made
of it commits: a replay of the upstream meanwhile is an error there, never a mixture of old and new rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, cast

import pyarrow as pa
from sqlalchemy import Connection, Engine, Row, inspect, select, tuple_

from kafka_assets.errors import RowsRefused, SliceRefused, TableIncompatible, UpstreamChanged
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import target_clause
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.publications import Publication, batches, find, lock_rows
from kafka_assets.records import OFFSET, ORDINAL, PARTITION, SOURCE, BadRecord, Refused
from kafka_assets.sinks.nested import json_text
from kafka_assets.sinks.road import Road, road_for
from kafka_assets.sinks.shapes import reflected, spelled
from kafka_assets.slices import SliceKey
from kafka_assets.streams import table_parts

BATCH = 50_000
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)(?:\((\d+), ?(\d+)\))?")
_KINDS: tuple[Any, ...] = (
    pa.int64(), pa.float64(), pa.bool_(), pa.int32(), pa.int16(), pa.int8(), pa.float32(), pa.string(), pa.binary(),
    pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(),
)  # fmt: skip
"""Text before times, which SQLite keeps as text: what nobody declared may be any."""


@dataclass(frozen=True)
class CommittedRows:
    """The rows that one asset committed for some slices, and the attempts that committed them."""

    engine: Engine
    asset: str
    table: str
    slices: Mapping[SliceKey, Publication]
    schema: pa.Schema

    def of(self, keys: Sequence[SliceKey]) -> CommittedRows:
        """Those of some of the slices, which alone are asked for again before they commit."""
        return replace(self, slices={key: self.slices[key] for key in keys})

    def batches(self, key: SliceKey) -> Iterator[pa.Table]:
        """The rows of one slice in the order of its offsets, a bounded number at a time, each in its own transaction:
        none stays open while Spark works on what it gave.
        """
        publication = self.slices[key]
        names = self.schema.names
        order = [name for name in (OFFSET, ORDINAL) if name in names]
        target = target_clause(self.table, SOURCE, *names)
        mine = (
            select(*(target.c[name] for name in names))
            .where(target.c[SOURCE] == publication.source_id, target.c[PARTITION] == key.partition)
            .where(target.c[OFFSET] >= key.start, target.c[OFFSET] < key.end)
            .order_by(*(target.c[name] for name in order))
            .limit(BATCH)
        )
        last: Row[Any] | None = None
        while True:
            wanted = mine
            if last is not None:
                after = [last[names.index(name)] for name in order]
                wanted = mine.where(tuple_(*(target.c[name] for name in order)) > tuple_(*after))
            with read(self.engine) as connection:
                rows = connection.execute(wanted).all()
            if rows:
                yield _arrow(rows, self.schema)
            if len(rows) < BATCH:
                return
            last = rows[-1]

    def as_records(self, refused: Sequence[Refused]) -> list[BadRecord]:
        """The rows at these places of one topic, as what is quarantined of them: their columns as JSON, no bytes."""
        found: list[BadRecord] = []
        target = target_clause(self.table, SOURCE, *self.schema.names)
        for key, some in self._places(refused).items():
            mine = select(*(target.c[name] for name in self.schema.names)).where(
                target.c[SOURCE] == self.slices[key].source_id, target.c[PARTITION] == key.partition
            )
            with read(self.engine) as connection:
                rows = [
                    row
                    for part in batches(sorted(some))
                    for row in connection.execute(mine.where(target.c[OFFSET].in_(part)).order_by(target.c[OFFSET]))
                ]
            if len(rows) != len(some):
                raise _replayed(self.slices[key], self.asset)
            for values in _arrow(rows, self.schema).to_pylist() if rows else []:
                offset = values.pop(OFFSET)
                value = json_text({name: one for name, one in values.items() if name != PARTITION}).encode()
                found.append(BadRecord(key.partition, offset, some[offset], None, value, (), None))
        return found

    def _places(self, refused: Sequence[Refused]) -> dict[SliceKey, dict[int, str]]:
        """By slice the reason at each offset."""
        places: dict[SliceKey, dict[int, str]] = {}
        for one in refused:
            keys = [
                key
                for key in self.slices
                if key.topic == one.topic and key.partition == one.partition and key.start <= one.offset < key.end
            ]
            if len(keys) > 1:
                raise RowsRefused(
                    f"the table refuses a row at offset {one.offset} of partition {one.partition} of {one.topic!r}",
                    why=f"{one.reason}; {keys[0]} and {keys[1]} both have that offset, so which row it is nobody knows",
                    cure="nothing: the sensor asks for the slices of a topic's two lives one by one",
                )
            places.setdefault(keys[0], {})[one.offset] = one.reason
        return places

    def recheck(self, connection: Connection) -> None:
        """Lock what was read until the end of this transaction, and see that it is still what was read."""
        read_as = {publication.id: publication for publication in self.slices.values()}
        lock_rows(connection, read_as, nowait=True)
        p = t.publication.c
        asked = select(p.id, p.state, p.committed_attempt)
        parts = batches(sorted(read_as))
        for row in (row for some in parts for row in connection.execute(asked.where(p.id.in_(some))).all()):
            was = read_as[row.id]
            if (row.state, row.committed_attempt) != ("committed", was.committed_attempt):
                raise _replayed(was, self.asset, f", and it stands at attempt {row.committed_attempt}")

    def fingerprints(self) -> dict[SliceKey, str]:
        """What stands in the ledger beside each result: the asset and attempt that it was made of."""
        return {key: f"{self.asset}@{one.committed_attempt}" for key, one in self.slices.items()}


def _replayed(was: Publication, asset: str, now: str = "") -> UpstreamChanged:
    return UpstreamChanged(
        f"slice {was.key} of {asset!r} was replayed while its rows were being read",
        why=f"attempt {was.committed_attempt} was read{now}",
        cure="nothing was written; run the slice again, and it reads the new rows",
    )


def committed_rows(
    engine: Engine, *, asset: str, target: str, keys: Sequence[SliceKey], declared: pa.Schema | None = None
) -> CommittedRows:
    """The committed rows of these slices; one that is not committed is refused.

    A column has the type that was declared for it, where the table has it as that type, else what the
    table's own type says. Nested values come as JSON text.
    """
    slices = find(engine, asset=asset, keys=keys)
    for one in slices.values():
        if one.kind != "normal":
            raise SliceRefused(f"slice {one.key} is recorded as {one.kind}", cure="nothing can be made of it")
    waiting = [one for one in slices.values() if one.state != "committed"]
    if waiting:
        raise UpstreamChanged(
            f"slice {waiting[0].key} of {asset!r} is not committed"
            + (f" (nor {len(waiting) - 1} more of this run)" if len(waiting) > 1 else ""),
            why=f"it is {waiting[0].state}",
            cure=f"materialize it in {asset!r} first; the sensor waits for that by itself",
        )
    return CommittedRows(engine, asset, target, slices, _schema(engine, target, declared))


def _schema(engine: Engine, name: str, declared: pa.Schema | None) -> pa.Schema:
    """The columns of the table, but for those of a type that no stream delivers: somebody else added them."""
    road = road_for(engine)
    with read(engine) as connection:
        inspector = inspect(connection)
        schema, table = table_parts(name)
        if not inspector.has_table(table, schema):
            raise TableIncompatible(
                f"there is no table {name!r}",
                why="its asset committed rows into it, and somebody took it away or gave it another name",
                cure="bring it back, or materialize the slices of its asset again, which makes it anew",
            )
        types = {one["name"]: spelled(one["type"], connection) for one in reflected(inspector, name)}
    ours: dict[str, Any] = {PARTITION: pa.int32(), OFFSET: pa.int64(), ORDINAL: pa.int64()}
    wished: dict[str, Any] = {} if declared is None else dict(zip(declared.names, declared.types, strict=True))
    kinds = {one: ours.get(one) or _kind(road, kind, wished.get(one)) for one, kind in types.items() if one != SOURCE}
    return pa.schema({one: kind for one, kind in kinds.items() if kind is not None})


def _kind(road: Road, declared: str, wished: Any) -> Any:
    """The Arrow type of a column: as declared, if that is what the table has it as, else what the table says."""
    plain = road.plain_type(declared)
    # MySQL and MariaDB show a truth as the one width of a TINYINT that means something.
    small = plain == "TINYINT" and declared.upper() != "TINYINT(1)"
    for kind in ([] if wished is None else [wished], (pa.int8(),) if small else _KINDS):
        for one in kind:
            made = road.column_type(one)
            if made is not None and road.plain_type(made) == plain:
                return pa.string() if pa.types.is_nested(one) else one
    if decimal := _DECIMAL.fullmatch(plain):
        return pa.decimal128(int(decimal[1] or 30), int(decimal[2] or (0 if decimal[1] else 15)))
    return pa.string() if any(word in plain for word in ("CHAR", "TEXT", "JSON")) else None


def _arrow(rows: Sequence[Row[Any]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    arrays = [_column(*one) for one in zip(schema.names, columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(name: str, values: Sequence[Any], kind: Any) -> Any:
    """One column; a value that is not of its type is an error, and never bent until it is."""
    convert = _converter(kind)
    made: list[Any] = []
    value = None
    try:
        for value in values:
            made.append(None if value is None else convert(value))
        return cast("Any", pa.array(made, kind))
    except (ValueError, KeyError, TypeError, OverflowError, ArithmeticError) as error:
        held = f"column {name!r} holds {value!r}" if len(made) < len(values) else f"column {name!r} holds a value"
        raise TableIncompatible(
            f"{held}, which is no {kind}",
            why="the table's own asset declares it as that, and its function makes something else of it",
            cure="give what the function makes another name than that of the declared field",
        ) from error


def _converter(kind: Any) -> Callable[[Any], Any]:
    """From what a driver gives to what Arrow takes: SQLite has times as text, MySQL truth as numbers."""
    if pa.types.is_decimal(kind):
        scale = Decimal(1).scaleb(-kind.scale)
        exactly = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
        return lambda value: Decimal(str(value)).quantize(scale, context=exactly)
    if pa.types.is_timestamp(kind):
        return lambda value: _time(value, aware=kind.tz is not None)
    if pa.types.is_date(kind):
        return lambda value: date.fromisoformat(value) if isinstance(value, str) else value
    if pa.types.is_string(kind):
        return lambda value: value if isinstance(value, str) else json_text(value)
    if pa.types.is_boolean(kind):
        return lambda value: {0: False, 1: True}[value]
    return {pa.binary(): bytes}.get(kind, _as_it_is)


def _as_it_is(value: Any) -> Any:
    return value


def _time(value: Any, *, aware: bool) -> datetime:
    found: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not aware:
        return found.replace(tzinfo=None)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
