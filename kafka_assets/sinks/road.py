"""The port between the one transaction and a database's own fast way to take rows."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from kafka_assets.errors import SettingsError
from kafka_assets.ledger.schema import dialect_name
from kafka_assets.records import Chunks, Refused
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Upsert, table_parts


@dataclass(frozen=True)
class Table:
    """A target table: its name, and its own columns beside the lineage key."""

    name: str
    """Its own, or `schema.table` where that schema is not the connection's."""
    columns: tuple[str, ...]
    types: tuple[str, ...] = ()
    """The SQL types of the columns."""
    upsert: Upsert | None = None
    ordinal: bool = False
    """Whether its rows are those of whole slices: at the slice's start, told apart by an ordinal."""


class Road(Protocol):
    """One database's road from Arrow to rows; everything it does is inside the caller's transaction."""

    spools: bool
    """Whether all chunks are read before the transaction begins."""
    table_options: str
    """What follows the columns in CREATE TABLE."""
    adds_one_column: bool
    """Whether an ALTER TABLE adds no more than one column."""

    misfits: frozenset[str]
    """Values that its types cannot hold: `nul` in text, `nan` and `inf` among numbers."""

    def spooled(self, chunks: Chunks) -> AbstractContextManager[Chunks]:
        """Chunks as the transaction may read them, as often as it has to be retried.

        A database with one writer takes them all before its lock; others pass them through.
        """
        ...

    def column_type(self, kind: Any) -> str | None:
        """The SQL type of a column that holds values of this Arrow type exactly; None where there is none."""
        ...

    def key_type(self, kind: Any, *, of: int) -> str | None:
        """The SQL type of one of `of` columns of an upsert table's primary key; None where none compares exactly."""
        ...

    def plain_type(self, declared: str) -> str:
        """A declared type without what makes no difference to its values: one spelling for all that are equal."""
        ...

    def quoted(self, name: str) -> str:
        """A name as a statement carries it; refused where this database cannot hold it."""
        ...

    def undefer(self, connection: Connection, table: Table) -> None:
        """Have the table's own deferred constraints checked by each statement: at COMMIT no row is blamed any more."""
        ...

    def overdue(
        self, connection: Connection, table: Table, slices: Iterable[tuple[int, SliceKey]]
    ) -> Sequence[Refused]:
        """The rows of these slices, each with its source, that only COMMIT would refuse, without naming them."""
        ...

    def insert(self, connection: Connection, table: Table, rows: pa.Table, *, source_id: int) -> int:
        """Insert rows under their lineage key, and return how many there are now."""
        ...


def road_for(engine: Engine) -> Road:
    """The road of this engine's database."""
    if engine.dialect.name == "sqlite":
        from kafka_assets.sinks.sqlite import SQLiteRoad

        return SQLiteRoad(str(engine.url.database))
    if engine.dialect.name == "postgresql":
        from kafka_assets.sinks.postgresql import PostgreSQLRoad

        return PostgreSQLRoad()
    if engine.dialect.name in {"mysql", "mariadb"}:
        from kafka_assets.sinks.mysql import MySQLRoad

        return MySQLRoad(dialect_name(engine))
    raise SettingsError(
        f"{engine.dialect.name} cannot be a target",
        cure="use a sqlite:///, postgresql://, mariadb:// or mysql:// URL as KAFKA_ASSETS_DATABASE_URL",
    )


def quoted_table(road: Road, target: str) -> str:
    """A table as a statement carries it, in the schema that its name begins with."""
    schema, name = table_parts(target)
    return road.quoted(name) if schema is None else f"{road.quoted(schema)}.{road.quoted(name)}"


@contextmanager
def passed_through(chunks: Chunks) -> Generator[Chunks]:
    """Chunks as they come: read inside the transaction, and read again when that is retried."""
    yield chunks


def nothing_overdue(connection: Connection, table: Table, slices: Iterable[tuple[int, SliceKey]]) -> Sequence[Refused]:
    """For a database whose statements have refused everything before COMMIT."""
    return ()


@contextmanager
def driver_errors(connection: Connection, statement: str) -> Generator[None]:
    """What the driver raises where SQLAlchemy is passed by, as SQLAlchemy would have raised it."""
    base = cast("type[Exception]", connection.dialect.loaded_dbapi.Error)
    try:
        yield
    except base as error:
        driver = cast("Any", connection.connection.driver_connection)
        lost = connection.dialect.is_disconnect(cast("Any", error), driver, None)
        if lost:
            connection.invalidate()
        raise DBAPIError.instance(
            statement, None, error, base, connection_invalidated=lost, dialect=connection.dialect
        ) from error


def slice_of(keys: Sequence[SliceKey], *, partition: int, offset: int) -> SliceKey | None:
    """The slice among `keys` that covers an offset."""
    return next((key for key in keys if key.partition == partition and key.start <= offset < key.end), None)
