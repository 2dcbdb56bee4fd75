"""The sensor's statements on the server databases: planning, requesting and telling, alone and at once."""

from __future__ import annotations

import threading

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from kafka_assets.errors import LedgerBusy
from kafka_assets.ledger import requests
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.observing import Looked, observe_known
from kafka_assets.ledger.sources import known_sources, make_sources
from kafka_assets.plan import Offsets
from kafka_assets.streams import declare
from kafka_assets_tests.ledgers import rows, scalar
from kafka_assets_tests.ticking import Desk, answering, orders


def exact(engine: Engine, *, records: int) -> None:
    assert scalar(engine, "select count(*) from orders") == records
    assert scalar(engine, "select count(*) from kafka_publication where state <> 'committed'") == 0
    assert rows(engine, "select * from kafka_gap") == []


def test_a_topic_is_planned_landed_and_told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.DagsterInstance.ephemeral() as instance, dg.DagsterInstance.ephemeral() as new:
        desk = Desk(engine, instance, answering(monkeypatch), orders(topics="orders.*", keep_keys="1h"))
        desk.broker.set("orders", 60, 5)
        desk.broker.set("orders.more", 25)
        desk.settle()
        exact(engine, records=90)
        assert desk.told == set(desk.keys)
        other = Desk(engine, new, desk.broker, desk.stream)
        assert len(other.tick().events) == len(desk.keys)
        assert scalar(engine, "select count(*) from kafka_source") == 2


def test_two_sensors_at_once_plan_each_offset_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "HOLD_MS", 0)
    with dg.DagsterInstance.ephemeral() as one, dg.DagsterInstance.ephemeral() as other:
        broker = answering(monkeypatch)
        desks = [Desk(engine, instance, broker, orders()) for instance in (one, other)]
        broker.set("orders", 50, 50, 50)
        meet, failed = threading.Barrier(2), list[BaseException]()

        def work(desk: Desk) -> None:
            try:
                for _ in range(3):
                    meet.wait(30)
                    desk.tick()
            except BaseException as error:  # noqa: BLE001 - it is told in the test's own thread
                failed.append(error)
                meet.abort()

        threads = [threading.Thread(target=work, args=(desk,)) for desk in desks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert failed == []
        for desk in desks:
            desk.settle()
        exact(engine, records=150)
        assert desks[0].told == desks[1].told == set(desks[0].keys)


@pytest.mark.parametrize("table", ["kafka_source", "kafka_progress"])
def test_a_stream_that_somebody_has_locked_keeps_no_other_from_being_observed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        desk = Desk(engine, instance, answering(monkeypatch), orders())
        desk.others = [declare(name=one, topic=one, target=one, schema="id BIGINT") for one in ("a", "b")]
        names = ("orders", "a", "b")
        for name in names:
            desk.broker.set(name, 5, 5)
        desk.tick()
        known = {stream: source for stream, [source] in known_sources(engine, names).items()}
        looks = [Looked(known[name], name, dict.fromkeys((0, 1), Offsets(0, 9, 9))) for name in names]
        column = "id" if table == "kafka_source" else "source_id"
        with write(engine) as locking:
            locking.execute(text(f"select * from {table} where {column} = {known['a'].id} for update")).all()
            found = observe_known(engine, looks)
        assert found.progress.keys() == {known["orders"].id, known["b"].id}
        seen = "select source_id from kafka_progress where last_stable = 9 group by source_id order by source_id"
        assert [source for [source] in rows(engine, seen)] == sorted(found.progress)
        assert observe_known(engine, looks).progress.keys() == {one.id for one in known.values()}


def test_two_sensors_that_meet_a_topic_at_once_make_one_source(engine: Engine) -> None:
    meet, found = threading.Barrier(4), list[object]()

    def make() -> None:
        meet.wait(30)
        try:
            found.append(make_sources(engine, stream="orders", topics={"a": "id-a", "b": "id-b"}))
        except LedgerBusy as error:
            found.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    assert any(isinstance(one, dict) for one in found)
    assert [(one.topic, one.incarnation, one.founding) for one in known_sources(engine, ["orders"])["orders"]] == [
        ("a", 1, True),
        ("b", 1, True),
    ]
