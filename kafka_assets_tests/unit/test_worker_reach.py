"""What is said of workers that lack a package, or do not reach Kafka."""

from __future__ import annotations

import re
import socket
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from kafka_assets.broker.connection import Connection, worker_config
from kafka_assets.decode import reach
from kafka_assets.errors import WorkersUnfit
from kafka_assets.spark.worker_python import LEAST, WorkerPython, unfit
from kafka_assets.spark.worker_reach import not_reached

ANSWER = pa.schema([("address", pa.string()), ("why", pa.string())])


def told(config: dict[str, str]) -> dict[str, Any]:
    """Why each broker is not reached from here."""
    [answer] = reach.brokers([None], ANSWER, config, 3)
    return {one["address"]: one["why"] for one in answer.to_pylist()}


def test_the_least_versions_are_those_of_this_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    written = dict(re.findall(r"([\w-]+)>=([\d.]+)", "\n".join(project["project"]["dependencies"])))
    assert {name: ".".join(map(str, version)) for name, version in LEAST.items()}.items() <= written.items()


def test_workers_with_the_least_versions_fit() -> None:
    WorkerPython("3.11.7", "18.0.0", "1.26.4", "2.16.0").require()
    WorkerPython("3.11.7", "21.0.0", "2.3.0", "3.0.0").require()


@pytest.mark.parametrize(
    ("pyarrow", "confluent_kafka", "what"),
    [("17.0.0", "2.16.0", "pyarrow 17.0.0"), ("18.0.0", "2.9.0", "confluent-kafka 2.9.0")],
)
def test_a_package_that_is_too_old_is_named_with_the_version_to_install(
    pyarrow: str, confluent_kafka: str, what: str
) -> None:
    with pytest.raises(WorkersUnfit) as found:
        WorkerPython("3.11.7", pyarrow, "1.26.4", confluent_kafka).require()
    assert found.value.what == f"Spark's workers have {what}"
    assert f"install {what.split(maxsplit=1)[0]}>=" in found.value.cure


def test_the_client_is_named_as_it_is_installed() -> None:
    said = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'confluent_kafka'\n"
    found = unfit(PythonException(said))
    assert found is not None
    assert found.what == "Spark's workers have no module confluent_kafka"
    assert "install confluent-kafka in" in found.cure


def test_an_address_where_nobody_listens_is_told_with_the_way_there() -> None:
    whys = told(worker_config(Connection("127.0.0.1:1")))
    assert "Connection refused" in whys["127.0.0.1:1"]
    error = not_reached(whys)
    assert error.what == "a worker of Spark's does not reach Kafka at 127.0.0.1:1"
    assert "advertised.listeners" in error.cure


def test_a_file_that_workers_do_not_have_is_told() -> None:
    config = {"bootstrap.servers": "b:1", "group.id": "g", "security.protocol": "ssl"}
    whys = told({**config, "ssl.keystore.location": "/nowhere/client.p12"})
    assert "ssl.keystore.location" in whys["b:1"]
    assert "at the same path" in not_reached(whys).cure


def test_an_authority_that_workers_do_not_know_is_told_with_the_property_that_names_it() -> None:
    said = "ssl://b:9093/bootstrap: SSL handshake failed: certificate verify failed: broker certificate could not be"
    assert "ssl.ca.location" in not_reached({"b:9093": said}).cure


def test_a_broker_is_reached_where_somebody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert reach.unreached("127.0.0.1", port, 3) is None
    assert "refused" in str(reach.unreached("127.0.0.1", port, 3))
    assert reach.unreached("no.such.host.invalid", 9092, 3) is not None


def test_a_broker_that_is_advertised_where_nobody_listens_is_told_though_another_one_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Told:
        """A client that was told of two brokers."""

        def __init__(self, config: Any) -> None:
            self.ports = (port, 1)

        def list_topics(self, timeout: float) -> Any:
            brokers = {at: SimpleNamespace(host="127.0.0.1", port=at) for at in self.ports}
            return SimpleNamespace(brokers=brokers)

        def close(self) -> None:
            pass

    monkeypatch.setattr(confluent_kafka, "Consumer", Told)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        whys = told({"bootstrap.servers": f"127.0.0.1:{port}"})
    assert whys.pop(f"127.0.0.1:{port}") is None
    assert "refused" in whys.pop("127.0.0.1:1")
    assert not whys
