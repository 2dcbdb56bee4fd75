"""`kafka-assets live` as it is run: watched processes, a signal that drains, and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from confluent_kafka import TopicPartition

from kafka_assets.broker.admin import admin
from kafka_assets_tests.integration.living import QUICK, Living, orders, waited


@dataclass
class Project:
    """A folder with one declared stream."""

    living: Living

    def __post_init__(self) -> None:
        stream, defs = self.living.stream, self.living.folder / "defs"
        defs.mkdir()
        attributes = {"topic": stream.topic, "target": stream.target, "name": stream.name, "schema": stream.schema_}
        document = {"type": "kafka_assets.KafkaTopic", "attributes": attributes}
        (defs / "stream.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    def live(self, *options: str, broker: str | None = None) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "KAFKA_ASSETS_HOME": str(self.living.folder),
            "KAFKA_ASSETS_BOOTSTRAP_SERVERS": broker or self.living.broker,
            "KAFKA_ASSETS_DATABASE_URL": self.living.database_url,
            "KAFKA_ASSETS_KAFKA__SESSION_TIMEOUT_MS": "6000",
            **{f"KAFKA_ASSETS_KAFKA__{name.upper().replace('.', '_')}": value for name, value in QUICK.items()},
        }
        command = [sys.executable, "-c", "from kafka_assets.cli import main; main()", "live", self.living.stream.name]
        return subprocess.Popen(
            [*command, *options], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


@pytest.fixture
def project(tmp_path: Path, broker: str, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Project]]:
    made: list[Living] = []

    def declare(database: str) -> Project:
        url = (
            f"sqlite:///{tmp_path / 'warehouse.db'}"
            if database == "sqlite"
            else request.getfixturevalue(f"{database}_database")
        )
        made.append(Living(broker, url, tmp_path, orders()))
        return Project(made[-1])

    yield declare
    for one in made:
        one.engine.dispose()


def test_processes_are_watched_and_a_signal_drains_them(project: Callable[[str], Project]) -> None:
    here = project("postgresql")
    living = here.living
    living.topic(partitions=4)
    for partition in range(4):
        living.ids(0, 250, partition)
    running = here.live("--processes", "2", "--json")
    try:
        waited(lambda: living.begun and living.count == 1_000)
        [one, _] = psutil.Process(running.pid).children()
        one.kill()
        for partition in range(4):
            living.ids(250, 500, partition)
        waited(lambda: living.count == 2_000)
        waited(
            lambda: (
                len(psutil.Process(running.pid).children()) == 2 and one not in psutil.Process(running.pid).children()
            )
        )
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=180)
    finally:
        running.kill()
    assert running.returncode == 0, err
    # What a killed process had not said is in no figures: the ledger has it all.
    assert json.loads(out.splitlines()[-1])["records"] >= 1_000
    assert "ended with signal 9, and begins again" in err
    assert living.exact() and living.sql("select count(*) from kafka_progress where owner is not null") == 0


def test_a_killed_parent_takes_its_children_along_and_they_drain(project: Callable[[str], Project]) -> None:
    here = project("postgresql")
    here.living.topic(partitions=2)
    here.living.ids(0, 100)
    running = here.live("--processes", "2")
    waited(lambda: here.living.begun and here.living.count == 100)
    children = psutil.Process(running.pid).children()
    running.kill()
    running.communicate()
    _, left = psutil.wait_procs(children, timeout=180)
    assert len(children) == 2 and left == []
    assert here.living.sql("select count(*) from kafka_progress where owner is not null") == 0


def test_it_ends_when_it_has_caught_up_in_the_new_group_protocol_too(project: Callable[[str], Project]) -> None:
    here = project("sqlite")
    here.living.topic(partitions=2)
    here.living.ids(0, 300)
    options = ("--until-caught-up", "--tell-kafka", "--max-delay", "50ms", "--group-protocol", "consumer")
    running = here.live(*options)
    out, err = running.communicate(timeout=180)
    assert running.returncode == 0 and "300 records in" in out and here.living.count == 300, err
    assert "heartbeat.interval.ms is left out" in err


def test_threads_share_the_partitions_each_as_a_static_member(project: Callable[[str], Project]) -> None:
    here = project("postgresql")
    living = here.living
    living.topic(partitions=4)
    for partition in range(4):
        living.ids(0, 50, partition)
    running = here.live("--threads", "2", "--instance-id", "desk", "--json")
    try:
        waited(lambda: living.begun and living.count == 200)
        waited(lambda: [len(one.assignment.topic_partitions) for one in here.living.described().members] == [2, 2])
        found = here.living.described()
        for partition in range(4):
            living.ids(50, 100, partition)
        waited(lambda: living.count == 400)
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=180)
    finally:
        running.kill()
    assert running.returncode == 0, err
    assert {one.group_instance_id for one in found.members} == {"desk-0", "desk-1"}
    assert json.loads(out.splitlines()[-1])["records"] == 400
    assert living.exact() and living.sql("select count(*) from kafka_progress where owner is not null") == 0


def test_it_ends_with_1_when_nothing_moves_for_as_long_as_its_patience(project: Callable[[str], Project]) -> None:
    here = project("sqlite")
    here.living.topic()
    here.living.ids(0, 20)
    with here.living.consuming():
        waited(lambda: here.living.count == 20)
    here.living.ids(20, 50)
    with admin(here.living.connection) as asking:
        asking.answers(asking.client.delete_records([TopicPartition(here.living.stream.reads, 0, 45)]))
    running = here.live("--until-caught-up", "--patience", "2s")
    _, err = running.communicate(timeout=180)
    assert running.returncode == 1 and here.living.count == 20, err
    assert "30 offsets are not committed, and nothing has moved for 2 s" in " ".join(err.split())
