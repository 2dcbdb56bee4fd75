"""The ledger's schema as SQL to read, in each database's own words."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import (
    CheckConstraint,
    Column,
    Constraint,
    Dialect,
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    make_url,
)
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from kafka_assets.ledger.tables import TABLES, ledger_version
from kafka_assets.ledger.views import VIEWS, View

DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "mariadb": "mariadb+pymysql",
    "mysql": "mysql+pymysql",
}
"""The databases, and the one driver through which this package speaks to each."""

_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL"}
_ORDER = (PrimaryKeyConstraint, UniqueConstraint, ForeignKeyConstraint, CheckConstraint)


def script(dialect_name: str, *, revision: str) -> str:
    """All of the ledger, for somebody who makes schemas by hand; ends by saying which revision it is."""
    header = (
        f"-- The ledger of kafka_assets in {_NAMES[dialect_name]}, as of revision {revision}.\n"
        "-- Rendered from kafka_assets/ledger by `kafka-assets db sql`; a change is made there.\n\n"
    )
    parts = [*version_statements(dialect_name), *statements(dialect_name)]
    parts.append(f"INSERT INTO {ledger_version.name} (version_num) VALUES ('{revision}')")
    return header + joined(parts)


def version_statements(dialect_name: str) -> list[str]:
    """The table that says which revision a ledger stands at, made before the first of them."""
    return list(_table(ledger_version, dialect_of(dialect_name)))


def statements(dialect_name: str) -> list[str]:
    """The ledger's tables, indexes, comments and views, in an order in which they can be made."""
    dialect = dialect_of(dialect_name)
    made: list[str] = []
    for table in TABLES:
        made += _table(table, dialect)
    for view in VIEWS:
        made += _view(view, dialect)
    return made


def joined(parts: list[str]) -> str:
    return "".join(f"{part};\n\n" for part in parts).rstrip("\n") + "\n"


def split(sql: str) -> list[str]:
    """The statements of a rendered script: each ends with a semicolon and an empty line."""
    return [part for part in (text.strip().removesuffix(";") for text in sql.split(";\n\n")) if part]


def dialect_of(dialect_name: str) -> Dialect:
    return make_url(f"{DRIVERS[dialect_name]}://").get_dialect()()


def _table(table: Table, dialect: Dialect) -> Iterator[str]:
    compiler = dialect.ddl_compiler(dialect, CreateTable(table))
    lines: list[tuple[str | None, str]] = [
        # SQLite keeps a table's text as it was written: its comments stay with the columns.
        (column.comment if dialect.name == "sqlite" else None, compiler.process(CreateColumn(column)))
        for column in table.columns
    ]
    constraints = sorted(table.constraints, key=_rank)
    for constraint in constraints:
        said = None if dialect.name == "postgresql" else constraint.comment
        lines.append((said, compiler.process(constraint)))
    body = ",\n".join((f"    -- {said}\n" if said else "") + f"    {line}" for said, line in lines)
    above = "" if dialect.name == "postgresql" else f"-- {table.comment}\n"
    if dialect.name in {"mysql", "mariadb"}:
        suffix = _mysql_options(table, dialect)
    else:
        suffix = " ".join(compiler.post_create_table(table).split("\n")).strip()
    yield f"{above}CREATE TABLE {table.name} (\n{body}\n)" + (f" {suffix}" if suffix else "")
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    for index in indexes:
        yield _index(index, dialect)
    if dialect.name == "postgresql":
        yield _comment("TABLE", table.name, table.comment)
        for column in table.columns:
            yield _comment("COLUMN", _qualified(table, column, dialect), column.comment)
        for constraint in constraints:
            yield _comment("CONSTRAINT", f"{constraint.name} ON {table.name}", constraint.comment)
        for index in indexes:
            yield _comment("INDEX", str(index.name), index.info["comment"])


def _mysql_options(table: Table, dialect: Dialect) -> str:
    """In one order: SQLAlchemy up to 2.0.52 writes them in another one in each process."""
    options = table.dialect_options[dialect.name]
    charset = f"ENGINE={options['engine']} CHARSET={options['charset']}"
    return f"{charset} COMMENT={_quoted(table.comment or '')} COLLATE {options['collate']}"


def _rank(constraint: Constraint) -> tuple[int, str]:
    return _ORDER.index(type(constraint)), str(constraint.name)


def _index(index: Index, dialect: Dialect) -> str:
    made = str(CreateIndex(index).compile(dialect=dialect)).strip()
    said = index.info["comment"]
    if dialect.name in {"mysql", "mariadb"}:
        return f"{made} COMMENT {_quoted(said)}"
    return made if dialect.name == "postgresql" else f"-- {said}\n{made}"


def _view(view: View, dialect: Dialect) -> Iterator[str]:
    # As MySQL's default has it, a view dies with the user who made it.
    security = "SQL SECURITY INVOKER " if dialect.name in {"mysql", "mariadb"} else ""
    query = view.query.replace('"', dialect.identifier_preparer.initial_quote)
    yield f"-- {view.comment}\nCREATE {security}VIEW {view.name} AS\n{query}"
    if dialect.name == "postgresql":
        yield _comment("VIEW", view.name, view.comment)


def _qualified(table: Table, column: Column[object], dialect: Dialect) -> str:
    return f"{table.name}.{dialect.identifier_preparer.quote(column.name)}"


def _comment(kind: str, name: str, said: str | None) -> str:
    return f"COMMENT ON {kind} {name} IS {_quoted(said or '')}"


def _quoted(said: str) -> str:
    return "'" + said.replace("'", "''") + "'"
