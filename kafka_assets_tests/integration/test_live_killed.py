"""Live members that join, are killed and leave while records come: exact, by the ledger and by Kafka itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_assets_tests.integration.live_chaos import RECORDS, Chaos, Producing, check, committed, ends
from kafka_assets_tests.integration.living import Living, orders, waited

SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"])


@pytest.fixture
def living_on(tmp_path: Path, broker: str, request: pytest.FixtureRequest) -> Iterator[Callable[..., Living]]:
    """Declares a stream that lands in this database."""
    made: list[Living] = []

    def declare(database: str, **attributes: Any) -> Living:
        url = (
            f"sqlite:///{tmp_path / 'warehouse.db'}"
            if database == "sqlite"
            else request.getfixturevalue(f"{database}_database")
        )
        made.append(Living(broker, url, tmp_path, orders(**attributes)))
        return made[-1]

    yield declare
    for one in made:
        one.engine.dispose()


def killed_while_produced(
    living: Living, folder: Path, *, records: int, members: int, partitions: int, every: float, per_second: int
) -> Chaos:
    """Kill one and have another join every so many seconds, until all is produced; then see that all is committed."""
    living.topic(partitions=partitions)
    chaos = Chaos(living, folder)
    with chaos.going(members):
        keys = records // 10 if living.stream.mode == "upsert" else None
        with Producing(living, records, partitions, per_second, keys) as producing:
            waited(lambda: sum(committed(living).values()) > 0 if living.begun else False)
            turn = 0
            while not producing.done:
                time.sleep(every)
                chaos.kill()
                chaos.join()
                turn += 1
                if turn % 3 == 0 and members > 1:
                    chaos.leave()
                    chaos.join()
        waited(lambda: committed(living) == ends(living), patience=180)
    return chaos


@SERVERS
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_members_killed_again_and_again_lose_and_repeat_nothing(
    living_on: Callable[..., Living], tmp_path: Path, database: str, mode: str
) -> None:
    more = {"mode": "upsert", "key": ["id"]} if mode == "upsert" else {}
    living = living_on(database, **more)
    chaos = killed_while_produced(
        living, tmp_path, records=20_000, members=2, partitions=4, every=3.0, per_second=1_500
    )
    assert check(living)["records"] == 20_000 and chaos.killed >= 2


def test_one_process_on_sqlite_killed_and_begun_again(living_on: Callable[..., Living], tmp_path: Path) -> None:
    living = living_on("sqlite")
    chaos = killed_while_produced(
        living, tmp_path, records=20_000, members=1, partitions=2, every=3.0, per_second=1_500
    )
    assert check(living)["records"] == 20_000 and chaos.killed >= 2


@pytest.mark.campaign
@pytest.mark.parametrize("database", ["postgresql", "mariadb", "sqlite"])
def test_the_campaign_of_joins_and_kills(
    living_on: Callable[..., Living], tmp_path: Path, database: str, record_property: Callable[[str, object], None]
) -> None:
    living = living_on(database)
    members, partitions = (1, 2) if database == "sqlite" else (4, 8)
    chaos = killed_while_produced(
        living,
        tmp_path,
        records=RECORDS,
        members=members,
        partitions=partitions,
        every=5.0,
        per_second=max(1_000, RECORDS // 120),
    )
    found = {**check(living), "begun": chaos.begun, "killed": chaos.killed, "drained": chaos.drained}
    print(f"\n{database}: {found}")
    assert found["records"] == RECORDS and chaos.killed >= 5
