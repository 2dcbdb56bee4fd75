"""A member of a group on a real broker: every assignor, both protocols, and what a group does to its members."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from kafka_assets.broker.admin import LOGGER, admin
from kafka_assets.broker.configs import add_partitions
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.groups import describe_group
from kafka_assets.broker.membership import ASSIGNORS, Membership
from kafka_assets.broker.produce import Record, transaction
from kafka_assets.broker.rebalances import Place
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.errors import BrokerUnavailable, GroupRefused, OffsetsExpired, TopicMissing, UsageError
from kafka_assets_tests.integration.groups import TIMES, Member, fresh, numbered, polled

CLASSIC = [Membership("g", assignor=name, **TIMES) for name in ASSIGNORS]
NEW = [Membership("g", protocol="consumer", max_poll_interval=30.0)]
EVERY = pytest.mark.parametrize("kind", [*CLASSIC, *NEW], ids=lambda one: f"{one.protocol}-{one.assignor}")


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker)


@pytest.fixture
def joined(connection: Connection) -> Iterator[Any]:
    """Makes members, and has them leave at the end."""
    members: list[Member] = []

    def join(topics: Sequence[str] | str, membership: Membership, **more: Any) -> Member:
        members.append(Member(connection, topics, membership, **more))
        return members[-1]

    yield join
    for one in members:
        one.group.close()


def like(kind: Membership, group: str, **more: Any) -> Membership:
    return Membership(**{**vars(kind), "group": group, **more})


@EVERY
def test_a_new_member_gets_its_part_and_everything_is_read(
    connection: Connection, joined: Any, kind: Membership, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = fresh("sub"), fresh("group")
    create_topic(connection, topic, partitions=4)
    for partition in range(4):
        numbered(connection, topic, 20, partition=partition)
    with caplog.at_level(logging.INFO, logger="kafka_assets.group"):
        one = joined([topic], like(kind, group))
        polled(one, until=lambda: len(one.records) == 80)
        assert one.owned == {(topic, partition) for partition in range(4)}
        assert one.group.positions(one.owned) == dict.fromkeys(one.owned, 20)
        two = joined([topic], like(kind, group), begin=lambda places: dict.fromkeys(places, 20))
        polled(one, two, until=lambda: (len(one.owned), len(two.owned)) == (2, 2))
    assert not one.owned & two.owned and not one.lost
    taken = {place for places in one.revoked for place in places}
    if kind.cooperative:
        assert taken == two.owned  # the others were read on all the while
    else:
        assert taken == {(topic, partition) for partition in range(4)}
    assert one.group.rebalances.kinds["assigned"] >= 1 and one.group.rebalances.kinds["revoked"] >= 1
    assert "this member joined" in caplog.text and "members came or went" in caplog.text
    two.group.close()
    polled(one, until=lambda: len(one.owned) == 4)


@pytest.mark.parametrize("kind", [CLASSIC[2], NEW[0]], ids=lambda one: one.protocol)
def test_an_added_partition_and_a_new_matching_topic_are_met_and_said(
    connection: Connection, joined: Any, kind: Membership, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = fresh("pattern")
    create_topic(connection, f"{prefix}.a", partitions=1)
    create_topic(connection, f"not{prefix}.a", partitions=1)
    with caplog.at_level(logging.INFO, logger="kafka_assets.group"):
        one = joined(rf"^{prefix}\..*", like(kind, fresh("group")))
        polled(one, until=lambda: one.owned == {(f"{prefix}.a", 0)})
        create_topic(connection, f"{prefix}.b", partitions=1)
        polled(one, until=lambda: len(one.owned) == 2)
        add_partitions(connection, f"{prefix}.a", 3)
        polled(one, until=lambda: len(one.owned) == 4)
        polled(one, until=lambda: "has 3 partitions, and had 1" in caplog.text, patience=15)
    assert one.owned == {(f"{prefix}.a", 0), (f"{prefix}.a", 1), (f"{prefix}.a", 2), (f"{prefix}.b", 0)}
    assert f"the topic {prefix}.b matches now" in caplog.text


@pytest.mark.parametrize("kind", [CLASSIC[0], CLASSIC[2], NEW[0]], ids=lambda one: f"{one.protocol}-{one.assignor}")
def test_a_parked_partition_is_read_from_where_it_is_started(
    connection: Connection, joined: Any, kind: Membership
) -> None:
    topic = fresh("parked")
    create_topic(connection, topic, partitions=2)
    for partition in range(2):
        numbered(connection, topic, 50, partition=partition)
    one = joined([topic], like(kind, fresh("group")), begin=lambda places: {})
    polled(one, until=lambda: len(one.owned) == 2)
    for _ in range(10):
        one.poll()
    assert one.records == [] and one.group.positions(one.owned) == {}
    one.group.start({(topic, 0): 30})
    polled(one, until=lambda: len(one.records) == 20)
    assert one.records == [((topic, 0), offset) for offset in range(30, 50)]
    one.group.start({(topic, 1): 49})
    polled(one, until=lambda: len(one.records) == 21)
    assert one.records[-1] == ((topic, 1), 49)
    one.group.park([(topic, 0)])
    numbered(connection, topic, 5, partition=0)
    one.group.start({(topic, 1): 10})
    assert one.group.positions([(topic, 1)]) == {(topic, 1): 10}
    polled(one, until=lambda: len(one.records) == 61)
    assert one.records[21:] == [((topic, 1), offset) for offset in range(10, 50)]
    one.group.start({(topic, 0): 0})
    polled(one, until=lambda: len(one.records) == 116)
    assert one.records[61:] == [((topic, 0), offset) for offset in range(55)]


def test_what_is_paused_is_not_consumed_and_comes_after(connection: Connection, joined: Any) -> None:
    topic = fresh("paused")
    create_topic(connection, topic, partitions=2)
    one = joined([topic], Membership(fresh("group"), **TIMES))
    polled(one, until=lambda: len(one.owned) == 2)
    one.group.pause([(topic, 0)])
    for partition in range(2):
        numbered(connection, topic, 10, partition=partition)
    polled(one, until=lambda: len(one.records) == 10)
    for _ in range(5):
        one.poll()
    assert {place for place, _ in one.records} == {(topic, 1)}
    one.group.resume([(topic, 0)])
    polled(one, until=lambda: len(one.records) == 20)
    assert [offset for place, offset in one.records if place == (topic, 0)] == list(range(10))


def test_positions_pass_control_records_and_what_was_aborted(connection: Connection, joined: Any) -> None:
    topic = fresh("control")
    create_topic(connection, topic, partitions=1)
    with transaction(connection, topic, transactional_id=fresh("tx")) as committed:
        committed.produce([Record(value=b"kept", partition=0)])
        committed.commit()
    with transaction(connection, topic, transactional_id=fresh("tx")) as aborted:
        aborted.produce([Record(value=b"gone", partition=0)])
        aborted.abort()
    one = joined([topic], Membership(fresh("group"), **TIMES))
    polled(one, until=lambda: one.group.positions([(topic, 0)]) == {(topic, 0): 4})
    assert one.records == [((topic, 0), 0)]
    assert one.group.ends([(topic, 0)]) == {(topic, 0): 4}


def test_what_a_callback_raises_is_raised_by_consume_and_the_member_lives_on(
    connection: Connection, joined: Any
) -> None:
    topic = fresh("raises")
    create_topic(connection, topic, partitions=1)
    numbered(connection, topic, 3)

    def begin(places: Sequence[Place]) -> dict[Place, int]:
        raise BrokerUnavailable("the ledger was away")

    one = joined([topic], Membership(fresh("group"), **TIMES), begin=begin)
    with pytest.raises(BrokerUnavailable, match="the ledger was away"):
        polled(one, until=lambda: False)
    assert one.owned == {(topic, 0)}
    one.group.start({(topic, 0): 0})
    polled(one, until=lambda: len(one.records) == 3)


def test_who_polls_too_late_loses_its_partitions_and_joins_again(connection: Connection, joined: Any) -> None:
    topic = fresh("late")
    create_topic(connection, topic, partitions=1)
    one = joined([topic], Membership(fresh("group"), max_poll_interval=6.0, session_timeout=6.0))
    polled(one, until=lambda: len(one.owned) == 1)
    time.sleep(7)
    polled(one, until=lambda: bool(one.lost))
    assert one.lost == [[(topic, 0)]] and one.revoked == []
    polled(one, until=lambda: len(one.owned) == 1)
    assert one.group.rebalances.kinds["lost"] == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    connection: Connection, joined: Any, protocol: Any
) -> None:
    topic, group = fresh("static"), fresh("group")
    create_topic(connection, topic, partitions=2)
    kind = CLASSIC[2] if protocol == "classic" else NEW[0]
    one = joined([topic], like(kind, group, instance_id="one"))
    two = joined([topic], like(kind, group, instance_id="two"))
    polled(one, two, until=lambda: (len(one.owned), len(two.owned)) == (1, 1))
    settled = time.monotonic() + 1  # on a slow machine the last answer of the rebalance, with nothing in it, comes late
    polled(one, two, until=lambda: time.monotonic() > settled)
    had, counted = two.owned, one.group.rebalances.count
    two.group.close()
    again = joined([topic], like(kind, group, instance_id="two"))
    polled(one, again, until=lambda: len(again.owned) == 1)
    assert again.owned == had and one.group.rebalances.count == counted


def test_a_second_one_under_the_same_instance_id_fences_the_first(connection: Connection, joined: Any) -> None:
    topic, group = fresh("fenced"), fresh("group")
    create_topic(connection, topic, partitions=1)
    one = joined([topic], Membership(group, instance_id="same", **TIMES))
    polled(one, until=lambda: len(one.owned) == 1)
    two = joined([topic], Membership(group, instance_id="same", **TIMES))
    with pytest.raises(GroupRefused) as raised:
        polled(two, one, until=lambda: False)
    assert "instance id" in str(raised.value)


def test_a_member_with_another_assignor_is_refused_with_the_reason(connection: Connection, joined: Any) -> None:
    topic, group = fresh("other"), fresh("group")
    create_topic(connection, topic, partitions=1)
    one = joined([topic], Membership(group, assignor="cooperative-sticky", **TIMES))
    polled(one, until=lambda: len(one.owned) == 1)
    two = joined([topic], Membership(group, assignor="range", **TIMES))
    with pytest.raises(GroupRefused) as raised:
        polled(one, two, until=lambda: False)
    assert "assignor" in str(raised.value)


def test_offsets_that_are_not_there_and_topics_that_go_are_errors_of_their_own(
    connection: Connection, joined: Any
) -> None:
    topic = fresh("gone")
    create_topic(connection, topic, partitions=1)
    numbered(connection, topic, 10)
    with admin(connection) as asking:
        asking.answers(asking.client.delete_records([TopicPartition(topic, 0, 5)]))
    one = joined([topic], Membership(fresh("group"), **TIMES), begin=lambda places: dict.fromkeys(places, 2))
    with pytest.raises(OffsetsExpired) as raised:
        polled(one, until=lambda: False)
    assert raised.value.place == (topic, 0)
    one.group.start({(topic, 0): 5})
    polled(one, until=lambda: len(one.records) == 5)
    delete_topic(connection, topic)
    with pytest.raises(TopicMissing, match=topic):
        polled(one, until=lambda: False)


def test_offsets_are_told_to_kafka_only_on_request_and_only_of_its_own(connection: Connection, joined: Any) -> None:
    topic, group = fresh("told"), fresh("group")
    create_topic(connection, topic, partitions=1)
    numbered(connection, topic, 10)
    one = joined([topic], Membership(group, **TIMES))
    polled(one, until=lambda: len(one.records) == 10)
    assert describe_group(connection, group).offsets == {}
    one.group.commit({(topic, 0): 7, ("another", 0): 9})
    assert describe_group(connection, group).offsets == {(topic, 0): 7}


def test_a_handshake_that_failed_once_does_not_end_a_member(connection: Connection, joined: Any) -> None:
    topic = fresh("handshake")
    create_topic(connection, topic, partitions=1)
    one = joined([topic], Membership(fresh("group"), **TIMES))
    polled(one, until=lambda: len(one.owned) == 1)
    one.group._hearing.hear(KafkaError(KafkaError._SSL, "the connection was cut"))
    numbered(connection, topic, 3)
    polled(one, until=lambda: len(one.records) == 3)


def test_what_was_wrong_with_records_is_no_reason_not_to_leave_well(connection: Connection) -> None:
    topic = fresh("leaves")
    create_topic(connection, topic, partitions=1)
    one = Member(connection, [topic], Membership(fresh("group"), **TIMES))
    polled(one, until=lambda: len(one.owned) == 1)
    one.group._hearing._error = BrokerUnavailable("the coordinator was away")
    one.group.close()
    assert one.revoked == [[(topic, 0)]]


def test_a_broker_that_is_down_is_said_at_once() -> None:
    nowhere = Member(Connection("127.0.0.1:1"), ["orders"], Membership("g", **TIMES))
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        polled(nowhere, until=lambda: False)
    nowhere.group.close()


def test_a_closed_subscription_says_so(connection: Connection) -> None:
    topic = fresh("closed")
    create_topic(connection, topic, partitions=1)
    one = Member(connection, [topic], Membership(fresh("group"), **TIMES))
    polled(one, until=lambda: len(one.owned) == 1)
    one.group.close()
    one.group.close()
    assert one.revoked == [[(topic, 0)]] and one.owned == set()
    with pytest.raises(UsageError, match="closed"):
        one.poll()


def test_going_on_with_a_partition_asks_the_broker_for_nothing_but_records(
    broker: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """What is asked beside waits behind the Fetch that is under way, and one that times out costs the connection."""
    topic = fresh("sub")
    create_topic(connection, topic, partitions=1)
    numbered(connection, topic, 20)
    one = Member(Connection(broker, {"debug": "protocol"}), [topic], Membership(fresh("group"), **TIMES))
    LOGGER.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.DEBUG, logger=LOGGER.name):
            polled(one, until=lambda: len(one.records) == 20 and one.group.at_end)
            caplog.clear()
            one.group.start({(topic, 0): 15})
            polled(one, until=lambda: len(one.records) == 25)
            one.group.pause([(topic, 0)])
            one.group.resume([(topic, 0)])
            numbered(connection, topic, 1)
            polled(one, until=lambda: len(one.records) == 26)
    finally:
        LOGGER.removeHandler(caplog.handler)
        one.group.close()
    sent = set(re.findall(r"Sent (\w+)Request", caplog.text))
    assert "Fetch" in sent and sent <= {"Fetch", "Heartbeat", "Metadata"}


@EVERY
def test_an_end_is_reached_where_every_partition_was_read_to_its_own(
    connection: Connection, joined: Any, kind: Membership
) -> None:
    topic = fresh("end")
    create_topic(connection, topic, partitions=2)
    numbered(connection, topic, 5, partition=1)
    with transaction(connection, topic, transactional_id=fresh("tx")) as aborted:
        aborted.produce([Record(value=b"gone", partition=0)])
        aborted.abort()
    one = joined([topic], like(kind, fresh("group")), begin=lambda places: dict.fromkeys([places[0]], 0))
    assert one.group.joining
    polled(one, until=lambda: len(one.owned) == 2 and not one.group.joining)
    for _ in range(5):
        one.poll()
    assert not one.group.at_end, "one is not read"
    one.group.start(dict.fromkeys(one.owned, 0))
    polled(one, until=lambda: one.group.at_end)
    assert {offset for place, offset in one.records if place == (topic, 1)} == set(range(5))
    one.group.pause([(topic, 1)])
    assert not one.group.at_end
    one.group.resume([(topic, 1)])
    numbered(connection, topic, 1, partition=1, first=5)
    polled(one, until=lambda: ((topic, 1), 5) in one.records)
    polled(one, until=lambda: one.group.at_end)
    one.group.start({(topic, 1): 3})
    assert not one.group.at_end
    polled(one, until=lambda: one.group.at_end)
