"""The local services for real: started, used, killed, stopped."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from sqlalchemy import create_engine, text

from kafka_assets import devstack
from kafka_assets.devstack import processes
from kafka_assets.devstack.progress import Silent
from kafka_assets.errors import ServiceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Heard(Silent):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder of a project of its own, whose path Java and the shell would read otherwise."""
    folder = tmp_path_factory.mktemp("pröject of mine") / ".kafka_assets"
    yield folder
    devstack.down(folder, delete=True)


def ask(url: str, statement: str) -> Any:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        result = connection.execute(text(statement))
        value = result.scalar() if result.returns_rows else None
    engine.dispose()
    return value


def listening(pids: set[int]) -> set[tuple[str, int]]:
    return {
        (one.laddr.ip.removeprefix("::ffff:"), one.laddr.port)
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.pid in pids
    }


def test_functions_run_in_sparks_python_workers(spark: SparkSession) -> None:
    versions = spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
    assert [row.id for row in versions] == [0]


def test_spark_refuses_whoever_has_no_token(spark_remote: str) -> None:
    import grpc
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.session import SparkSession as Session

    session = Session(connection=re.sub("token=.*", "token=wrong", spark_remote))
    with pytest.raises((PySparkException, grpc.RpcError), match=r"(?i)unauthenticated|token"):
        session.sql("SELECT 1").collect()
    session.client.close()


def test_everything_listens_on_loopback_only_and_no_command_line_shows_a_secret(
    services_folder: Path, broker: str, spark_remote: str, postgresql_url: str
) -> None:
    services = devstack.status(services_folder)
    assert {address for address, _ in listening({one.pid for one in services})} == {"127.0.0.1"}
    written = json.loads((services_folder / "services.json").read_text(encoding="utf-8"))
    lines = [" ".join(psutil.Process(one.pid).cmdline()) for one in services]
    assert not [line for line in lines for secret in ("spark", "password") if written["secrets"][secret] in line]


@pytest.mark.parametrize("name", ["postgresql", "mariadb", "mysql"])
def test_a_database_answers_and_gives_each_test_its_own(
    name: str, request: pytest.FixtureRequest, fresh_database: Callable[[str], str]
) -> None:
    url = request.getfixturevalue(f"{name}_url")
    first, second = fresh_database(url), fresh_database(url)
    ask(first, "CREATE TABLE landed (id int primary key)")
    ask(first, "INSERT INTO landed VALUES (1)")
    ask(second, "CREATE TABLE landed (id int primary key)")
    assert ask(second, "SELECT count(*) FROM landed") == 0
    version = str(ask(url, "SELECT version()"))
    assert {"postgresql": "PostgreSQL 18", "mariadb": "11.4", "mysql": "9."}[name] in version


