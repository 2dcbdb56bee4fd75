"""From the sensor to live and back, and both at once: on one ledger, exact all the while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from kafka_assets.ledger.engine import make_engine
from kafka_assets_tests.integration.groups import fresh
from kafka_assets_tests.integration.live_chaos import SECONDS, Producing, check, committed, ends
from kafka_assets_tests.integration.living import Living, waited
from kafka_assets_tests.integration.project import Landing

UPSERT: dict[str, Any] = {"mode": "upsert", "key": ["id"]}


@pytest.fixture
def beside(
    tmp_path: Path, broker: str, spark_remote: str, request: pytest.FixtureRequest
) -> Iterator[Callable[..., tuple[Landing, Living]]]:
    """One stream of this database, as the sensor and its runs land it, and as live consumers do."""
    with ExitStack() as stack:

        def declare(database: str = "sqlite", **attributes: Any) -> tuple[Landing, Living]:
            url = (
                f"sqlite:///{tmp_path / 'warehouse.db'}"
                if database == "sqlite"
                else request.getfixturevalue(f"{database}_database")
            )
            sensor = Landing(
                name=fresh("both"),
                broker=broker,
                spark_remote=spark_remote,
                database_url=url,
                engine=make_engine(url),
                instance=stack.enter_context(dg.DagsterInstance.ephemeral()),
                attributes=attributes,
            )
            assert sensor.stream is not None
            living = Living(broker, url, tmp_path, sensor.stream)
            stack.callback(sensor.engine.dispose)
            stack.callback(living.engine.dispose)
            return sensor, living

        yield declare


def test_from_the_sensor_to_live_and_back_nothing_is_lost_or_repeated(
    beside: Callable[..., tuple[Landing, Living]],
) -> None:
    sensor, living = beside()
    living.topic(partitions=2)
    living.ids(0, 40)
    assert len(sensor.land().requests) == 1
    with living.consuming():
        living.ids(40, 60)
        living.ids(60, 80, partition=1)
        waited(lambda: living.count == 80)
        found = sensor.tick()
        assert (found.planned, found.requests) == (0, [])  # what is leased is its owner's to plan
    living.ids(80, 100)
    for _ in range(2):
        found = sensor.land()
        for event in found.events:
            sensor.instance.report_runless_asset_event(event)
    assert living.count == 100 and living.exact()
    live_key = f"{sensor.name}:0:40-60"
    assert {live_key, f"{sensor.name}:1:0-20", f"{sensor.name}:0:60-80"} <= set(sensor.keys())
    assert live_key in sensor.instance.get_materialized_partitions(sensor.asset.key)
    # What was landed live is replayed by Spark as any other slice, which finds the same records.
    prints = "select slice_id, fingerprint from kafka_publication order by slice_id"
    before = living.rows(prints)
    assert all(fingerprint is not None for _, fingerprint in before)
    assert sensor.replay(live_key).success
    assert living.rows(prints) == before
    assert living.count == 100 and living.exact()


def test_live_waits_for_what_is_planned_and_goes_on_behind_it(
    beside: Callable[..., tuple[Landing, Living]],
) -> None:
    sensor, living = beside()
    living.topic()
    living.ids(0, 30)
    planned = sensor.tick()
    assert planned.planned == 1
    living.ids(30, 50)
    with living.consuming() as [consumer]:
        waited(lambda: consumer.figures.waiting)
        assert living.count == 0
        for request in planned.requests:
            assert sensor.run(request).success
        waited(lambda: living.count == 50)
    starts = "select start_offset, end_offset from kafka_slice order by start_offset"
    assert living.rows(starts) == [(0, 30), (30, 50)] and living.exact()


def at_once(sensor: Landing, living: Living, *, seconds: float, partitions: int, per_second: int) -> dict[str, int]:
    """Sensor and runs here, live members beside them that come and go, records all the while."""
    living.topic(partitions=partitions)
    keys = 500 if living.stream.mode == "upsert" else None
    runs = live = 0
    deadline = time.monotonic() + seconds
    with Producing(living, 1, partitions, per_second, keys) as producing:
        turn = 0
        # Both have landed something in the end, however fast or slow the machine is.
        while time.monotonic() < deadline or (turn < 12 and not (runs and live)):
            turn += 1
            with living.consuming(turn % 3) as members:  # none, one, two
                before, until, landed = runs, time.monotonic() + 4, False
                # Whose turn it is has the time to land something: runs may be slow, and members wait for them.
                while (now := time.monotonic()) < until or (not landed and now < until + 30):
                    for request in sensor.tick().requests:
                        runs += sensor.run(request).success
                    landed = any(one.figures.records for one in members) if members else runs > before
            live += sum(one.figures.records for one in members)
        producing.finish()

    def land_the_rest() -> None:
        for request in sensor.tick().requests:
            sensor.run(request)

    waited(lambda: committed(living) == ends(living), patience=180, also=land_the_rest)
    found = {**check(living), "runs": runs, "live": live}
    assert found["records"] == producing.sent and runs and live
    return found


@pytest.mark.parametrize("mode", [{}, UPSERT], ids=["append", "upsert"])
def test_sensor_and_live_at_once_are_exact(beside: Callable[..., tuple[Landing, Living]], mode: dict[str, Any]) -> None:
    sensor, living = beside(**mode)
    at_once(sensor, living, seconds=15, partitions=2, per_second=200)


@pytest.mark.campaign
@pytest.mark.parametrize(("database", "mode"), [("postgresql", {}), ("mariadb", UPSERT)], ids=["append", "upsert"])
def test_the_campaign_of_both_at_once(
    beside: Callable[..., tuple[Landing, Living]], database: str, mode: dict[str, Any]
) -> None:
    sensor, living = beside(database, **mode)
    print(f"\n{database}: {at_once(sensor, living, seconds=SECONDS, partitions=4, per_second=1_000)}")
