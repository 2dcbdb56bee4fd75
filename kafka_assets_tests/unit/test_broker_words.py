"""What is made of a broker's answers: each refusal with its own cure, what stands, who is missing; and silence."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    ListConsumerGroupsResult,  # pyright: ignore[reportPrivateImportUsage]
)

from kafka_assets.broker import outage
from kafka_assets.broker.admin import Watch, topic_error
from kafka_assets.broker.configs import Setting, can_destroy, stands
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.groups import listed
from kafka_assets.broker.offsets import observe
from kafka_assets.broker.outage import Outage
from kafka_assets.errors import BrokerRefused, ServiceError
from kafka_assets.lab import segments
from kafka_assets.lab.ending import put_back
from kafka_assets_tests.certificates import Authority

NOWHERE = Connection("127.0.0.1:1")


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (KafkaError.TOPIC_EXCEPTION, "letters, digits"),
        (KafkaError.INVALID_REPLICATION_FACTOR, "as there are brokers"),
        (KafkaError.INVALID_REPLICA_ASSIGNMENT, "name brokers"),
        (KafkaError.INVALID_CONFIG, "topics describe"),
        (KafkaError.INVALID_PARTITIONS, "one partition or more"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "the user's rights"),
    ],
)
def test_each_refusal_has_its_own_cure(code: int, cure: str) -> None:
    said = topic_error(NOWHERE, "orders", KafkaError(code, "no"))
    assert isinstance(said, BrokerRefused)
    assert cure in said.cure
    assert ("rights" in said.cure) == (cure == "the user's rights")


@pytest.mark.parametrize("protocol", ["", "SSL", "plaintext"])
def test_who_speaks_plainly_and_gets_no_answer_is_told_that_the_broker_may_want_tls(protocol: str) -> None:
    properties = {"security.protocol": protocol} if protocol else {}
    said = Watch(Connection("127.0.0.1:1", properties)).unavailable()
    assert ("set security.protocol" in said.cure) is (protocol != "SSL")


@pytest.mark.parametrize(
    "name",
    [
        "retention.ms",
        "retention.bytes",
        "local.retention.ms",
        "cleanup.policy",
        "delete.retention.ms",
        "unclean.leader.election.enable",
    ],
)
def test_what_can_destroy_is_known(name: str) -> None:
    assert can_destroy(name)
    assert not can_destroy(f"x.{name}")


@pytest.mark.parametrize(("host", "authority"), [("127.0.0.9", "ca"), ("127.0.0.1", "stranger")])
def test_a_certificate_that_is_not_trusted_says_what_may_be_wrong(tmp_path: Path, host: str, authority: str) -> None:
    """It is of another host, or signed by somebody else: librdkafka has the same words for both."""
    Authority(tmp_path).issue("server", host=host)
    Authority(tmp_path, name="stranger")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server-key.pem")

    def greet(listening: socket.socket) -> None:
        with suppress(OSError):  # at the end it is closed
            while True:
                found, _ = listening.accept()
                with suppress(OSError), tls.wrap_socket(found, server_side=True):
                    pass  # the client turns away

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=greet, args=(listening,), daemon=True).start()
        given = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / f"{authority}.pem")}
        with pytest.raises(BrokerRefused) as caught:
            observe(Connection(f"127.0.0.1:{listening.getsockname()[1]}", given), ["orders"])
        listening.shutdown(socket.SHUT_RDWR)
    assert "certificate verify failed" in caught.value.why
    assert "ssl.ca.location" in caught.value.cure
    assert "as its certificate does" in caught.value.cure


def test_harmless_entries_are_changed_unasked() -> None:
    assert not any(map(can_destroy, ["min.insync.replicas", "compression.type", "segment.bytes", "flush.ms"]))


@pytest.mark.parametrize(
    ("wanted", "given"), [("0.50", "0.5"), ("0100", "100"), ("TRUE", "true"), ("compact, delete", "compact,delete")]
)
def test_a_valuestands_as_the_broker_writes_it(wanted: str, given: str) -> None:
    assert stands(Setting(given, own=True), wanted)
    assert not stands(Setting(given, own=False), wanted)
    assert not stands(Setting("other", own=True), wanted)


def test_a_broker_that_did_not_list_its_groups_is_told() -> None:
    assert listed(ListConsumerGroupsResult([], [])).troubles == []
    found = listed(ListConsumerGroupsResult([], [KafkaError(KafkaError._TIMED_OUT, "no answer")]))
    assert found.troubles == ["no answer (_TIMED_OUT)"]


@pytest.mark.slow
def test_a_broker_that_went_away_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "ALL_DOWN_GRACE", 0.05)
    said: list[str] = []
    watch = Watch(NOWHERE)
    looking = Outage(NOWHERE, watch, said.append)
    looking.look()
    assert said == []
    watch.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    for _ in range(3):
        looking.look()
        time.sleep(0.06)
    assert said == [f"no broker answers at {NOWHERE.bootstrap_servers}; waiting for it"]


def test_sigterm_puts_back_what_an_experiment_broke() -> None:
    before, done = signal.getsignal(signal.SIGTERM), list[str]()

    def restore() -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # somebody is impatient
        done.append("put back")

    with pytest.raises(ServiceError, match="ended by SIGTERM"), put_back(restore):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        done.append("went on")
    assert done == ["put back"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_partition_that_is_too_large_to_dump_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "java"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    (tmp_path / "0.log").write_bytes(b"12345")
    monkeypatch.setattr(segments, "PATIENCE", 0.2)
    monkeypatch.setattr(segments, "find_java", lambda: str(slow))
    monkeypatch.setattr(segments.fetch, "fetch", lambda wanted: [Path(sys.executable)])
    with pytest.raises(ServiceError, match="5 bytes in 1 files") as said:
        segments.dump_text([tmp_path / "0.log"])
    assert said.value.cure
