"""Target tables: made on request, owned by one asset, refused before any work where they do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError

from kafka_assets.errors import TableIncompatible
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import write
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.sinks.road import Road, Table

if TYPE_CHECKING:
    import pyarrow as pa


def ensure_table(engine: Engine, road: Road, *, name: str, asset: str, schema: pa.Schema) -> Table:
    """The target of an asset, made if it is not there; outside of any publishing transaction."""
    kinds: dict[str, Any] = dict(zip(schema.names, schema.types, strict=True))
    wanted = {column: road.column_type(kind) for column, kind in kinds.items() if column not in (PARTITION, OFFSET)}
    _refuse_names(name, wanted)
    with write(engine) as connection:
        _own(connection, name=name, asset=asset)
        existing = _columns(connection, name)
        if existing is None:
            connection.execute(text(_create(engine, name, wanted).replace(":", "\\:")))
        else:
            _compare(name, wanted, existing)
    return Table(name=name, columns=tuple(wanted))


def _own(connection: Connection, *, name: str, asset: str) -> None:
    owner = connection.scalar(select(t.target.c.asset).where(t.target.c.table_name == name))
    if owner is None:
        try:
            connection.execute(
                insert(t.target).values(table_name=name, asset=asset, mode="append", created_at=now_ts())
            )
        except IntegrityError as error:
            raise TableIncompatible(
                f"the table {name!r} cannot become the target of {asset!r}",
                why="the asset has another target in this ledger already, and an asset has one",
                cure="keep its target, or give the new declaration a new name",
            ) from error
    elif owner != asset:
        raise TableIncompatible(
            f"the table {name!r} belongs to the asset {owner!r}, not to {asset!r}",
            why="two writers of one table could replace each other's rows",
            cure=f"declare another target for {asset!r}",
        )


def _columns(connection: Connection, name: str) -> dict[str, str] | None:
    inspector = inspect(connection)
    if not inspector.has_table(name):
        return None
    return {column["name"]: str(column["type"]).upper() for column in inspector.get_columns(name)}


def _create(engine: Engine, name: str, columns: dict[str, str]) -> str:
    quote = engine.dialect.identifier_preparer.quote_identifier
    lines = [
        f"{quote(SOURCE)} INTEGER NOT NULL",
        f"{quote(PARTITION)} INTEGER NOT NULL",
        f"{quote(OFFSET)} BIGINT NOT NULL",
        *(f"{quote(column)} {kind}" for column, kind in columns.items()),
        # The database itself refuses a record that lands twice.
        f"PRIMARY KEY ({quote(SOURCE)}, {quote(PARTITION)}, {quote(OFFSET)})",
    ]
    body = ",\n  ".join(lines)
    suffix = " WITHOUT ROWID" if engine.dialect.name == "sqlite" else ""
    return f"CREATE TABLE {quote(name)} (\n  {body}\n){suffix}"


def _compare(name: str, wanted: dict[str, str], existing: dict[str, str]) -> None:
    lineage = {SOURCE, PARTITION, OFFSET}
    differences = [
        f"it has no column {column!r} ({wanted.get(column, 'lineage')})"
        for column in (*sorted(lineage), *wanted)
        if column not in existing
    ]
    differences += [
        f"column {column!r} is {existing[column]}, the stream delivers {kind}"
        for column, kind in wanted.items()
        if column in existing and existing[column] != kind
    ]
    if differences:
        raise TableIncompatible(
            f"the table {name!r} cannot hold what the stream delivers: " + "; ".join(differences),
            cure="change the stream's schema or the table so that they agree, or declare another target",
        )


def _refuse_names(name: str, columns: dict[str, str]) -> None:
    lowered = [column.lower() for column in columns]
    twice = sorted({column for column in lowered if lowered.count(column) > 1})
    if twice:
        raise TableIncompatible(
            f"the stream delivers two columns named {twice[0]!r}",
            why="SQL does not tell capitals apart in SQLite and MySQL",
            cure="rename one of them in the transform",
        )
    if SOURCE in lowered:
        raise TableIncompatible(
            f"the stream delivers a column {SOURCE!r}",
            why="that is part of every row's lineage key",
            cure="rename it in the transform",
        )
    if name.lower().startswith("kafka_"):
        raise TableIncompatible(
            f"the target {name!r} begins with kafka_",
            why="those names belong to the ledger",
            cure="declare another target",
        )
