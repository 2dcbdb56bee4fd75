"""Live members that join, are killed and leave while records come: exact, by the ledger and by Kafka itself."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_assets_tests.integration.live_chaos import RECORDS, Chaos, Producing, check, committed, ends, value_of
from kafka_assets_tests.integration.living import Living, orders, waited


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
    living: Living,
    folder: Path,
    *,
    records: int,
    members: int,
    partitions: int,
    kills: int,
    every: float,
    **limits: float,
) -> tuple[Chaos, int]:
    """Kill one and have another join every so many seconds while records come; until all of them are committed."""
    living.topic(partitions=partitions)
    chaos = Chaos(living, folder)
    chaos.limits |= limits
    per_second = max(500, round(records / (kills * every + 10)))
    keys = 1_000 if living.stream.mode == "upsert" else None
    with chaos.going(members):
        with Producing(living, records, partitions, per_second, keys) as producing:
            waited(lambda: living.begun and sum(committed(living).values()) > 0)
            for turn in range(1, kills + 1):
                time.sleep(every)
                chaos.kill()
                chaos.join()
                if turn % 3 == 0 and members > 1:
                    chaos.leave()
                    chaos.join()
            producing.finish()
        waited(lambda: committed(living) == ends(living), patience=180)
    return chaos, producing.sent


@pytest.mark.parametrize(
    ("mode", "database"),
    [
        ("append", "postgresql"),
        ("upsert", "mariadb"),
        pytest.param("append", "mariadb", marks=pytest.mark.campaign),
        pytest.param("upsert", "postgresql", marks=pytest.mark.campaign),
    ],
)
def test_members_killed_again_and_again_lose_and_repeat_nothing(
    living_on: Callable[..., Living], tmp_path: Path, database: str, mode: str
) -> None:
    more = {"mode": "upsert", "key": ["id"]} if mode == "upsert" else {}
    living = living_on(database, **more)
    chaos, sent = killed_while_produced(living, tmp_path, records=5_000, members=2, partitions=4, kills=2, every=3.0)
    assert check(living, dead=chaos.dead)["records"] == sent


def test_one_process_on_sqlite_killed_and_begun_again(living_on: Callable[..., Living], tmp_path: Path) -> None:
    """After its session of 6 s the group gives its partitions away, and nobody waits for its lease's hour."""
    living = living_on("sqlite")
    chaos, sent = killed_while_produced(
        living, tmp_path, records=5_000, members=1, partitions=2, kills=2, every=3.0, lease=3600.0
    )
    assert check(living, dead=chaos.dead)["records"] == sent


def test_a_member_that_was_frozen_until_its_group_gave_it_up_is_fenced(
    living_on: Callable[..., Living], tmp_path: Path
) -> None:
    living = living_on("postgresql")
    living.topic(partitions=2)
    chaos = Chaos(living, tmp_path)
    chaos.limits |= {"lease": 3600.0}

    def produced(first: int) -> None:
        for partition in range(2):
            living.produce(*(value_of(one, f"n{one}") for one in range(first, first + 200)), partition=partition)

    with chaos.going(1):
        produced(0)
        waited(lambda: living.begun and committed(living) == ends(living))
        [frozen] = chaos.members
        frozen.send_signal(signal.SIGSTOP)
        produced(200)
        with living.consuming():
            waited(lambda: committed(living) == ends(living))
            frozen.send_signal(signal.SIGCONT)
            produced(400)
            waited(lambda: committed(living) == ends(living))
            waited(lambda: len(living.described().members) == 2)  # it joins again
        produced(600)
        waited(lambda: committed(living) == ends(living))
    assert check(living)["records"] == 1600


@pytest.mark.campaign
@pytest.mark.parametrize("database", ["postgresql", "mariadb", "sqlite"])
def test_the_campaign_of_joins_and_kills(living_on: Callable[..., Living], tmp_path: Path, database: str) -> None:
    living = living_on(database)
    members, partitions = (1, 2) if database == "sqlite" else (4, 8)
    kills = max(6, min(60, RECORDS // 15_000))
    chaos, sent = killed_while_produced(
        living, tmp_path, records=RECORDS, members=members, partitions=partitions, kills=kills, every=4.0
    )
    found = {**check(living, dead=chaos.dead), "begun": chaos.begun, "killed": chaos.killed, "drained": chaos.drained}
    print(f"\n{database}: {found}")
    assert found["records"] == sent >= RECORDS