def test_a_registry_keeps_a_schema(state: Path) -> None:
    import urllib.request

    url = devstack.up(state, ["registry"]).urls["registry"]
    schema = json.dumps({"schema": json.dumps({"type": "record", "name": "order", "fields": []})}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    for _ in range(2):
        registration = urllib.request.Request(f"{url}/subjects/orders-value/versions", data=schema, headers=headers)
        with urllib.request.urlopen(registration, timeout=10) as answer:
            assert json.load(answer)["id"] == 1


def test_a_dead_service_is_started_again_with_its_data_and_address(state: Path) -> None:
    before = devstack.up(state, ["postgresql"])
    ask(before.urls["postgresql"], "CREATE TABLE kept AS SELECT 1 AS one")
    killed = psutil.Process(before.services[0].pid)
    killed.kill()
    killed.wait(timeout=30)  # one that is still going down is another case, and told in other words
    heard = Heard()
    after = devstack.up(state, ["postgresql"], progress=heard)
    assert after.urls == before.urls
    assert after.services[0].pid != before.services[0].pid
    assert ask(after.urls["postgresql"], "SELECT one FROM kept") == 1
    assert "postgresql is dead" in heard.messages[0]


def test_a_service_that_hangs_is_ended_and_started_again(state: Path) -> None:
    before = devstack.up(state, ["postgresql"])
    hanging = psutil.Process(before.services[0].pid)
    hanging.suspend()
    heard = Heard()
    after = devstack.up(state, ["postgresql"], progress=heard)
    assert ask(after.urls["postgresql"], "SELECT 1") == 1
    assert not processes.is_alive(hanging)
    assert "does not answer" in heard.messages[0]


def test_a_taken_port_is_left_to_its_owner(state: Path) -> None:
    before = devstack.up(state, ["postgresql"])
    devstack.down(state)
    with socket.create_server(("127.0.0.1", before.services[0].ports["client"])):
        heard = Heard()
        after = devstack.up(state, ["postgresql"], progress=heard)
        assert ask(after.urls["postgresql"], "SELECT 1") == 1
    assert "is taken by another program" in heard.messages[0]


def test_two_ups_at_once_start_one_of_each(state: Path) -> None:
    found: list[devstack.Running] = []
    threads = [threading.Thread(target=lambda: found.append(devstack.up(state, ["postgresql"]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert len(heads(processes.strays(state))) <= 1


def heads(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that none of the others started: what a server has just forked carries its mark until it has a title."""
    pids, first = {process.pid for process in family}, list[psutil.Process]()
    for process in family:
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if process.ppid() not in pids and processes.is_alive(process):
                first.append(process)
    return first


def test_a_service_that_dies_at_its_start_shows_the_end_of_its_log_and_where_it_is(state: Path) -> None:
    devstack.up(state, ["kafka"])
    devstack.down(state)
    (state / "kafka-1" / "data" / "meta.properties").write_text("version=1\nnode.id=7\n", encoding="utf-8")
    with pytest.raises(ServiceError) as refused:
        devstack.up(state, ["kafka"])
    assert "kafka-1 ended while it started" in refused.value.what
    assert "meta.properties" in refused.value.why
    assert str(state / "logs" / "kafka-1.log") in refused.value.cure
    assert devstack.status(state) == []


@pytest.mark.campaign
def test_three_brokers_are_one_cluster_that_survives_a_dead_one(state: Path) -> None:
    from confluent_kafka.admin import AdminClient

    running = devstack.up(state, ["kafka"], brokers=3)
    assert running.bootstrap_servers
    assert len(running.bootstrap_servers.split(",")) == 3
    killed = psutil.Process(running.services[1].pid)
    killed.kill()
    killed.wait(timeout=30)
    heard = Heard()
    again = devstack.up(state, ["kafka"], progress=heard)
    assert again.services[1].pid != killed.pid
    assert any("kafka-2 is dead" in message for message in heard.messages)
    # Another one is left alone, unless it was too slow to answer: then that is said.
    for old, new in zip(running.services, again.services, strict=True):
        assert old.pid == new.pid or any(f"{old.name} " in message for message in heard.messages)
    admin: Any = AdminClient({"bootstrap.servers": again.bootstrap_servers or ""})
    assert len(admin.describe_cluster().result(timeout=30).nodes) == 3


def test_the_commands_start_list_and_stop_and_leave_nothing(state: Path) -> None:
    def command(*arguments: str, code: int = 0) -> Any:
        done = subprocess.run(
            [Path(sys.executable).with_name("kafka-assets"), *arguments],
            env={**os.environ, "KAFKA_ASSETS_HOME": str(state.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if "--json" in arguments else done.stdout + done.stderr

    try:
        started = command("up", "--with", "postgresql", "--json")
        assert {one["name"]: one["state"] for one in started} == dict.fromkeys(
            ("kafka-1", "spark", "postgresql"), "ready"
        )
        family = [psutil.Process(one["pid"]) for one in started]
        family += [child for process in family for child in process.children(recursive=True)]
        open_ports = listening({process.pid for process in family})
        assert open_ports
        assert "kafka-1" in command("ps")
        killed = psutil.Process(started[0]["pid"])
        killed.kill()
        killed.wait(timeout=30)
        assert "dead" in command("ps", code=1)
    finally:
        stopped = command("down", "--json")
    assert stopped["stopped"] == ["spark", "postgresql"]
    assert not [process for process in family if processes.is_alive(process)]
    assert not processes.strays(state)
    assert not open_ports & listening({one.pid for one in psutil.net_connections("tcp") if one.pid})
    assert "no services were up" in command("down")
    command("down", "--delete", "--yes")
    left = {path.name for path in state.iterdir()}
    assert left == {"services.json", "services.lock"}
