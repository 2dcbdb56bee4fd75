"""What the demo counts at its end."""

from __future__ import annotations

from sqlalchemy import Engine, text

from kafka_assets.audit.standing import count_table
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.planning import resolve_source


def test_rows_of_a_topic_that_was_deleted_are_not_counted_with_those_of_its_heir(engine: Engine) -> None:
    sources = [resolve_source(engine, stream="orders", topic="orders", topic_id=topic_id) for topic_id in ("a", "b")]
    with write(engine) as connection:
        connection.execute(
            text("create table orders (kafka_source integer, kafka_partition integer, kafka_offset integer)")
        )
        for source, rows in zip(sources, (3, 2), strict=True):
            for offset in range(rows):
                connection.execute(text(f"insert into orders values ({source.id}, 0, {offset})"))
    counted = count_table(engine, "orders", stream="orders")
    assert (counted.rows, counted.distinct) == (2, 2)
