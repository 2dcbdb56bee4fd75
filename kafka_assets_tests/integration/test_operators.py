"""The operators' commands on a real broker: topics, groups, offsets, records."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_assets.broker.admin import admin
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.consume import consume
from kafka_assets.broker.produce import Record, produce, transaction
from kafka_assets.broker.topics import create_topic
from kafka_assets.errors import OffsetsExpired
from kafka_assets_tests.commands import Commands
from kafka_assets_tests.integration.java_producer import share_by_java

_numbers = itertools.count(1)


@pytest.fixture
def command(
    tmp_path: Path, broker: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", broker)
    return Commands(monkeypatch, capsys)


@pytest.fixture
def connection(broker: str) -> Connection:
    return Connection(broker)


@pytest.fixture
def name() -> str:
    return f"operators-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(connection: Connection, name: str) -> str:
    """Two partitions: six records at times 1000 to 6000 in the first, one that is no text in the second."""
    create_topic(connection, name, partitions=2, config={"retention.ms": "-1"})  # from 1970, they would expire at once
    produce(
        connection,
        name,
        [
            Record(b"v%d" % at, key=b"k%d" % at, partition=0, timestamp_ms=1000 * (at + 1), headers=[("h", b"x")])
            for at in range(6)
        ],
    )
    produce(connection, name, [Record(b"\xff", partition=1, timestamp_ms=9000)])
    return name


@contextmanager
def member(broker: str, group: str, topic: str, *, waits: bool = True) -> Generator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": broker, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    try:
        while waits and not consumer.assignment():
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()


def test_a_topic_is_made_changed_and_deleted(command: Commands, name: str) -> None:
    made = command("topics", "create", name, "--partitions", "2", "--config", "retention.ms=100000", "--json").json
    assert (made["name"], made["partitions"], made["replication_factor"], made["existed"]) == (name, 2, 1, False)
    assert "exists already" in command("topics", "create", name, "--partitions", "2", code=2).err
    assert "exists" in command("topics", "create", name, "--partitions", "2", "--if-not-exists").out

    listed = {one["topic"]: one for one in command("topics", "list", "--json").json}
    assert listed[name] == {"topic": name, "partitions": 2, "replication_factor": 1, "offline": 0}
    assert not any(one.startswith("__") for one in listed)

    found = command("topics", "describe", name, "--json").json
    assert found["config"] == {"retention.ms": "100000"}
    assert [(one["partition"], one["leader"], one["in_sync"]) for one in found["partitions"]] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]
    assert "cleanup.policy" in command("topics", "describe", name, "--all", "--json").json["config"]
    assert "retention.ms" in command("topics", "describe", name).out

    changes = ["--config", "cleanup.policy=compact", "--default", "retention.ms", "--partitions", "3"]
    assert "--yes" in command("topics", "alter", name, *changes, code=2).err
    changed = command("topics", "alter", name, *changes, "--yes", "--json").json
    assert changed["partitions"] == 3
    assert changed["config"]["cleanup.policy"] == "compact"
    assert command("topics", "describe", name, "--json").json["config"] == {"cleanup.policy": "compact"}

    assert "--yes" in command("topics", "delete", name, code=2).err
    assert command("topics", "delete", name, "--yes", "--json").json == {"topic": name, "deleted": True}
    assert name not in command("topics", "list").out


def test_what_the_broker_cannot_do_is_said_with_its_cure(command: Commands, topic: str) -> None:
    fewer = command("topics", "alter", topic, "--partitions", "1", "--yes", code=1)
    assert "never takes one away" in fewer.err
    wrong = command("topics", "alter", topic, "--config", "retention.ms=soon", "--yes", code=1)
    assert "retention.ms" in wrong.err and "topics describe" in " ".join(wrong.err.split())
    unknown = command("topics", "alter", topic, "--config", "no.such.name=1", code=1)
    assert "no.such.name" in unknown.err
    many = command("topics", "create", f"{topic}-3", "--replication-factor", "3", code=1)
    assert "replication" in many.err.lower() and "as there are brokers" in many.err
    unknown = command("topics", "create", f"{topic}-3", "--config", "no.such.name=1", code=1)
    assert "no.such.name" in unknown.err and "topics describe" in " ".join(unknown.err.split())
    assert "exists with 2 partitions" in command("topics", "create", topic, "--partitions", "5", code=1).err


def test_what_can_destroy_records_is_asked_for(command: Commands, topic: str) -> None:
    said = command("topics", "alter", topic, "--config", "retention.ms=1", "--config", "segment.bytes=2000000", code=2)
    assert "Set retention.ms=1 (now -1)" in said.err and "--yes" in said.err
    assert "--yes" in command("topics", "alter", topic, "--default", "cleanup.policy", code=2).err
    assert command("topics", "describe", topic, "--json").json["config"] == {"retention.ms": "-1"}
    changed = command("topics", "alter", topic, "--config", "min.cleanable.dirty.ratio=0.70", "--json")
    assert changed.json["config"] == {"min.cleanable.dirty.ratio": "0.7"}


def test_a_change_that_is_refused_leaves_nothing_half_done(command: Commands, topic: str) -> None:
    more, fewer = ["--partitions", "3", "--yes"], ["--partitions", "1", "--yes"]
    command("topics", "alter", topic, "--config", "segment.bytes=soon", *more, code=1)
    command("topics", "alter", topic, "--config", "segment.bytes=2000000", *fewer, code=1)
    found = command("topics", "describe", topic, "--json").json
    assert (len(found["partitions"]), found["config"]) == (2, {"retention.ms": "-1"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "describe", "no-such-topic"],
        ["topics", "alter", "no-such-topic", "--partitions", "2", "--yes"],
        ["topics", "alter", "no-such-topic", "--config", "retention.ms=1"],
        ["topics", "delete", "no-such-topic", "--yes"],
        ["offsets", "no-such-topic"],
        ["consume", "no-such-topic"],
        ["groups", "describe", "no-such-group"],
        ["groups", "reset", "some-group", "no-such-topic", "--to", "earliest", "--yes"],
        ["groups", "delete", "no-such-group", "--yes"],
    ],
    ids=" ".join,
)
def test_a_name_that_does_not_exist_is_said_in_words(command: Commands, arguments: list[str]) -> None:
    said = command(*arguments, code=1)
    assert "no-such-" in said.err and "does not exist" in said.err
    assert said.out == ""


def test_offsets_are_shown_and_where_a_time_leads(command: Commands, topic: str) -> None:
    found = command("offsets", topic, "--at", "1970-01-01T00:00:03", "--json").json
    assert [(one["log_start"], one["last_stable"], one["at"]) for one in found] == [(0, 6, 2), (0, 1, 0)]
    assert "last_stable" in command("offsets", topic).out


def test_records_are_shown_from_anywhere(command: Commands, topic: str) -> None:
    lines = command("consume", topic, "--json").lines
    assert [(one["partition"], one["offset"]) for one in sorted(lines, key=lambda one: one["timestamp"])] == [
        *((0, offset) for offset in range(6)),
        (1, 0),
    ]
    [first] = [one for one in lines if (one["partition"], one["offset"]) == (0, 0)]
    assert (first["key"], first["value"], first["timestamp"]) == ("k0", "v0", 1000)
    assert first["headers"] == [{"key": "h", "value": "x"}]
    [other] = [one for one in lines if one["partition"] == 1]
    assert other["value_base64"] == "/w==" and other["key"] is None

    at = ["--partition", "0", "--json"]
    assert [one["offset"] for one in command("consume", topic, "--from", "4", *at).lines] == [4, 5]
    assert [one["offset"] for one in command("consume", topic, "--at", "3000", "-n", "2", *at).lines] == [2, 3]
    assert command("consume", topic, "--from", "end", *at).lines == []
    shown = command("consume", topic, "-n", "1", "--partition", "0", "--keys", "--headers", "--timestamps", "--offsets")
    assert shown.out == "0:0\t1970-01-01T00:00:01.000+00:00\th=x\tk0\tv0\n"
    assert "begin at 6, or earlier" in command("consume", topic, "--from", "7", "--partition", "0", code=1).err
    assert "no partition 9" in command("consume", topic, "--partition", "9", code=2).err
    assert "no place" in command("consume", topic, "--from", "3", code=2).err


def test_what_comes_later_is_followed(command: Commands, connection: Connection, topic: str) -> None:
    later = threading.Timer(1.0, produce, (connection, topic, [Record(b"later", partition=1)]))
    later.start()
    at = ["--partition", "1", "--from", "end"]
    assert [one["value"] for one in command("consume", topic, "--follow", "-n", "1", "--json", *at).lines] == ["later"]
    later.join()


def test_records_that_expire_while_they_are_read_are_said_in_words(connection: Connection, topic: str) -> None:
    with admin(connection) as asking:
        asking.answers(asking.client.delete_records([TopicPartition(topic, 0, 3)]))
    for end in ({0: 6}, None):
        with pytest.raises(OffsetsExpired, match="offset 0 of partition 0"):
            list(consume(connection, topic, {0: 0}, end=end))


def test_a_time_in_microseconds_is_shown_as_it_is(command: Commands, connection: Connection, name: str) -> None:
    create_topic(connection, name, partitions=1, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    produce(connection, name, [Record(b"v", partition=0, timestamp_ms=1_700_000_000_000_000)])
    assert command("consume", name, "--timestamps").out == "1700000000000000\tv\n"


def test_whoever_reads_the_records_may_have_enough(broker: str, topic: str, tmp_path: Path) -> None:
    reading = subprocess.Popen(
        [sys.executable, "-c", "from kafka_assets.cli import main; main()", "consume", topic],
        env={**os.environ, "KAFKA_ASSETS_BOOTSTRAP_SERVERS": broker, "KAFKA_ASSETS_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert reading.stdout is not None and reading.stderr is not None
    reading.stdout.close()
    said = reading.stderr.read()
    reading.stderr.close()
    assert (reading.wait(timeout=180), said) == (0, "")


def test_what_a_producer_aborted_is_not_shown(command: Commands, connection: Connection, topic: str) -> None:
    with transaction(connection, topic, transactional_id=topic) as writing:
        writing.produce([Record(b"never", partition=0)])
        writing.abort()
    produce(connection, topic, [Record(b"last", partition=0)])
    values = [one["value"] for one in command("consume", topic, "--partition", "0", "--from", "5", "--json").lines]
    assert values == ["v5", "last"]


def test_a_group_is_described_reset_and_deleted(command: Commands, broker: str, topic: str) -> None:
    group = f"group-{topic}"
    with member(broker, group, topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        found = command("groups", "describe", group, "--json").json
        assert (found["state"], found["members"]) == ("stable", 1)
        by_partition = {one["partition"]: one for one in found["offsets"]}
        assert (by_partition[0]["next_offset"], by_partition[0]["end"], by_partition[0]["lag"]) == (4, 6, 2)
        assert by_partition[1]["next_offset"] is None and by_partition[1]["member"]
        for change in (["reset", group, topic, "--to", "earliest"], ["delete", group]):
            refused = command("groups", *change, "--yes", code=1)
            assert "is in use" in refused.err and refused.out == "", "nothing looks as if it were done"

    assert group in {one["group"] for one in command("groups", "list", "--json").json}
    assert group in command("groups", "list").out
    assert "--yes" in command("groups", "reset", group, topic, "--to", "earliest", code=2).err
    back = command("groups", "reset", group, topic, "--to", "2", "--partition", "0", "--yes", "--json").json
    assert [(one["before"], one["next_offset"]) for one in back] == [(4, 2)]
    command("groups", "reset", group, topic, "--at", "5000", "--yes")
    found = command("groups", "describe", group, "--json").json
    assert [one["next_offset"] for one in found["offsets"]] == [4, 0]
    assert "begin at 6" in command(
        "groups", "reset", group, topic, "--to", "99", "--partition", "0", "--yes", code=1
    ).err  # fmt: skip
    assert "topic" in command("groups", "describe", group).out

    assert command("groups", "delete", group, "--yes", "--json").json == {"group": group, "deleted": True}
    assert "does not exist" in command("groups", "describe", group, code=1).err
    new = command("groups", "reset", group, topic, "--to", "latest", "--yes", "--json").json
    assert [(one["before"], one["next_offset"]) for one in new] == [(None, 6), (None, 1)]
    internal = {one["topic"] for one in command("topics", "list", "--internal", "--json").json}
    assert "__consumer_offsets" in internal - {one["topic"] for one in command("topics", "list", "--json").json}


def test_a_group_of_another_kind_is_listed_and_described_as_what_it_is(
    command: Commands, broker: str, topic: str
) -> None:
    group = f"share-{topic}"
    share_by_java(broker, topic, group)
    [listed] = [one for one in command("groups", "list", "--json").json if one["group"] == group]
    assert (listed["type"], listed["state"]) == ("share or streams", "unknown")
    for asked in (
        ["describe", group],
        ["reset", group, topic, "--to", "earliest", "--yes"],
        ["delete", group, "--yes"],
    ):
        refused = command("groups", *asked, code=1)
        assert "is no consumer group" in refused.err and "KIP-932" in refused.err and refused.out == ""


def test_a_record_without_a_value_is_told_from_an_empty_one(
    command: Commands, connection: Connection, topic: str
) -> None:
    produce(connection, topic, [Record(None, key=b"gone", partition=1), Record(b"", key=None, partition=1)])
    shown = command("consume", topic, "--partition", "1", "--from", "1", "--keys").out
    assert shown.splitlines() == ["gone\tnull", "null\t"]


def test_members_are_told_apart_and_seen_without_partitions(command: Commands, broker: str, name: str) -> None:
    create_topic(Connection(broker), name, partitions=1)
    with member(broker, name, name) as one, member(broker, name, name, waits=False) as other:
        while True:
            one.poll(0.1)
            other.poll(0.1)
            found = command("groups", "describe", name, "--json").json
            if found["members"] == 2 and found["offsets"]:
                break
        shown = command("groups", "describe", name).out
    assert {one["client_id"] for one in found["consumers"]} == {"rdkafka"}
    assert sorted(one["partitions"] for one in found["consumers"]) == [0, 1]
    assert all(one["host"] for one in found["consumers"])
    [holder] = [one["member_id"] for one in found["consumers"] if one["partitions"]]
    assert [(one["member"], one["member_id"]) for one in found["offsets"]] == [("rdkafka", holder)]
    assert "2 members" in shown and "host" in shown
