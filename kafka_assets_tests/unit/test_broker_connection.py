from __future__ import annotations

import re
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from kafka_assets.broker import admin
from kafka_assets.broker.admin import LOGGER, Admin
from kafka_assets.broker.connection import (
    OURS,
    Connection,
    admin_config,
    consumer_config,
    producer_config,
    worker_config,
)
from kafka_assets.broker.java_names import JAVA_NAMES
from kafka_assets.broker.usual_names import USUAL_NAMES
from kafka_assets.errors import SettingsError
from kafka_assets.settings import load_settings

PASSWORDS = {"sasl.password": "hunter2", "ssl.key.password": "hunter2", "ssl.keystore.password": "hunter2"}


def test_secrets_do_not_appear_in_the_repr() -> None:
    connection = Connection("b:1", {**PASSWORDS, "ssl.key.pem": "hunter2", "sasl.username": "alice"})
    assert "hunter2" not in repr(connection)
    assert "alice" in repr(connection)


def test_secrets_do_not_appear_in_errors(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        Connection("b:1", {"sasl.jaas.config": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_java_name_is_refused_with_our_word_for_it() -> None:
    with pytest.raises(SettingsError, match=r"sasl\.username and sasl\.password"):
        Connection("b:1", {"sasl.jaas.config": "x"})
    with pytest.raises(SettingsError, match=r"ssl\.ca\.location"):
        Connection("b:1", {"ssl.truststore.location": "x"})
    with pytest.raises(SettingsError, match=r"fetch\.wait\.max\.ms"):
        Connection("b:1", {"fetch.max.wait.ms": "1"})


@pytest.mark.parametrize("name", sorted(OURS))
def test_what_the_design_decides_is_not_the_users_to_set(name: str) -> None:
    with pytest.raises(SettingsError, match="not yours to set"):
        Connection("b:1", {name: "x"})


def test_every_word_that_the_java_table_recommends_is_known_to_librdkafka() -> None:
    recommended = {word for ours in JAVA_NAMES.values() for word in re.findall(r"\b[a-z]+(?:\.[a-z]+)+\b", ours)}
    assert "socket.timeout.ms" in recommended
    assert [name for name in sorted(recommended) if not known_to_librdkafka(name)] == []


def test_no_name_of_the_java_table_is_of_use_in_librdkafka() -> None:
    # These three librdkafka knows: two only to say that they are Java's, one only for share consumers.
    known = {"sasl.jaas.config", "ssl.truststore.location", "max.poll.records"}
    assert {name for name in JAVA_NAMES if known_to_librdkafka(name)} == known


def test_every_name_that_is_meant_where_one_is_misspelt_is_known_to_librdkafka() -> None:
    assert [name for name in sorted(USUAL_NAMES) if not known_to_librdkafka(name)] == []


def test_the_test_for_known_names_can_fail() -> None:
    assert not known_to_librdkafka("no.such.property")


def test_settings_from_the_environment_reach_every_client(tmp_path: Path) -> None:
    environ = {"KAFKA_ASSETS_BOOTSTRAP_SERVERS": "b:1", "KAFKA_ASSETS_KAFKA__SECURITY_PROTOCOL": "ssl"}
    connection = Connection.of(load_settings(tmp_path, environ))
    for config in (admin_config(connection), consumer_config(connection), producer_config(connection)):
        assert config["bootstrap.servers"] == "b:1"
        assert config["security.protocol"] == "ssl"


def test_without_a_broker_the_error_names_the_command_that_starts_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="kafka-assets up"):
        Connection.of(load_settings(tmp_path, {}))


@pytest.mark.parametrize("name", ["SECURITY_PROTCOL", "LINGER_MSS", "SSL_TRUSTSTORE_LOCATION", "ISOLATION_LEVEL"])
def test_a_wrong_property_is_told_before_a_broker_that_is_not_known(tmp_path: Path, name: str) -> None:
    settings = load_settings(tmp_path, {f"KAFKA_ASSETS_KAFKA__{name}": "x"})
    with pytest.raises(SettingsError) as told:
        Connection.of(settings)
    assert name.lower().replace("_", ".") in str(told.value)


def test_right_properties_are_no_answer_to_where_the_broker_is(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no Kafka broker is known"):
        Connection.of(load_settings(tmp_path, {"KAFKA_ASSETS_KAFKA__LINGER_MS": "5"}))


def test_a_consumer_commits_nothing_and_never_jumps() -> None:
    config = consumer_config(Connection("b:1"))
    assert config["isolation.level"] == "read_committed"
    assert config["auto.offset.reset"] == "error"
    assert config["enable.auto.commit"] == "false"


def test_a_quick_consumer_does_not_wait_a_second_for_what_is_there() -> None:
    assert consumer_config(Connection("b:1"))["fetch.queue.backoff.ms"] == "20"
    asked = consumer_config(Connection("b:1", {"fetch.queue.backoff.ms": "1000"}))
    assert asked["fetch.queue.backoff.ms"] == "1000"


def test_a_producer_loses_nothing_by_default() -> None:
    config = producer_config(Connection("b:1"))
    assert (config["acks"], config["enable.idempotence"]) == ("all", "true")


def known_to_librdkafka(name: str) -> bool:
    try:
        Producer({name: "\x01"}, logger=LOGGER)
    except KafkaException as error:
        return "No such configuration property" not in error.args[0].str()
    except TypeError:  # a callback's name, given a string
        return True
    return True


@pytest.mark.parametrize(
    "address", ["http://a b:::", "", "a:1,,b:2", "a:port", "a b:1", "me@a:1", "a:123456", "a:99999", "a:0", "::1:9092"]
)
def test_an_address_that_is_none_is_said_before_anybody_waits_for_it(address: str) -> None:
    with pytest.raises(SettingsError, match="is no address of a broker"):
        Connection(address)


@pytest.mark.parametrize("address", ["http://me:S3cret@a:9092", "me:S3cret@a:9092", "a:1,me:S3cret@b:1"])
def test_a_password_in_an_address_is_not_shown(address: str) -> None:
    with pytest.raises(SettingsError, match="is no address of a broker") as refused:
        Connection(address)
    assert "S3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "address", ["a:1", "a", "a:1, b:2", "[::1]:9092", "[fe80::1%eth0]:9092", "SASL_SSL://a.b-c_d:1"]
)
def test_an_address_is_of_a_host_and_a_port(address: str) -> None:
    assert Connection(address).bootstrap_servers == address


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=rf"no file .*/absent\.pem.*{name}"):
        admin_config(Connection("b:1", {name: str(tmp_path / "absent.pem")}))
    assert admin_config(Connection("b:1", {name: str(tmp_path)}))[name] == str(tmp_path)


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("ssl.ca.location", "ssl.ca.pem"),
        ("ssl.certificate.location", "ssl.certificate.pem"),
        ("ssl.key.location", "ssl.key.pem"),
    ],
)
def test_what_a_file_holds_goes_along_to_workers(tmp_path: Path, location: str, text: str) -> None:
    (tmp_path / "one.pem").write_text("Wärme\n", encoding="utf-8")
    connection = Connection("b:1", {location: str(tmp_path / "one.pem")})
    assert worker_config(connection) == {
        **{name: value for name, value in consumer_config(connection).items() if name != location},
        text: "Wärme\n",
    }
    assert known_to_librdkafka(text)
    assert "Wärme" not in repr(connection)


