"""Daemons that die, come in twos, or lose their storage: the ledger decides, and every row is there once.

`make test` kills a daemon, with few records. `make campaign` runs all of it, and this one with 300,000 records and ten
kills.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from kafka_assets.devstack.dagster import write_instance
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets_tests.acceptance.daemons import Daemon
from kafka_assets_tests.acceptance.project import Project, lease_ends

RECORDS = int(os.environ.get("KAFKA_ASSETS_TESTS_CAMPAIGN_RECORDS", "12000"))
KILLS = int(os.environ.get("KAFKA_ASSETS_TESTS_CAMPAIGN_KILLS", "1"))
SECONDS = 300 + 30 * KILLS
"""Until a test gives up: on a machine that does much else a daemon alone takes half a minute to come up."""


@pytest.fixture
def homes(project: Project) -> Iterator[dict[str, Daemon]]:
    daemons = {name: Daemon(project.folder, home=project.folder / name) for name in (".dagster", ".dagster_other")}
    yield daemons
    for daemon in daemons.values():
        daemon.end()


def test_a_daemon_killed_again_and_again_lands_every_record_once(project: Project, homes: dict[str, Daemon]) -> None:
    project.topic("killed", partitions=3)
    project.declare("killed", topic="killed")
    ensure_schema(project.engine)
    chance = random.Random(7)
    daemon = homes[".dagster"]
    daemon.start()
    with _producing(project, "killed"):
        for _ in range(KILLS):
            time.sleep(chance.uniform(4, 12))
            everything = chance.random() < 0.5
            daemon.kill(everything=everything)
            if everything:
                lease_ends(project, "killed")
            daemon.start()
    project.wait(lambda: project.landed("killed", RECORDS), seconds=SECONDS, log=daemon.log)
    _exact(project, "killed")


@pytest.mark.campaign
def test_two_daemons_of_one_instance_land_every_record_once(project: Project, homes: dict[str, Daemon]) -> None:
    project.topic("twice", partitions=3)
    project.declare("twice", topic="twice")
    ensure_schema(project.engine)
    first, second = homes[".dagster"], Daemon(project.folder, home=project.folder / ".dagster")
    write_instance(first.home)
    # Dagster's own storage does not survive that two processes make it at the same moment.
    dg.DagsterInstance.from_config(str(first.home)).dispose()
    first.start()
    second.start()
    try:
        with _producing(project, "twice"):
            pass
        project.wait(lambda: project.landed("twice", RECORDS), seconds=SECONDS, log=first.log)
    finally:
        second.end()
    _exact(project, "twice")


@pytest.mark.campaign
def test_two_deployments_on_one_ledger_land_every_record_once(project: Project, homes: dict[str, Daemon]) -> None:
    project.topic("shared", partitions=3)
    project.declare("shared", topic="shared")
    ensure_schema(project.engine)
    for daemon in homes.values():
        daemon.start()
    with _producing(project, "shared"):
        pass
    project.wait(lambda: project.landed("shared", RECORDS), seconds=SECONDS, log=homes[".dagster"].log)
    _exact(project, "shared")


@pytest.mark.campaign
def test_a_deployment_that_loses_its_storage_goes_on_and_is_told_again(
    project: Project, homes: dict[str, Daemon]
) -> None:
    project.topic("forgot", partitions=3)
    project.declare("forgot", topic="forgot")
    ensure_schema(project.engine)
    daemon = homes[".dagster"]
    daemon.start()
    project.produce("forgot", 0, RECORDS // 2)
    project.wait(lambda: project.landed("forgot", RECORDS // 2), seconds=SECONDS, log=daemon.log)
    daemon.kill(everything=True)
    lease_ends(project, "forgot")
    shutil.rmtree(daemon.home)
    project.produce("forgot", RECORDS // 2, RECORDS)
    daemon.start()
    project.wait(lambda: project.landed("forgot", RECORDS), seconds=SECONDS, log=daemon.log)
    _exact(project, "forgot")
    slices = project.sql("select count(*) from kafka_publication where state = 'committed'")
    project.wait(lambda: _materialized(daemon.home, "forgot") == slices, seconds=SECONDS, log=daemon.log)


@contextmanager
def _producing(project: Project, topic: str) -> Iterator[None]:
    """Produce all records meanwhile, a few thousand at a time, over about as long as the kills take."""
    step = max(1, RECORDS // (5 * (KILLS + 1)))

    def produce() -> None:
        for first in range(0, RECORDS, step):
            project.produce(topic, first, min(first + step, RECORDS), bad_every=997)
            time.sleep(1)

    thread = threading.Thread(target=produce)
    thread.start()
    yield
    thread.join()


def _exact(project: Project, name: str) -> None:
    good = project.sql(f"select count(*) from {name}")
    bad = project.sql("select count(*) from kafka_quarantine")
    assert bad > 0 or name == "forgot"
    assert good + bad == RECORDS
    assert project.sql(f"select count(distinct id) from {name}") == good
    assert project.sql("select count(*) from kafka_gap") == 0
    assert project.sql("select count(*) from kafka_publication where state <> 'committed'") == 0


def _materialized(home: Path, name: str) -> int:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return len(instance.get_materialized_partitions(dg.AssetKey(name)))
