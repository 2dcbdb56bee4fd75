"""Target tables: made on request, owned by one asset, refused before any work where they do not fit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, insert, inspect, select
from sqlalchemy.exc import IntegrityError

from kafka_assets.errors import TableIncompatible
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.drivers import set_lock_timeout
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.retries import retried
from kafka_assets.records import OFFSET, PARTITION, SOURCE, TIMESTAMP
from kafka_assets.sinks.road import Road, Table
from kafka_assets.sinks.versions import hidden, key_types
from kafka_assets.streams import Upsert

if TYPE_CHECKING:
    import pyarrow as pa


_LOCK_SECONDS = 3
"""DDL that waits for a lock lets everybody else wait behind it."""
_LINEAGE: dict[str, str] = {SOURCE: "BIGINT", PARTITION: "INTEGER", OFFSET: "BIGINT"}


def ensure_table(
    engine: Engine, road: Road, *, name: str, asset: str, schema: pa.Schema, upsert: Upsert | None = None
) -> Table:
    """The target of an asset, made if it is not there; outside of any publishing transaction."""
    kinds: dict[str, Any] = dict(zip(schema.names, schema.types, strict=True))
    carried = (PARTITION, OFFSET) if upsert is None else (PARTITION, OFFSET, TIMESTAMP)
    wanted = _types(road, {column: kind for column, kind in kinds.items() if column not in carried})
    ours, key = _LINEAGE, tuple(_LINEAGE)
    if upsert is not None:
        wanted |= key_types(road, kinds, upsert)
        ours, key = hidden(upsert, kinds), upsert.key
    _refuse_names(name, wanted, reserved=(SOURCE,) if upsert is None else tuple(ours))
    table = Table(name=name, columns=tuple(wanted), types=tuple(wanted.values()), upsert=upsert)
    create = _create(road, name, ours, wanted, key=key)

    def ensure() -> None:
        with write(engine) as connection:
            set_lock_timeout(connection, _LOCK_SECONDS)
            _own(connection, table, asset=asset)
            existing = _columns(connection, name)
            if existing is None:
                # Without parameters a % is a %; MySQL commits here, and what is owned and missing is made by the next.
                connection.exec_driver_sql(create, execution_options={"no_parameters": True})
            else:
                if upsert is not None:
                    _compare_versions(connection, name, existing, {*ours, *wanted}, key)
                _compare(road, name, ours, wanted, existing)

    try:
        retried(ensure)
    except IntegrityError:
        # Another process took it for its own meanwhile: what stands now is looked at once more.
        retried(ensure)
    return table


def _own(connection: Connection, table: Table, *, asset: str) -> None:
    name = table.name
    mode = "append" if table.upsert is None else "upsert"
    owned = select(t.target.c.table_name, t.target.c.asset, t.target.c.mode)
    rows = connection.execute(owned.where((t.target.c.table_name == name) | (t.target.c.asset == asset))).all()
    owners: dict[str, str] = {row.table_name: row.asset for row in rows}
    if owners.get(name, asset) != asset:
        raise TableIncompatible(
            f"the table {name!r} belongs to the asset {owners[name]!r}, not to {asset!r}",
            why="two writers of one table could replace each other's rows",
            cure=f"declare another target for {asset!r}",
        )
    if owners and name not in owners:
        raise TableIncompatible(
            f"the table {name!r} cannot become the target of {asset!r}",
            why=f"the asset has the target {next(iter(owners))!r} in this ledger already, and an asset has one",
            cure="keep its target, or give the new declaration a new name",
        )
    if owners and rows[0].mode != mode:
        raise TableIncompatible(
            f"the table {name!r} lands in mode {rows[0].mode}, and {asset!r} is declared with mode {mode}",
            why="the two identify rows differently",
            cure="keep the mode, or give the new declaration a new name and target",
        )
    if not owners:
        keys = None if table.upsert is None else json.dumps(table.upsert.key)
        values = {"table_name": name, "asset": asset, "mode": mode, "key_columns": keys}
        connection.execute(insert(t.target).values(**values, created_at=now_ts()))


@dataclass(frozen=True)
class _Column:
    declared: str
    demanded: bool
    """Whether a row that does not name it is refused, or is filled with what nobody meant."""


def _columns(connection: Connection, name: str) -> dict[str, _Column] | None:
    inspector = inspect(connection)
    if not inspector.has_table(name):
        return None
    return {
        column["name"]: _Column(
            declared=column["type"].compile(dialect=connection.dialect),
            demanded=not column["nullable"]
            and column.get("default") is None
            and column.get("autoincrement") is not True
            and "computed" not in column
            and "identity" not in column,
        )
        for column in inspector.get_columns(name)
    }


def _types(road: Road, kinds: dict[str, Any]) -> dict[str, str]:
    types: dict[str, str] = {}
    for column, kind in kinds.items():
        found = road.column_type(kind)
        if found is None:
            raise TableIncompatible(
                f"the stream delivers a column {column!r} of type {kind}, and the database has no type that holds it",
                cure="cast it to another type in the transform",
            )
        types[column] = found
    return types


def _create(road: Road, name: str, ours: dict[str, str], columns: dict[str, str], *, key: Sequence[str]) -> str:
    lines = [
        *(f"{road.quoted(column)} {kind} NOT NULL" for column, kind in ours.items()),
        *(f"{road.quoted(column)} {kind}{' NOT NULL' if column in key else ''}" for column, kind in columns.items()),
        # The database itself refuses a record that lands twice, or a key that stands twice.
        f"PRIMARY KEY ({', '.join(road.quoted(column) for column in key)})",
    ]
    body = ",\n  ".join(lines)
    return f"CREATE TABLE {road.quoted(name)} (\n  {body}\n){road.table_options}"


def _compare_versions(
    connection: Connection, name: str, existing: Iterable[str], known: set[str], key: Sequence[str]
) -> None:
    """Rows must be found by the key that they have, and their versions be of one order."""
    others = [column for column in existing if column.startswith("kafka_") and column not in known]
    if others:
        raise TableIncompatible(
            f"the table {name!r} has a column {others[0]!r}: its rows are ordered by something else",
            why="versions of two orders do not compare",
            cure="declare the order_by that the table was made with, or another name and target",
        )
    found = inspect(connection).get_pk_constraint(name)["constrained_columns"]
    if sorted(found) != sorted(key):
        raise TableIncompatible(
            f"the table {name!r} has the primary key ({', '.join(found)}), the stream's key is ({', '.join(key)})",
            cure="declare the key that the table was made with, or another name and target",
        )


def _compare(road: Road, name: str, ours: dict[str, str], wanted: dict[str, str], existing: dict[str, _Column]) -> None:
    differences = [
        f"it has no column {column!r} ({kind})" for column, kind in (ours | wanted).items() if column not in existing
    ]
    for column, found in existing.items():
        if column in wanted:
            declared, delivered = road.plain_type(found.declared), road.plain_type(wanted[column])
            if declared != delivered:
                differences.append(f"column {column!r} is {declared}, the stream delivers {delivered}")
        elif column not in ours and found.demanded:
            differences.append(f"column {column!r} must have a value, and the stream delivers none")
    if differences:
        raise TableIncompatible(
            f"the table {name!r} cannot hold what the stream delivers: " + "; ".join(differences),
            cure="change the stream's schema or the table so that they agree, or declare another target",
        )


def _refuse_names(name: str, columns: dict[str, str], *, reserved: Sequence[str]) -> None:
    lowered = [column.lower() for column in columns]
    twice = sorted({column for column in lowered if lowered.count(column) > 1})
    if twice:
        raise TableIncompatible(
            f"the stream delivers two columns named {twice[0]!r}",
            why="SQL does not tell capitals apart in SQLite and MySQL",
            cure="rename one of them in the transform",
        )
    ours = [column for column in lowered if column in reserved]
    if ours:
        raise TableIncompatible(
            f"the stream delivers a column {ours[0]!r}",
            why="the table has one of that name, by which its rows are told apart",
            cure="rename it in the transform",
        )
    if name.lower().startswith("kafka_"):
        raise TableIncompatible(
            f"the target {name!r} begins with kafka_",
            why="those names belong to the ledger",
            cure="declare another target",
        )
