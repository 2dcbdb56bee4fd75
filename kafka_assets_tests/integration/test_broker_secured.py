"""A broker behind SASL and TLS, reached from here and by Spark's workers with one set of properties."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafka_assets.broker.admin import admin
from kafka_assets.broker.connection import Connection, worker_config
from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.read import read_range
from kafka_assets.broker.ready import answering_brokers
from kafka_assets.broker.topics import create_topic, topic_names
from kafka_assets.decode import fetch as workers
from kafka_assets.devstack import artifacts, fetch
from kafka_assets.devstack.java import find_java
from kafka_assets.devstack.ports import choose
from kafka_assets.errors import BrokerRefused, BrokerUnavailable, TopicMissing, WorkersUnfit
from kafka_assets.slices import Piece, SliceKey
from kafka_assets.spark.chunks import fetch_landed
from kafka_assets.spark.source import read
from kafka_assets.streams import declare
from kafka_assets_tests import freezing
from kafka_assets_tests.certificates import Authority
from kafka_assets_tests.corpus.frames import as_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "a \"quoted\" \\back\\slash; 'and' {more} ${HOME} ö"
CLIENTS = ("scram256", "scram512", "plain", "tls", "tls_encrypted", "tls_pkcs12")
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


@dataclass(frozen=True)
class SecuredBroker:
    ports: dict[str, int]
    folder: Path
    process: subprocess.Popen[bytes]

    @contextmanager
    def frozen(self) -> Generator[None]:
        with freezing.frozen(self.process.pid):
            yield

    def at(self, listener: str, **properties: str) -> Connection:
        named = {name.replace("_", "."): value for name, value in properties.items()}
        return Connection(f"127.0.0.1:{self.ports[listener]}", named)

    def client(self, kind: str, *, password: str = PASSWORD) -> Connection:
        ca = str(self.folder / "ca.pem")
        if kind == "tls_pkcs12":
            bundle = {"ssl_keystore_location": str(self.folder / "client.p12"), "ssl_keystore_password": "secret"}
            return self.at("mutual", security_protocol="SSL", ssl_ca_location=ca, **bundle)
        if kind.startswith("tls"):
            key = "encrypted.pem" if kind == "tls_encrypted" else "key.pem"
            secret = {"ssl_key_password": "secret"} if kind == "tls_encrypted" else {}
            return self.at(
                "mutual",
                security_protocol="SSL",
                ssl_ca_location=ca,
                ssl_certificate_location=str(self.folder / "client.pem"),
                ssl_key_location=str(self.folder / f"client-{key}"),
                **secret,
            )
        mechanism = {"scram256": "SCRAM-SHA-256", "scram512": "SCRAM-SHA-512", "plain": "PLAIN"}[kind]
        tls = kind == "scram512"
        return self.at(
            "sasltls" if tls else "sasl",
            security_protocol="SASL_SSL" if tls else "SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username="alice",
            sasl_password=password,
            **({"ssl_ca_location": ca} if tls else {}),
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    names = ("plain", "sasl", "sasltls", "mutual", "controller")
    ports = choose(names, remembered={}, taken=set())
    authority = Authority(folder)
    authority.issue("server", host="127.0.0.1")
    authority.issue("client")
    Authority(folder, name="stranger")
    (folder / "server.properties").write_text(server_properties(folder, ports), encoding="utf-8")
    jars = ":".join(str(jar) for jar in fetch.fetch(artifacts.group("kafka")))
    java = [str(find_java()), "-Xmx400m", "-XX:TieredStopAtLevel=1", "-cp", jars]
    storage = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", "server.properties"]
    subprocess.run(storage, cwd=folder, check=True, capture_output=True)
    with (folder / "kafka.log").open("wb") as log:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", "server.properties"], cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        broker = SecuredBroker(ports, folder, process)
        deadline = time.monotonic() + 60
        while not answering_brokers(f"127.0.0.1:{ports['plain']}", timeout=1.0):
            assert process.poll() is None, (folder / "kafka.log").read_text()
            assert time.monotonic() < deadline, (folder / "kafka.log").read_text()
        add_user(broker.at("plain"))
        create_topic(broker.at("plain"), "secured", partitions=1)
        produce(broker.at("plain"), "secured", [Record(b'{"id": %d}' % number) for number in range(10)])
        yield broker
    finally:
        process.kill()
        process.wait()


def server_properties(folder: Path, ports: dict[str, int]) -> str:
    protocols = {
        "plain": "PLAINTEXT",
        "sasl": "SASL_PLAINTEXT",
        "sasltls": "SASL_SSL",
        "mutual": "SSL",
        "controller": "PLAINTEXT",
    }
    listeners = [f"{name.upper()}://127.0.0.1:{port}" for name, port in ports.items()]
    # A properties file takes a backslash away before JAAS sees the text.
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required user_alice={jaas_quoted(PASSWORD)};"
    return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{ports["controller"]}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listeners={",".join(listeners)}
advertised.listeners={",".join(listeners[:-1])}
listener.security.protocol.map={",".join(f"{name.upper()}:{protocol}" for name, protocol in protocols.items())}
log.dirs={folder / "data"}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config={escaped(login)}
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasltls.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasltls.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.mutual.ssl.client.auth=required
ssl.keystore.type=PKCS12
ssl.keystore.location={folder / "server.p12"}
ssl.keystore.password=secret
ssl.truststore.type=PEM
ssl.truststore.location={folder / "ca.pem"}
"""


