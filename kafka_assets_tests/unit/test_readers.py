"""An asset's rows are those of one stream, and in mode upsert of one topic: what else is declared is refused."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.assets.by_hand import Planned, plan_now, preview
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import StreamError
from kafka_assets.live import taking
from kafka_assets.live.taking import Taking
from kafka_assets.sinks.road import road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.ledgers import ASSET, SCHEMA, rows, scalar
from kafka_assets_tests.ticking import Desk, orders

UPSERT = {"mode": "upsert", "key": ["id"]}


def everything(engine: Engine) -> list[Any]:
    """What is known, planned and landed."""
    return [
        rows(engine, f"select * from {table} order by id")
        for table in ("kafka_source", "kafka_slice", "kafka_publication", "orders")
    ]


def landed(desk: Desk, records: int = 5) -> Desk:
    desk.broker.set("orders", records)
    desk.settle()
    assert scalar(desk.engine, "select count(*) from orders") == records
    return desk


def renamed() -> Stream:
    return orders(name="orders_renamed", group=ASSET)


def test_a_renamed_asset_that_keeps_its_group_lands_nothing_again(desk: Desk) -> None:
    before = everything(landed(desk).engine)
    desk.stream = renamed()
    tick = desk.tick()
    assert tick.requests == []
    assert everything(desk.engine) == before
    [said] = tick.troubles
    assert "the group 'orders', under which the stream 'orders' has landed" in said
    assert "give the stream the name 'orders' again" in said


def test_neither_does_a_stream_of_the_ledger_that_takes_another_ones_group(desk: Desk) -> None:
    landed(desk).broker.set("payments", 5, topic_id="id-2")
    other = orders(name="payments", topic="payments", target="payments")
    desk.others = [other]
    desk.tick()
    desk.stream, desk.others = other.model_copy(update={"group": ASSET}), []
    assert "under which the stream 'orders' has landed" in desk.tick().troubles[0]
    assert scalar(desk.engine, "select count(*) from kafka_publication where asset = 'orders'") == 1


def test_who_plans_by_hand_is_told_the_same(desk: Desk) -> None:
    before = everything(landed(desk).engine)
    for plan in (preview, plan_now):
        found: Planned = plan(desk.engine, Connection("nowhere:1"), [renamed()])
        assert found.slices == []
        assert "under which the stream 'orders' has landed" in found.troubles[0]
        assert everything(desk.engine) == before


def test_and_who_lands_it_live(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(landed(desk).engine)
    monkeypatch.setattr(taking, "observe", desk.broker.observe)
    with pytest.raises(StreamError, match="under which the stream 'orders' has landed"):
        Taking(desk.engine, Connection("nowhere:1"), renamed(), owner="me", lease_ms=60_000).look()
    assert everything(desk.engine) == before


def test_the_others_go_on(desk: Desk) -> None:
    landed(desk).broker.set("payments", 5, topic_id="id-2")
    desk.stream = renamed()
    desk.others = [orders(name="payments", topic="payments", target="payments")]
    assert desk.tick().planned == 1
    assert scalar(desk.engine, "select count(*) from kafka_publication where asset = 'payments'") == 1


def test_an_upsert_stream_whose_topic_changes_is_refused(desk: Desk) -> None:
    desk.stream = orders(**UPSERT)
    desk.broker.set("orders", 5)
    desk.broker.set("orders_v2", 5, topic_id="id-2")
    desk.tick()
    before = rows(desk.engine, "select * from kafka_source"), rows(desk.engine, "select * from kafka_slice")
    desk.stream = orders(**UPSERT, topic="orders_v2")
    tick = desk.tick()
    assert tick.requests == []
    assert "reads the topic 'orders_v2', and its table has rows of 'orders'" in tick.troubles[0]
    assert "under a new name and target" in tick.troubles[0]
    after = rows(desk.engine, "select * from kafka_source"), rows(desk.engine, "select * from kafka_slice")
    assert after == before


def test_an_append_stream_may_change_its_topic(desk: Desk) -> None:
    landed(desk).broker.set("orders_v2", 3, topic_id="id-2")
    desk.stream = orders(topic="orders_v2")
    assert desk.tick().troubles == []
    assert scalar(desk.engine, "select count(distinct topic) from kafka_source") == 2


def test_an_asset_on_the_slices_of_a_renamed_one_does_not_take_them_all_again(desk: Desk) -> None:
    below: dict[str, Any] = {"schema": "id BIGINT", "topic": "orders", "upstream": ASSET, "upstream_target": "orders"}
    derived = declare(name="below", target="below", root=ASSET, **below)
    landed(desk).others = [derived]
    desk.tick()
    made = scalar(desk.engine, "select count(*) from kafka_publication where asset = 'below'")
    assert made == 1
    desk.stream = orders(name="orders_renamed", target="orders_renamed")
    moved = derived.model_copy(update={"root": "orders_renamed", "upstream": "orders_renamed"})
    desk.others = [moved]
    [said] = desk.tick().troubles
    assert "on the slices of 'orders_renamed', and has landed those of 'orders'" in said
    assert scalar(desk.engine, "select count(*) from kafka_publication where asset = 'below'") == made
    with pytest.raises(StreamError, match="has landed those of 'orders'"):
        SliceIOManager(database_url=str(desk.engine.url)).upstream_rows(moved, [])


def test_a_schema_is_refused_where_the_database_has_none_before_anything_is_planned(desk: Desk) -> None:
    desk.broker.set("orders", 5)
    desk.stream = orders(target="raw.orders")
    tick = desk.tick()
    assert (tick.requests, tick.planned) == ([], 0)
    assert "'raw.orders' names a schema, and SQLite has none" in tick.troubles[0]
    assert "for example raw_orders" in tick.troubles[0]
    desk.stream = orders(target="main.orders")
    assert desk.tick().troubles == []


def test_a_file_s_own_schema_may_be_named(engine: Engine) -> None:
    made = ensure_table(engine, road_for(engine), name="main.orders", asset=ASSET, schema=SCHEMA)
    assert made.name == "orders"
    with pytest.raises(StreamError, match="SQLite has none"):
        ensure_table(engine, road_for(engine), name="raw.orders", asset="raw", schema=SCHEMA)
