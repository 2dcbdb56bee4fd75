"""A table of the caller's own, and what the tests of the ledger's commit mode do with each record."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, text

from kafka_assets.ledger.engine import read, write

INSERT = text("INSERT INTO handled (kafka_partition, kafka_offset, number) VALUES (:partition, :offset, :number)")


def own_table(engine: Engine, *, unique: bool = False) -> Engine:
    """A table that would take the same record twice, unless it is `unique`."""
    rule = ", UNIQUE (kafka_partition, kafka_offset)" if unique else ""
    with write(engine) as sql:
        sql.execute(text(f"CREATE TABLE handled (kafka_partition INT, kafka_offset BIGINT, number BIGINT{rule})"))
    return engine


def handle(sql: Any, record: Any) -> None:
    row = {"partition": record.partition, "offset": record.offset, "number": int(record.value)}
    sql.execute(INSERT, row)


def rows(engine: Engine) -> list[tuple[int, int]]:
    with read(engine) as sql:
        found = sql.execute(text("SELECT kafka_partition, number FROM handled ORDER BY 1, 2")).all()
    return [(one[0], one[1]) for one in found]


def in_order(engine: Engine) -> None:
    """The ledger has no gap, and adds up."""
    with read(engine) as sql:
        assert sql.execute(text("SELECT * FROM kafka_gap")).all() == []