def test_what_is_no_text_stays_a_path_that_means_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "authorities").mkdir()
    (tmp_path / "client.p12").write_bytes(b"\xff\0")
    given = {"ssl.ca.location": "authorities", "ssl.keystore.location": "client.p12"}
    found = worker_config(Connection("b:1", given))
    assert {name: found[name] for name in given} == {
        "ssl.ca.location": str(tmp_path / "authorities"),
        "ssl.keystore.location": str(tmp_path / "client.p12"),
    }
    assert worker_config(Connection("b:1", {"ssl.ca.location": "probe"}))["ssl.ca.location"] == "probe"
    assert not any(name.startswith("ssl.") for name in worker_config(Connection("b:1")))


def test_a_file_by_the_name_of_what_librdkafka_looks_for_itself_is_not_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "probe").write_text("no authority", encoding="utf-8")
    assert not any(name.startswith("ssl.") for name in worker_config(Connection("b:1")))
    assert worker_config(Connection("b:1", {"ssl.ca.location": "probe"}))["ssl.ca.location"] == "probe"


def test_a_file_that_is_not_there_does_not_travel(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no file"):
        worker_config(Connection("b:1", {"ssl.ca.location": str(tmp_path / "absent.pem")}))


def test_the_passphrase_of_a_key_is_a_secret() -> None:
    name = "sasl.oauthbearer.assertion.private.key.passphrase"
    assert "hunter2" not in repr(Connection("b:1", {name: "hunter2"}))


def test_an_answer_is_heard_as_soon_as_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "LOOK", 3600.0)  # nobody waits for the next look at the client
    asking = Admin(Connection("127.0.0.1:1"))
    answer: Future[int] = Future()
    threading.Timer(0.05, answer.set_result, [7]).start()
    assert asking.answers({"question": answer}) == {"question": 7}
