"""What every database says in its own words: the clock, and the time.

Leases are compared on the database's clock alone, read when the statement runs: a client's clock
may be wrong, and PostgreSQL's now() stands still for a whole transaction.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnClause, DateTime, Dialect, TableClause, column, table
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from kafka_assets.streams import table_parts


def storable(text: str) -> str:
    """The text as every database holds it: PostgreSQL's has no NUL, and UTF-8 has no half of a surrogate pair."""
    return text.replace("\0", "\u2400").encode(errors="replace").decode()


def target_clause(target: str, *columns: str) -> TableClause:
    """A target table for statements, in the schema that its name begins with."""
    schema, name = table_parts(target)
    named: list[ColumnClause[Any]] = [column(one) for one in columns]
    return table(name, *named, schema=schema)


class Timestamp(TypeDecorator[datetime]):
    """A time for people to read: UTC in every database, aware in Python."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in {"mysql", "mariadb"}:
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime(timezone=True))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        aware = value.astimezone(UTC)  # a naive value is meant in the machine's own zone, as Python has it
        return aware if dialect.name == "postgresql" else aware.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


class now_ms(FunctionElement[int]):  # noqa: N801 - a function to whoever writes a statement
    """Milliseconds since 1970 on the database's clock, when the statement runs."""

    type = BigInteger()
    inherit_cache = True


class now_ts(FunctionElement[datetime]):  # noqa: N801
    """The time on the database's clock, when the statement runs, as a :class:`Timestamp`."""

    type = Timestamp()
    inherit_cache = True


def _sqlite_now_ms(element: object, compiler: object, **kw: object) -> str:
    # unixepoch('subsec') would be NULL before SQLite 3.42; julianday is exact to the millisecond.
    return "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"


def _postgresql_now_ms(element: object, compiler: object, **kw: object) -> str:
    return "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"


def _mysql_now_ms(element: object, compiler: object, **kw: object) -> str:
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"


def _sqlite_now_ts(element: object, compiler: object, **kw: object) -> str:
    return "(strftime('%Y-%m-%d %H:%M:%f', 'now') || '000')"


def _postgresql_now_ts(element: object, compiler: object, **kw: object) -> str:
    return "clock_timestamp()"


def _mysql_now_ts(element: object, compiler: object, **kw: object) -> str:
    return "UTC_TIMESTAMP(6)"


compiles(now_ms, "sqlite")(_sqlite_now_ms)
compiles(now_ms, "postgresql")(_postgresql_now_ms)
compiles(now_ms, "mysql", "mariadb")(_mysql_now_ms)
compiles(now_ts, "sqlite")(_sqlite_now_ts)
compiles(now_ts, "postgresql")(_postgresql_now_ts)
compiles(now_ts, "mysql", "mariadb")(_mysql_now_ts)
