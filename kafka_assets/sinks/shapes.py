"""The shape of a target table: what the stream asks for, what stands in the database, and where they differ."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, inspect
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.engine.reflection import Inspector
from sqlalchemy.exc import SAWarning
from sqlalchemy.types import NullType, TypeEngine

from kafka_assets.errors import TableIncompatible
from kafka_assets.sinks.nested import leaves_of
from kafka_assets.sinks.road import Road, quoted_table
from kafka_assets.streams import table_parts


@dataclass(frozen=True)
class Shape:
    """The columns that a stream needs, with their SQL types, and the key by which rows are told apart."""

    name: str
    ours: Mapping[str, str]
    """What identifies and orders rows; never NULL."""
    columns: Mapping[str, str]
    """What the transform delivers."""
    key: tuple[str, ...]
    upsert: bool = False
    required: Collection[str] = ()
    """Columns that are declared NOT NULL: so they are in a table that is made, never in one that is widened."""

    def create(self, road: Road) -> str:
        lines = [
            *(f"{road.quoted(column)} {kind} NOT NULL" for column, kind in self.ours.items()),
            *(
                f"{road.quoted(column)} {kind}{' NOT NULL' if column in (*self.key, *self.required) else ''}"
                for column, kind in self.columns.items()
            ),
            # The database itself refuses a record that lands twice, or a key that stands twice.
            f"PRIMARY KEY ({self.listed_key(road)})",
        ]
        body = ",\n  ".join(lines)
        return f"CREATE TABLE {quoted_table(road, self.name)} (\n  {body}\n){road.table_options}"

    def add(self, road: Road, columns: Sequence[str]) -> list[str]:
        """Statements that add these columns, nullable: all in one where the database can, so under one lock."""
        parts = [f"ADD COLUMN {road.quoted(column)} {self.columns[column]}" for column in columns]
        clauses = parts if road.adds_one_column else [", ".join(parts)]
        return [f"ALTER TABLE {quoted_table(road, self.name)} {clause}" for clause in clauses]

    def outline(self, road: Road) -> str:
        """A digest of the table that `create` makes, by which it is known as long as nobody changes its columns."""
        demanded = {*self.ours, *self.key, *self.required}
        columns = {**self.ours, **self.columns}
        return _digest(road, {name: _Column(kind, name in demanded) for name, kind in columns.items()}, self.key)

    def listed_key(self, road: Road) -> str:
        return ", ".join(road.quoted(column) for column in self.key)


@dataclass(frozen=True)
class _Column:
    declared: str
    demanded: bool
    """Whether a row that does not name it is refused, or is filled with what nobody meant."""


@dataclass(frozen=True)
class Standing:
    """A table as it stands in the database."""

    columns: Mapping[str, _Column]
    key: tuple[str, ...]

    def outline(self, road: Road) -> str:
        """A digest of its columns and its key; that of the shape by which it was made, while it stands so."""
        return _digest(road, self.columns, self.key)


def _digest(road: Road, columns: Mapping[str, _Column], key: Sequence[str]) -> str:
    parts = [(name, road.plain_type(one.declared), one.demanded) for name, one in sorted(columns.items())]
    return hashlib.sha256(repr((parts, sorted(key))).encode()).hexdigest()[:12]


def standing(connection: Connection, name: str) -> Standing | None:
    """The table of this name; None where there is none."""
    inspector = inspect(connection)
    schema, table = table_parts(name)
    if not inspector.has_table(table, schema):
        return None
    columns = {
        column["name"]: _Column(
            declared=spelled(column["type"], connection),
            demanded=not column["nullable"]
            and column.get("default") is None
            and column.get("autoincrement") is not True
            and "computed" not in column
            and "identity" not in column,
        )
        for column in reflected(inspector, name)
    }
    return Standing(columns, tuple(inspector.get_pk_constraint(table, schema)["constrained_columns"]))


def reflected(inspector: Inspector, name: str) -> list[ReflectedColumn]:
    """The columns of a table. Somebody may have added one of any type: that is no reason for a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Did not recognize type", category=SAWarning)
        schema, table = table_parts(name)
        return inspector.get_columns(table, schema)


