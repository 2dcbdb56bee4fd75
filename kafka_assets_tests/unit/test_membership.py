"""How a member takes part in a group: what is refused, what is left out, and what librdkafka takes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.membership import ASSIGNORS, SERVER_ASSIGNORS, Membership
from kafka_assets.broker.rebalances import Rebalance, Rebalances, shown
from kafka_assets.broker.subscription import Subscription
from kafka_assets.errors import UsageError

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


def test_a_group_of_the_users_properties_is_not_joined() -> None:
    connection = Connection("127.0.0.1:1", {"group.id": "theirs", "group.instance.id": "theirs"})
    config = taken(Membership("g", instance_id="mine"), connection)
    assert (config["group.id"], config["group.instance.id"]) == ("g", "mine")


@pytest.mark.parametrize("topics", [[], "orders", "^shop("])
def test_topics_are_a_list_or_a_pattern(topics: Any) -> None:
    with pytest.raises(UsageError):
        Subscription(NOWHERE, topics, Membership("g"), on_assign=lambda _: {}, on_revoke=lambda _: None)


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
