"""The database or the broker goes away under a live consumer, and comes back: nothing is lost or there twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_assets import devstack
from kafka_assets.live.landing import Landing
from kafka_assets.live.limits import Limits
from kafka_assets_tests.integration.live_chaos import Producing, check, committed, ends
from kafka_assets_tests.integration.living import Living, orders, waited

SMALL = Limits(records=100, delay=0.05)
"""Batches of which many are still to come, whenever something goes away."""
Away = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def broker(breakable: Path) -> str:
    servers = devstack.up(breakable, ["kafka"]).bootstrap_servers
    assert servers
    return servers


@pytest.fixture
def postgresql_url(breakable: Path) -> str:
    return devstack.up(breakable, ["postgresql"]).urls["postgresql"]


@pytest.fixture
def living(tmp_path: Path, broker: str, postgresql_database: str) -> Iterator[Living]:
    made = Living(broker, postgresql_database, tmp_path, orders())
    made.topic(partitions=2)
    yield made
    made.engine.dispose()


@pytest.fixture
def away(breakable: Path) -> Away:
    """While the block lasts, a service is stopped; then it is again where it was."""

    @contextmanager
    def without(service: str) -> Iterator[None]:
        names = [one.name for one in devstack.status(breakable) if one.name.startswith(service)]
        assert devstack.down(breakable, only=names) == names
        try:
            yield
        finally:
            devstack.up(breakable, [service])

    return without


def test_a_database_that_goes_away_in_mid_run(living: Living, away: Away) -> None:
    with living.consuming(limits=SMALL) as [consumer]:
        with Producing(living, 4_000, 2, per_second=500) as producing:
            waited(lambda: living.begun and living.count > 500)
            with away("postgresql"):
                waited(lambda: consumer.figures.retries or consumer.figures.waiting)
            living.engine.dispose()  # the test's own connections have gone, too
            producing.finish()
        waited(lambda: committed(living) == ends(living))
    assert check(living)["records"] == producing.sent


def test_a_broker_that_goes_away_in_mid_run(living: Living, away: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    land = Landing.land

    def slowly(self: Landing, parts: Any) -> Any:
        time.sleep(0.05)
        return land(self, parts)

    monkeypatch.setattr(Landing, "land", slowly)
    for partition in range(2):
        living.ids(0, 5_000, partition)
    with living.consuming(limits=SMALL):
        waited(lambda: living.begun and living.count > 0)
        with away("kafka"):
            assert living.count < 10_000, "there was nothing left to do"
        living.ids(5_000, 5_500)
        waited(lambda: committed(living) == ends(living), patience=90)
    assert check(living)["records"] == 10_500
