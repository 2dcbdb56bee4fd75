"""Blank tables: made here for an asset, empty, and nothing was ever committed into them.

Such a table is what a first attempt left behind that failed: a declaration that is corrected afterwards wants another
one, and nothing is lost with it. A table that somebody else made is never blank, nor is one that somebody has changed
since, nor one in which anything stands or ever landed.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, CursorResult, Engine, inspect, select, text
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from kafka_assets.errors import LedgerBusy, Retryable
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.trouble import code_of, translate
from kafka_assets.sinks.road import Road, quoted_table
from kafka_assets.sinks.shapes import Shape, standing
from kafka_assets.streams import table_parts

_GONE = {"42P01", 1146}
"""There is no such table any more."""
_GIVEN = text(
    "SELECT 1 FROM pg_class c WHERE c.oid = to_regclass(:table) AND (c.relacl IS NOT NULL OR c.relrowsecurity"
    " OR EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal))"
)
"""Whether a table of PostgreSQL's has rights, policies or triggers of somebody's."""
_TRIGGER = text(
    "SELECT 1 FROM information_schema.triggers"
    " WHERE event_object_schema = COALESCE(:schema, DATABASE()) AND event_object_table = :table"
)


def creation(connection: Connection, road: Road, shape: Shape, create: str) -> list[str]:
    """The statements that make a table by `create`, and write on it that it was made here, and how."""
    mark = _mark(shape.outline(road))
    if connection.dialect.name == "postgresql":
        return [create, f"COMMENT ON TABLE {quoted_table(road, shape.name)} IS '{mark}'"]
    if connection.dialect.name == "sqlite":
        # SQLite knows no comments on tables, but keeps the words by which one was made.
        return [create.replace("(\n", f"( /* {mark} */\n", 1)]
    return [f"{create} COMMENT='{mark}'"]


def is_made(connection: Connection, road: Road, name: str) -> bool:
    """Whether the table was made here, and stands as it was made.

    Nobody has changed its columns or its comment, and nobody has given it what would go with it: an index, a
    trigger or, on PostgreSQL, a right. (On MySQL and MariaDB rights are a name's, and stay.)
    """
    found = standing(connection, name)
    if found is None:
        return False
    schema, table = table_parts(name)
    mark = _mark(found.outline(road))
    if connection.dialect.name == "sqlite":
        listed = "sqlite_master" if schema is None else f"{road.quoted(schema)}.sqlite_master"
        # What the database has made by itself, as for a primary key, has no words.
        asked = text(f"SELECT sql FROM {listed} WHERE tbl_name = :table AND sql IS NOT NULL")
        words = list(connection.scalars(asked, {"table": table}))
        return len(words) == 1 and f"( /* {mark} */\n" in words[0]
    inspector = inspect(connection)
    try:
        if inspector.get_table_comment(table, schema)["text"] != mark or inspector.get_indexes(table, schema):
            return False
    except NoSuchTableError:  # a view, or what was dropped meanwhile
        return False
    postgresql = connection.dialect.name == "postgresql"
    asked = _GIVEN if postgresql else _TRIGGER
    named = {"table": quoted_table(road, name)} if postgresql else {"schema": schema, "table": table}
    return connection.execute(asked, named).first() is None


def _mark(outline: str) -> str:
    return f"made by kafka_assets as {outline}"


def is_empty(engine: Engine, road: Road, *, name: str, asset: str) -> bool:
    """Whether nothing stands in the table, and nothing of its asset was ever committed."""
    # In a transaction of its own: one that has read from a table cannot lock it beside another that has.
    with read(engine) as connection:
        return not _has_landed(connection, asset) and _has_no_row(connection, road, name)


def _has_landed(connection: Connection, asset: str) -> bool:
    p = t.publication.c
    landed = select(p.id).where(p.asset == asset, (p.state == "committed") | (p.records_read > 0)).limit(1)
    return connection.execute(landed).first() is not None


def _has_no_row(connection: Connection, road: Road, name: str) -> bool:
    try:
        return execute(connection, f"SELECT 1 FROM {quoted_table(road, name)} LIMIT 1").first() is None
    except DBAPIError as error:
        if code_of(error) not in _GONE:
            raise
        raise _changed(name) from error


@contextmanager
def alone(connection: Connection, road: Road, name: str) -> Generator[None]:
    """Have the table for oneself: whoever writes into it has committed, or comes afterwards.

    PostgreSQL's lock, and SQLite's, which is held already, end with the transaction. MySQL and MariaDB end a
    transaction by each DDL, but keep the tables that a session has locked: until it gives them back at the end of
    the block. Within it, this connection sees no other table.
    """
    if connection.dialect.name == "postgresql":
        execute(connection, f"LOCK TABLE {quoted_table(road, name)} IN ACCESS EXCLUSIVE MODE")
    elif connection.dialect.name != "sqlite":
        execute(connection, f"LOCK TABLES {quoted_table(road, name)} WRITE")
    try:
        yield
    finally:
        if connection.dialect.name not in ("postgresql", "sqlite") and not connection.invalidated:
            execute(connection, "UNLOCK TABLES")


def drop_blank(engine: Engine, connection: Connection, road: Road, *, name: str, asset: str) -> bool:
    """Drop the asset's table if it is blank; whether it was dropped.

    On MySQL and MariaDB the DROP stands at once: a process that is killed after it leaves no table, which the next
    one makes. What the database has against it (a view on the table, a right that misses) leaves the table as it is,
    and on PostgreSQL the transaction as good for nothing.

    Raises LedgerBusy where somebody works with the table, and does not end or has changed it at this moment.
    """
    # A table that is not blank is never locked.
    if not (is_made(connection, road, name) and is_empty(engine, road, name=name, asset=asset)):
        return False
    try:
        with alone(connection, road, name):
            with _ledger_beside(engine, connection) as ledger:
                landed = _has_landed(ledger, asset)
            if landed or not is_made(connection, road, name) or not _has_no_row(connection, road, name):
                raise _changed(name)
            execute(connection, f"DROP TABLE {quoted_table(road, name)}")
    except DBAPIError as error:
        if code_of(error) in _GONE:
            raise _changed(name) from error
        if isinstance(translate(error), Retryable):
            raise
        return False
    return True


def _changed(name: str) -> LedgerBusy:
    return LedgerBusy(f"the table {name!r} was changed at this moment", why="another process landed in it or made it")


def execute(connection: Connection, statement: str) -> CursorResult[Any]:
    """Run a statement without parameters: in its names a % is a %."""
    return connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


@contextmanager
def _ledger_beside(engine: Engine, connection: Connection) -> Generator[Connection]:
    """A connection that sees the ledger: this one, but on MySQL and MariaDB, where it may have locked another table."""
    if connection.dialect.name in ("postgresql", "sqlite"):
        yield connection
        return
    with read(engine) as other:
        yield other
