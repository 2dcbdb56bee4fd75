"""How a member takes part in a group: what is refused, what is left out, and what librdkafka takes."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_assets.broker import long_watch
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.long_watch import LongWatch
from kafka_assets.broker.matching import Matching
from kafka_assets.broker.membership import ASSIGNORS, SERVER_ASSIGNORS, Membership
from kafka_assets.broker.rebalances import Rebalance, Rebalances, shown
from kafka_assets.broker.subscription import Subscription
from kafka_assets.errors import BrokerRefused, SettingsError, UsageError

NOWHERE = Connection("127.0.0.1:1", {"log.queue": "false"})


def taken(membership: Membership, connection: Connection = NOWHERE) -> dict[str, Any]:
    """Its properties, which librdkafka has accepted."""
    config = membership.config(connection)
    Consumer(config, logger=logging.getLogger("test.quiet")).close()
    return config


@pytest.mark.parametrize("assignor", [None, *ASSIGNORS])
def test_each_assignor_of_librdkafka_is_taken(assignor: str | None) -> None:
    config = taken(Membership("g", assignor=assignor))
    assert config["partition.assignment.strategy"] == (assignor or "cooperative-sticky")
    assert config["enable.auto.commit"] == "false"
    assert Membership("g", assignor=assignor).cooperative == (assignor in {None, "cooperative-sticky"})


@pytest.mark.parametrize("assignor", [None, *SERVER_ASSIGNORS])
def test_the_new_protocol_has_the_brokers_assignors(assignor: str | None) -> None:
    config = taken(Membership("g", assignor=assignor, protocol="consumer"))
    assert config["group.protocol"] == "consumer" and "partition.assignment.strategy" not in config
    assert config.get("group.remote.assignor") == assignor


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "librdkafka calls it 'cooperative-sticky'"),
        ("RangeAssignor", "librdkafka calls it 'range'"),
        ("sticky", "have no equivalent"),
        ("org.apache.kafka.clients.consumer.StickyAssignor", "have no equivalent"),
        ("com.example.MyAssignor", "have no equivalent"),
    ],
)
def test_an_assignor_that_is_not_there_is_refused_with_what_there_is(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=name.rpartition(".")[2]) as raised:
        Membership("g", assignor=name)
    assert why in raised.value.why and raised.value.cure


@pytest.mark.parametrize(
    "given",
    [
        {"group": ""},
        {"protocol": "streams"},
        {"protocol": "consumer", "assignor": "cooperative-sticky"},
        {"protocol": "consumer", "session_timeout": 10.0},
    ],
)
def test_what_a_protocol_does_not_have_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        Membership(**{"group": "g", **given})
    assert raised.value.cure


def test_a_property_that_the_new_protocol_forbids_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection("127.0.0.1:1", {"session.timeout.ms": "9000", "heartbeat.interval.ms": "1000"})
    with caplog.at_level("WARNING"):
        config = taken(Membership("g", protocol="consumer"), connection)
    assert not {"session.timeout.ms", "heartbeat.interval.ms"} & set(config)
    assert "session.timeout.ms is left out" in caplog.text
    assert taken(Membership("g"), connection)["session.timeout.ms"] == "9000"


def test_a_session_is_never_longer_than_a_member_may_take_between_polls() -> None:
    assert taken(Membership("g", max_poll_interval=7.0))["session.timeout.ms"] == "7000"
    assert taken(Membership("g", max_poll_interval=60.0, session_timeout=6.0))["session.timeout.ms"] == "6000"


def test_a_member_may_take_between_polls_what_the_settings_say_unless_it_says_it_itself() -> None:
    connection = Connection("127.0.0.1:1", {"max.poll.interval.ms": "900000"})
    assert taken(Membership("g"), connection)["max.poll.interval.ms"] == "900000"
    assert Membership("g").poll_interval(connection) == 900.0
    assert taken(Membership("g", max_poll_interval=60.0), connection)["max.poll.interval.ms"] == "60000"
    assert Membership("g").poll_interval(NOWHERE) == 300.0
    with pytest.raises(SettingsError, match=r"max\.poll\.interval\.ms is 'long'"):
        Membership("g").config(Connection("127.0.0.1:1", {"max.poll.interval.ms": "long"}))


@pytest.mark.parametrize(
    ("name", "given", "option"),
    [
        ("group.id", "theirs", "--group"),
        ("group.instance.id", "theirs", "--instance-id"),
        ("group.protocol", "consumer", "--group-protocol"),
        ("partition.assignment.strategy", "range", "--assignor"),
    ],
)
def test_a_property_that_a_membership_says_itself_does_not_count_and_that_is_said(
    name: str, given: str, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    mine = {"instance_id": "mine", "assignor": "roundrobin"}
    with caplog.at_level("WARNING"):
        config = taken(Membership("g", **mine), Connection("127.0.0.1:1", {name: given}))
    assert config[name] != given and f"{name} = {given} does not count" in caplog.text and option in caplog.text


def test_a_property_that_agrees_with_the_membership_is_not_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        taken(Membership("g", assignor="range"), Connection("127.0.0.1:1", {"partition.assignment.strategy": "range"}))
    # The client itself may have found by now that nobody listens there.
    assert [one.getMessage() for one in caplog.records if one.name == "kafka_assets.group"] == []


@pytest.mark.parametrize("topics", [[], "orders", "^shop("])
def test_topics_are_a_list_or_a_pattern(topics: Any) -> None:
    with pytest.raises(UsageError):
        Subscription(NOWHERE, topics, Membership("g"), on_assign=lambda _: {}, on_revoke=lambda _: None)


class Listed:
    """A client that knows of these topics."""

    def __init__(self, *names: str) -> None:
        self.topics = {name: SimpleNamespace(partitions=[0]) for name in names}

    def list_topics(self, timeout: float) -> Any:
        return self


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^shop.*", ["shop.a", "shop.b"]),
        ("^^shop.*$", ["shop.a", "shop.b"]),
        ("^(?i)shop.*", ["SHOP.c", "shop.a", "shop.b"]),
        ("^shop.a|bishop", ["bishop", "shop.a"]),
    ],
)
def test_a_pattern_is_compared_with_whole_names(pattern: str, found: list[str]) -> None:
    matching = Matching(pattern)
    assert matching.look(Listed("shop.a", "shop.b", "SHOP.c", "bishop", "__shop"), [])  # type: ignore[arg-type]
    assert matching.topics == found


class Handshakes:
    """A client that has met its cluster, or not; it is asked nothing that its broker would have to answer."""

    def __init__(self, *, met: bool) -> None:
        self.met = met

    def cluster_id(self, timeout: float) -> str | None:
        return "a cluster" if self.met else None


class Silent:
    """Asked beside it, where nobody answers."""

    def list_topics(self, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def watching(*, answers: bool) -> LongWatch:
    watch = LongWatch(NOWHERE)
    watch._beside = Listed() if answers else Silent()  # type: ignore[assignment]
    return watch


def test_a_refused_handshake_ends_a_member_at_once_only_before_it_has_met_the_cluster() -> None:
    watch = watching(answers=True)
    watch.hear(KafkaError(KafkaError._SSL, "cut"))
    with pytest.raises(BrokerRefused, match="cut"):
        watch.check(Handshakes(met=False))
    watch.check(Handshakes(met=True))
    watch.check(Handshakes(met=False))
    watch.hear(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerRefused):
        watch.check(Handshakes(met=True))


def test_a_refusal_that_lasts_ends_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_watch, "_ASKED_EVERY", 0.0)
    watch = watching(answers=False)
    watch.hear(KafkaError(KafkaError._AUTHENTICATION, "another password"))
    watch.check(Handshakes(met=True))
    monkeypatch.setattr(long_watch, "REFUSED_GRACE", 0.0)
    with pytest.raises(BrokerRefused, match="another password"):
        watch.check(Handshakes(met=True))


def test_rebalances_are_told_once_with_what_caused_them(caplog: pytest.LogCaptureFixture) -> None:
    told = Rebalances()
    with caplog.at_level("INFO", logger="kafka_assets.group"):
        told.add(Rebalance("assigned", (("a", 1), ("a", 0), ("b", 3)), seconds=0.5))
        told.log("g", [], owned=3)
        told.add(Rebalance("revoked", (("a", 1),), seconds=0.25))
        told.log("g", ["a has 3 partitions, and had 2"], owned=2)
        told.add(Rebalance("lost", (("a", 0),), seconds=0.25))
        told.log("g", [], owned=1)
    assert told.count == 3 and told.seconds == 1.0 and told.kinds == {"assigned": 1, "revoked": 1, "lost": 1}
    first, second, third = [record.getMessage() for record in caplog.records]
    assert "assigned a:0,1 b:3 in 0.500 s, has 3 now (this member joined)" in first
    assert "revoked a:1 in 0.250 s, has 2 now (a has 3 partitions, and had 2)" in second
    assert "counted this member as gone" in third and told.last[2].why in third


def test_places_are_shown_by_topic() -> None:
    assert shown([("b", 2), ("a", 1), ("a", 0)]) == "a:0,1 b:2"