def spelled(kind: TypeEngine[Any], connection: Connection) -> str:
    """A column's type as SQL; of one that SQLAlchemy does not know, that no stream delivers it."""
    return "of an unknown type" if isinstance(kind, NullType) else kind.compile(dialect=connection.dialect)


def missing(road: Road, shape: Shape, found: Standing, *, evolve: bool) -> list[str]:
    """The columns that may be added; every other difference is refused, all of them at once."""
    names = {column.lower(): column for column in found.columns}
    lacking = [column for column in shape.columns if column.lower() not in names]
    addable = [column for column in lacking if evolve and column not in shape.key]
    differences = [
        *_key_differences(road, shape, found),
        *(
            f"it has no column {column!r} ({kind})"
            for column, kind in (*shape.ours.items(), *shape.columns.items())
            if column not in found.columns and column not in addable
        ),
        *_column_differences(road, shape, found),
    ]
    if differences:
        raise TableIncompatible(
            f"the table {shape.name!r} cannot hold what the stream delivers: " + "; ".join(differences),
            cure="change the stream's declaration or the table so that they agree, or declare another target"
            + (" (with evolve: add_columns, columns are added)" if lacking and not evolve else ""),
        )
    return addable


def _column_differences(road: Road, shape: Shape, found: Standing) -> list[str]:
    differences: list[str] = []
    wanted = {**shape.ours, **shape.columns}
    spelled = {column.lower(): column for column in wanted}
    for column, stands in found.columns.items():
        if column in wanted:
            declared, delivered = road.plain_type(stands.declared), road.plain_type(wanted[column])
            if declared != delivered:
                differences.append(f"column {column!r} is {declared}, the stream delivers {delivered}")
        elif (other := spelled.get(column.lower())) is not None:
            differences.append(f"column {column!r} is {other!r} in the stream, and capitals do not tell columns apart")
        elif shape.upsert and column.startswith("kafka_"):
            # Versions of two orders do not compare.
            differences.append(f"it has a column {column!r}: its rows are ordered by something else")
        elif stands.demanded:
            differences.append(f"column {column!r} must have a value, and the stream delivers none")
    return differences


def _key_differences(road: Road, shape: Shape, found: Standing) -> list[str]:
    """Exactly once is the primary key's work: without it a record could stand twice, and no merge find its row."""
    if sorted(found.key) == sorted(shape.key):
        return []
    wanted = shape.listed_key(road)
    has = f"the primary key ({', '.join(found.key)})" if found.key else "no primary key"
    if shape.upsert:
        return [f"it has {has}, the stream's key is ({wanted})"]
    return [
        f"it has {has}, and rows land exactly once only under PRIMARY KEY ({wanted}): "
        "make that its key (a key of your own can be UNIQUE), or rename it and let the table be made"
    ]


def sql_types(road: Road, kinds: Mapping[str, Any]) -> dict[str, str]:
    """The SQL type of each delivered column; refused where the database has none that holds its values."""
    types: dict[str, str] = {}
    for column, kind in kinds.items():
        found = road.column_type(kind)
        if found is None or any(map(_not_in_json, leaves_of(kind) if pa.types.is_nested(kind) else ())):
            raise TableIncompatible(
                f"the stream delivers a column {column!r} of type {kind}, and the database has no type that holds it",
                cure="cast it to another type in the transform",
            )
        types[column] = found
    return types


def _not_in_json(kind: Any) -> bool:
    return bool(pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind))


def refuse_names(name: str, columns: Mapping[str, str], *, reserved: Sequence[str]) -> None:
    """Refuse names that are ours, or that not every database tells apart."""
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
            why="the table, or its merge, has one of that name, by which rows are told apart",
            cure="rename it in the transform",
        )
    if name.lower().startswith("kafka_"):
        raise TableIncompatible(
            f"the target {name!r} begins with kafka_",
            why="those names belong to the ledger",
            cure="declare another target",
        )