def jaas_quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def escaped(text: str) -> str:
    doubled = text.replace("\\", "\\\\")
    return "".join(character if character.isascii() else f"\\u{ord(character):04x}" for character in doubled)


def add_user(connection: Connection) -> None:
    with admin(connection) as asking:
        wanted = [
            UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for one in wanted:
            asking.answers(asking.client.alter_user_scram_credentials([one]))


def test_a_wrong_topic_name_is_missing_also_where_the_broker_creates_what_it_is_asked_for(
    secured: SecuredBroker,
) -> None:
    with Producer(secured.at("plain")) as producer, pytest.raises(TopicMissing):
        producer.send("misspelt", b"1")
    assert "misspelt" not in topic_names(secured.at("plain"))


def by_workers(spark: SparkSession, config: Mapping[str, str], topic: str, *, end: int = 10) -> list[Any]:
    """What Spark's workers read of it with these properties."""
    key = SliceKey(topic, 1, 0, 0, end)
    stream = declare(name="secured", topic=topic, target="secured", schema="id BIGINT")
    pieces = [Piece(topic, 0, 0, end, (key,))]
    return as_one(fetch_landed(pieces, read=partial(read, spark, config), stream=stream)).rows.column("id").to_pylist()


def without_its_files(connection: Connection, folder: Path) -> Mapping[str, str]:
    """What goes to workers, on whose machines there are none of the files that it was made from."""
    files = {name: path for name, path in connection.properties.items() if name.endswith(".location")}
    moved = {name: str(shutil.copy(path, folder)) for name, path in files.items()}
    config = worker_config(Connection(connection.bootstrap_servers, {**connection.properties, **moved}))
    for path in moved.values():
        Path(path).unlink()
    return config


@pytest.mark.parametrize("kind", CLIENTS)
def test_one_set_of_properties_lets_this_process_and_workers_in(
    secured: SecuredBroker, spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    connection = secured.client(kind)
    found = observe(connection, ["secured"])["secured"]
    assert isinstance(found, TopicOffsets)
    mine = [record.value for record in read_range(connection, "secured", 0, 0, found.partitions[0].last_stable)]
    assert mine == [b'{"id": %d}' % number for number in range(10)]
    # A keystore is the one file of which no text can go along.
    config = worker_config(connection) if kind == "tls_pkcs12" else without_its_files(connection, tmp_path)
    assert by_workers(spark, config, "secured") == list(range(10))


def test_a_keystore_that_a_worker_does_not_have_is_named_and_no_slices_fault(
    secured: SecuredBroker, spark: SparkSession, tmp_path: Path
) -> None:
    config = without_its_files(secured.client("tls_pkcs12"), tmp_path)
    with pytest.raises(WorkersUnfit, match=r"ssl\.keystore\.location.*on the workers' machines"):
        by_workers(spark, config, "secured")


def test_who_may_use_no_group_reads_all_the_same(secured: SecuredBroker, spark: SparkSession) -> None:
    deny(secured, ResourceType.GROUP, "kafka_assets-unused")
    connection = secured.client("scram256")
    assert by_workers(spark, worker_config(connection), "secured") == list(range(10))
    assert len(list(read_range(connection, "secured", 0, 0, 10))) == 10


def test_a_topic_that_workers_may_not_read_is_refused_in_words(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(secured.at("plain"), "hidden", partitions=1)
    produce(secured.at("plain"), "hidden", [Record(b"1")])
    deny(secured, ResourceType.TOPIC, "hidden")
    monkeypatch.setattr(workers, "PATIENCE", 2.0)
    with pytest.raises(workers.NotFetched, match=r"(?i)topic authorization failed"):
        fetched(secured.client("scram256"), "hidden", 1)


def deny(secured: SecuredBroker, kind: ResourceType, name: str) -> None:
    """Alice's rights to it."""
    rule = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.DENY
    )
    with admin(secured.at("plain")) as asking:
        asking.answers(asking.client.create_acls([rule]))


@pytest.mark.parametrize("wrong", ["password", "authority", "certificate"])
def test_workers_that_are_not_let_in_say_so(
    secured: SecuredBroker, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a task has it: the password or the certificate has changed since this process was let in."""
    connection = {
        "password": secured.client("scram256", password="not this one"),
        "authority": secured.at(
            "mutual", security_protocol="SSL", ssl_ca_location=str(secured.folder / "stranger.pem")
        ),
        "certificate": secured.at("mutual", security_protocol="SSL", ssl_ca_location=str(secured.folder / "ca.pem")),
    }[wrong]
    monkeypatch.setattr(workers, "PATIENCE", 3.0)
    with pytest.raises(workers.NotFetched, match=r"(?i)authentication|ssl") as told:
        fetched(connection, "secured", 10)
    assert "not this one" not in str(told.value)


def fetched(connection: Connection, topic: str, end: int) -> None:
    task = pa.RecordBatch.from_pydict({"id": [0]})
    list(workers.fetched([task], (worker_config(connection), [(topic, 0, 0, end)], False)))


@pytest.mark.parametrize("kind", ["scram256", "scram512", "plain"])
def test_a_wrong_password_is_refused_at_once_and_never_shown(secured: SecuredBroker, kind: str) -> None:
    began = time.monotonic()
    with pytest.raises(BrokerRefused) as caught:
        observe(secured.client(kind, password="not this one"), ["secured"], timeout=30)
    assert time.monotonic() - began < 30, "its patience"
    assert "uthentication" in caught.value.why
    assert "not this one" not in str(caught.value)


def test_a_server_whose_authority_is_not_known_is_refused(secured: SecuredBroker) -> None:
    stranger = str(secured.folder / "stranger.pem")
    with pytest.raises(BrokerRefused, match="certificate verify failed"):
        observe(secured.at("mutual", security_protocol="SSL", ssl_ca_location=stranger), ["secured"])


def test_a_client_without_the_certificate_that_is_required_does_not_get_in(secured: SecuredBroker) -> None:
    nameless = secured.at("mutual", security_protocol="SSL", ssl_ca_location=str(secured.folder / "ca.pem"))
    with pytest.raises((BrokerRefused, BrokerUnavailable), match=r"(?i)ssl"):
        observe(nameless, ["secured"])


def test_a_frozen_broker_is_given_up_at_the_deadline(secured: SecuredBroker) -> None:
    connection = secured.at("plain")
    with secured.frozen():
        began = time.monotonic()
        with pytest.raises(BrokerUnavailable, match="no Kafka broker answered"):
            observe(connection, ["secured"], timeout=2)
        assert time.monotonic() - began < 30, "the client alone waits for a minute"
    assert isinstance(observe(connection, ["secured"])["secured"], TopicOffsets)


def test_records_that_a_frozen_broker_did_not_acknowledge_are_counted_and_raised(secured: SecuredBroker) -> None:
    create_topic(secured.at("plain"), "frozen", partitions=1)

    def freezing() -> Iterator[Record]:
        with secured.frozen():
            yield from [Record(b"x" * 1000)] * 1001
            time.sleep(4)  # past the delivery timeout, with the broker still frozen
            yield from [Record(b"")] * 1000

    with pytest.raises(BrokerUnavailable, match="2000 records for the topic 'frozen' failed, 0 were acknowledged"):
        produce(secured.at("plain"), "frozen", freezing(), timeout=3)
