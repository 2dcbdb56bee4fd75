"""The parts that the ledger's tables are made of; none is made without a comment."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
    text,
)
from sqlalchemy import column as named
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

BIG = BigInteger()
ID = BigInteger().with_variant(Integer(), "sqlite")
"""A generated key: only INTEGER PRIMARY KEY counts up by itself in SQLite."""
NAME = String(255)
TOPIC = String(249)  # Kafka's own limit
WORD = String(16)
LONG_TEXT = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
LONG_BYTES = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")

metadata = MetaData()
PARTITION_NOT_NEGATIVE = named("partition") >= literal_column("0")  # a reserved word in MySQL: quoted where needed


def table(name: str, comment: str, *parts: Any) -> Table:
    # Asset, stream and topic names differ by case: MySQL compares them byte by byte only when told to.
    options: dict[str, Any] = {
        f"{dialect}_{option}": value
        for dialect in ("mysql", "mariadb")
        for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
    }
    return Table(name, metadata, *parts, comment=comment, **options)


def column(name: str, type_: TypeEngine[Any], comment: str, **options: Any) -> Column[Any]:
    return Column(name, type_, comment=comment, nullable=False, **options)


def optional(name: str, type_: TypeEngine[Any], comment: str) -> Column[Any]:
    return Column(name, type_, comment=comment, nullable=True)


def identity(comment: str) -> Column[Any]:
    return Column("id", ID, comment=comment, nullable=False, autoincrement=True)


def count(name: str, comment: str, type_: TypeEngine[Any] = BIG) -> Column[Any]:
    return Column(name, type_, comment=comment, nullable=False, server_default=text("0"))


def key(name: str, *columns: str, comment: str) -> PrimaryKeyConstraint:
    return PrimaryKeyConstraint(*columns, name=name, comment=comment)


def unique(name: str, *columns: str, comment: str) -> UniqueConstraint:
    return UniqueConstraint(*columns, name=name, comment=comment)


def check(name: str, rule: Any, *, comment: str) -> CheckConstraint:
    return CheckConstraint(text(rule) if isinstance(rule, str) else rule, name=name, comment=comment)


def reference(name: str, columns: str, to: str, *, comment: str) -> ForeignKeyConstraint:
    """`columns` to `to`, written as ``"source_id, partition"`` and ``"kafka_progress(source_id, partition)"``."""
    referred_table, _, referred = to.rstrip(")").partition("(")
    return ForeignKeyConstraint(
        columns.split(", "), [f"{referred_table}.{one}" for one in referred.split(", ")], name=name, comment=comment
    )


def index(name: str, *columns: str, where: str | None = None, comment: str) -> Index:
    """An index; of only the rows `where`, in the databases that can."""
    partial: dict[str, Any] = {} if where is None else {"sqlite_where": text(where), "postgresql_where": text(where)}
    return Index(name, *columns, info={"comment": comment}, **partial)
