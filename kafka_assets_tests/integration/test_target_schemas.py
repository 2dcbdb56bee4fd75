"""`target: schema.table` on real servers: a schema and a table, made there, for all that a table is used for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from sqlalchemy import Engine, inspect

from kafka_assets.assets.metadata import preview
from kafka_assets.audit.standing import count_table
from kafka_assets.errors import TableIncompatible
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.health import health
from kafka_assets.ledger.publications import find
from kafka_assets.sinks.committed_rows import committed_rows
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.streams import Upsert, declare
from kafka_assets_tests import upserts
from kafka_assets_tests.ledgers import ASSET, SCHEMA, Attempt, chunk_of, plan, rows, scalar

RAW = "raw or%ders"


@pytest.fixture
def target(engine: Engine) -> Iterator[str]:
    """A table in a schema that nobody has made."""
    yield f"{RAW}.orders%s"
    cascade = " CASCADE" if engine.dialect.name == "postgresql" else ""
    with write(engine) as connection:
        connection.exec_driver_sql(
            f"DROP SCHEMA {quoted(engine, RAW)}{cascade}", execution_options={"no_parameters": True}
        )


def quoted(engine: Engine, name: str) -> str:
    return road_for(engine).quoted(name)


def ensured(
    engine: Engine, target: str, *, asset: str = ASSET, upsert: Upsert | None = None, more: bool = False
) -> Table:
    schema = SCHEMA if upsert is None else upserts.SCHEMA
    schema = schema.append(pa.field("more", pa.int64())) if more else schema
    return ensure_table(engine, road_for(engine), name=target, asset=asset, schema=schema, upsert=upsert, evolve=True)


def test_an_append_table_is_made_filled_replayed_widened_and_read_there(engine: Engine, target: str) -> None:
    keys = plan(engine, slices=[(0, 5), (5, 9)])
    table = ensured(engine, target)
    assert inspect(engine).has_table("orders%s", RAW)
    assert not inspect(engine).has_table(target)
    Attempt(engine, keys).claim().publish(table=table)
    Attempt(engine, [keys[0]], replaces=True).claim(force=True).publish(chunk_of(keys[0], note="again"), table=table)
    assert ensured(engine, target, more=True).columns == ("id", "note", "more")
    counted = count_table(engine, target, stream=ASSET)
    assert (counted.rows, counted.distinct) == (9, 9)
    read = committed_rows(engine, asset=ASSET, target=target, keys=keys, declared=SCHEMA)
    assert [len(part.column("note").to_pylist()) for key in keys for part in read.batches(key)] == [5, 4]
    found = health(engine, asset=ASSET, target=target, counted=True)
    assert [one.rows_found for one in found.recent] == [4, 5]
    stream = declare(name=ASSET, topic="orders", target=target, schema="id BIGINT, note STRING")
    [first] = [one for key, one in find(engine, asset=ASSET, keys=keys).items() if key == keys[0]]
    assert "again" in preview(engine, stream, first)["preview"].value
    assert rows(engine, "select distinct table_name from kafka_lineage") == [(target,)]


def test_a_table_whose_whole_name_has_the_dot_gets_no_second_one_beside_it(engine: Engine) -> None:
    ensured(engine, "was_one")
    with write(engine) as connection:
        connection.exec_driver_sql(f"ALTER TABLE was_one RENAME TO {quoted(engine, 'was.one')}")
        connection.exec_driver_sql("UPDATE kafka_target SET table_name = 'was.one'")
    with pytest.raises(TableIncompatible, match="move the table"):
        ensured(engine, "was.one")
    assert not inspect(engine).has_schema("was")


def test_what_such_a_table_refuses_is_quarantined(engine: Engine, target: str) -> None:
    [key] = plan(engine, slices=[(0, 300)])
    table = ensured(engine, target)
    where = f"{quoted(engine, RAW)}.{quoted(engine, 'orders%s')}"
    with write(engine) as connection:
        connection.exec_driver_sql(
            f"ALTER TABLE {where} ADD CONSTRAINT no_threes CHECK (id <> 3)", execution_options={"no_parameters": True}
        )
    Attempt(engine, [key]).claim().publish(table=table)
    assert scalar(engine, "select kafka_offset from kafka_quarantine") == 3
    assert count_table(engine, target, stream=ASSET).rows == 299


def test_an_upsert_table_is_merged_there(engine: Engine, target: str) -> None:
    first, second = plan(engine, slices=[(0, 3), (3, 6)])
    table = ensured(engine, target, upsert=upserts.BY_OFFSET)
    for key, records in (
        (first, [upserts.Put(0, 1), upserts.Put(1, 2), upserts.Put(2, 3)]),
        (second, [upserts.Gone(3, 1), upserts.Put(4, 2, note="b"), upserts.Put(5, 4)]),
    ):
        attempt = Attempt(engine, [key], replaces=True).claim(force=True)
        attempt.publish(upserts.chunk_of(key, *records), table=table)
    where = f"{quoted(engine, RAW)}.{quoted(engine, 'orders%s')}"
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            f"SELECT id, note FROM {where} ORDER BY id", execution_options={"no_parameters": True}
        ).all()
    assert [tuple(one) for one in found] == [(2, "b"), (3, "a"), (4, "a")]
    assert upserts.tombstones(engine) == ['{"id":1}']


def test_one_table_has_one_owner_however_it_is_named(engine: Engine, target: str) -> None:
    ensured(engine, target)
    own = inspect(engine).default_schema_name
    plain = ensured(engine, "plain", asset="plain")
    assert ensured(engine, f"{own}.plain", asset="plain") == plain
    with pytest.raises(TableIncompatible, match="belongs to the asset 'plain'"):
        ensured(engine, f"{own}.plain", asset="other")
    # The same name in another schema is another table.
    ensured(engine, f"{RAW}.plain", asset="other")
    assert rows(engine, "select table_name from kafka_target order by table_name") == [
        ("plain",),
        (f"{RAW}.orders%s",),
        (f"{RAW}.plain",),
    ]
    with pytest.raises(TableIncompatible, match="those names belong to the ledger"):
        ensured(engine, f"{own}.kafka_more", asset="third")
