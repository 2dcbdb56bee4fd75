"""The experiments, small, with real kills: what must be lost is lost, what must come again comes again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafka_assets import devstack
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.leadership import NOBODY, leaderships
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic, delete_topic, topic_names
from kafka_assets.lab.brokers import Brokers
from kafka_assets.lab.rounds import PREFIX
from kafka_assets.lab.waiting import until
from kafka_assets_tests.commands import Commands

RECORDS = 40
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def command(
    tmp_path: Path, broker: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", broker)
    return Commands(monkeypatch, capsys)


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with a cluster of three, which may be killed."""
    project = tmp_path_factory.mktemp("three")
    devstack.up(project / ".kafka_assets", ["kafka"], brokers=3)
    yield project
    devstack.down(project / ".kafka_assets", delete=True)


@pytest.fixture
def cluster(three_brokers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(three_brokers))
    monkeypatch.delenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", raising=False)
    return Commands(monkeypatch, capsys)


def signs(rows: list[dict[str, Any]]) -> dict[str, tuple[bool, bool]]:
    """Of each mode whether it loses, and whether it repeats."""
    return {row["mode"]: (row["lost"] > 0, row["doubled"] > 0) for row in rows}


LOSES, REPEATS, NEITHER = (True, False), (False, True), (False, False)


def run(cluster: Commands, project: Path, name: str) -> list[dict[str, Any]]:
    rows = cluster("lab", "replication", name, "--here", "--yes", "--records", str(RECORDS), "--json").json
    running = devstack.status(project / ".kafka_assets")
    assert [one.state for one in running] == ["ready"] * 3
    assert [one for one in topic_names(Connection(running[0].url)) if one.startswith(PREFIX)] == []
    return rows


@pytest.mark.campaign
def test_what_only_a_killed_leader_had_is_lost_unless_all_replicas_were_waited_for(
    cluster: Commands, three_brokers: Path
) -> None:
    rows = run(cluster, three_brokers, "leader-killed")
    assert signs(rows) == {"acks=0": LOSES, "acks=1": LOSES, "acks=all": NEITHER}
    by_mode = {row["mode"]: row for row in rows}
    assert by_mode["acks=1"]["lost"] == RECORDS // 2
    # While only the leader had them, acks=all had told nobody that they are safe.
    assert by_mode["acks=all"]["acknowledged_before"] == RECORDS // 2
    assert by_mode["acks=all"]["acknowledged"] == by_mode["acks=all"]["records"] == RECORDS


@pytest.mark.campaign
def test_a_follower_that_is_out_of_sync_loses_what_it_takes_over(cluster: Commands, three_brokers: Path) -> None:
    rows = run(cluster, three_brokers, "out-of-sync")
    assert signs(rows) == {
        "acks=all, min.isr=1, unclean": LOSES,
        "acks=all, min.isr=1": NEITHER,
        "acks=all, min.isr=2": NEITHER,
    }
    assert [row["acknowledged_before"] for row in rows] == [RECORDS, RECORDS, RECORDS // 2]
    assert [row["led_meanwhile"] for row in rows][:2] == [True, False]


@pytest.mark.campaign
def test_a_lost_answer_doubles_without_idempotence(cluster: Commands, three_brokers: Path) -> None:
    rows = run(cluster, three_brokers, "answer-lost")
    assert signs(rows) == {
        "acks=1, idempotence off": REPEATS,
        "acks=all, idempotence off": REPEATS,
        "acks=all, idempotence on": NEITHER,
    }


@pytest.mark.campaign
def test_a_lab_that_is_terminated_puts_its_brokers_back(cluster: Commands, three_brokers: Path) -> None:
    state = three_brokers / ".kafka_assets"

    def frozen() -> bool:
        return any(psutil.Process(one.pid).status() == psutil.STATUS_STOPPED for one in devstack.status(state))

    arguments = ["lab", "replication", "leader-killed", "--here", "--yes", "--json"]
    running = subprocess.Popen(
        [sys.executable, "-c", "from kafka_assets.cli import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(frozen, "a broker is frozen", every=0.02)
    running.send_signal(signal.SIGTERM)
    out, said = running.communicate(timeout=180)
    assert (running.returncode, out) == (1, ""), said
    assert "ended by SIGTERM" in said
    assert [one.state for one in devstack.status(state)] == ["ready"] * 3


@pytest.mark.campaign
def test_a_partition_without_a_leader_locks_nobody_out(cluster: Commands, three_brokers: Path) -> None:
    brokers, topic = Brokers(three_brokers / ".kafka_assets"), f"{PREFIX}leaderless"
    lives, dies, _ = brokers.nodes
    create_topic(brokers.connection(), topic, partitions=2, replicas=[[lives], [dies]])
    produce(brokers.connection(), topic, [Record(b"v", partition=0)])
    try:
        brokers.kill(dies)
        asked = brokers.connection(lives)
        until(lambda: leaderships(asked, [topic])[topic, 1].leader == NOBODY, "nobody leads it")
        assert [one["offline"] for one in cluster("topics", "list", "--json").json if one["topic"] == topic] == [1]
        found = cluster("topics", "describe", topic, "--json").json["partitions"]
        assert [(one["leader"], one["high_watermark"]) for one in found] == [(lives, 1), (-1, None)]
        assert "leader" in cluster("topics", "describe", topic).out
        changes = ["--config", "segment.bytes=2000000", "--partitions", "3", "--yes"]
        assert cluster("topics", "alter", topic, *changes, "--json").json["partitions"] == 3
        assert "that no broker leads now" in cluster("topics", "delete", topic, code=2).err
        cluster("topics", "delete", topic, "--yes")
        assert topic not in topic_names(asked)
    finally:
        brokers.mend()


def test_brokers_are_killed_only_with_a_yes_and_only_where_there_are_three(command: Commands) -> None:
    assert "--yes" in command("lab", "replication", "--here", code=2).err
    alone = command("lab", "replication", "--here", "--yes", code=2)
    assert "kafka-assets up --brokers 3" in " ".join(alone.err.split())
    assert alone.out == ""


@pytest.mark.campaign
def test_the_lab_starts_brokers_of_its_own_and_leaves_nothing(command: Commands, tmp_path: Path) -> None:
    rows = command("lab", "replication", "--records", str(RECORDS), "--json").json
    assert [row["lost"] > 0 for row in rows] == [True, True, False, True, *[False] * 5]
    assert devstack.status(tmp_path / ".kafka_assets" / "lab") == []
    assert not (tmp_path / ".kafka_assets" / "lab").exists()


@pytest.mark.campaign
@pytest.mark.parametrize(
    "expected",
    [
        {"offset-first": LOSES, "data-first": REPEATS},
        {"auto-commit-slow-work": LOSES, "auto-commit-quick-work": REPEATS},
        {"data-first-async": REPEATS},
        {"kafka-transaction": NEITHER},
        {"ledger": NEITHER},
    ],
    ids=" and ".join,
)
def test_a_killed_consumer_loses_or_repeats_as_its_commit_mode_says(
    command: Commands, broker: str, expected: dict[str, tuple[bool, bool]]
) -> None:
    kills = 3 if NEITHER in expected.values() else 2
    more = ["--records", "200", "--kills", str(kills), "--database", "sqlite", "--json"]
    rows = command("lab", "semantics", *expected, *more).json
    assert signs(rows) == expected
    assert {(row["records"], row["kills"]) for row in rows} == {(200, kills)}
    assert [one for one in topic_names(Connection(broker)) if one.startswith(PREFIX)] == []


@pytest.mark.campaign
def test_the_ledger_keeps_its_word_on_a_server(command: Commands, postgresql_url: str) -> None:
    rows = command("lab", "semantics", "ledger", "--records", "200", "--database", postgresql_url, "--json").json
    assert signs(rows) == {"ledger": NEITHER}


@pytest.mark.campaign
@pytest.mark.parametrize(("mode", "all_stop"), [("range", True), ("cooperative", False)])
def test_a_rebalance_stops_all_partitions_or_those_that_move(command: Commands, mode: str, all_stop: bool) -> None:
    rows = command("lab", "rebalance", mode, "--rate", "60", "--json").json
    by_event = {row["event"]: row for row in rows}
    assert all(row["lost"] == 0 for row in rows)
    assert (by_event["joins"]["stopped"] == 6) is all_stop
    # What a killed member had not committed is done again by whoever gets its partitions.
    assert by_event["killed"]["doubled"] > 0
    assert by_event["joins"]["doubled"] == by_event["leaves"]["doubled"] == 0


@pytest.mark.campaign
def test_a_static_member_that_comes_back_stops_nobody_else(command: Commands) -> None:
    rows = {row["event"]: row for row in command("lab", "rebalance", "static", "--rate", "60", "--json").json}
    back = rows["killed, back"]
    assert back["stopped"] == 3
    assert back["pause_s"] < rows["killed"]["pause_s"]


@pytest.mark.campaign
def test_records_spread_by_each_partitioner_and_keys_move_when_partitions_are_added(command: Commands) -> None:
    rows = command("lab", "partitioners", "--records", "600", "--keys", "61", "--json").json
    by_mode = {row["mode"]: row for row in rows}
    assert all(row["lost"] == row["doubled"] == 0 for row in rows)
    assert by_mode["round-robin"]["least"] == by_mode["round-robin"]["most"] == 100
    assert (by_mode["key"]["keys"], by_mode["key"]["split"]) == (61, 0)
    assert by_mode["round-robin"]["split"] > 0
    assert 0 < by_mode["key, then 8"]["moved"] < 61
    assert by_mode["sticky"]["run"] > by_mode["random"]["run"]


@pytest.mark.campaign
def test_each_compression_saves_bytes_and_loses_nothing(command: Commands) -> None:
    rows = command("lab", "compression", "--records", "1000", "--json").json
    assert signs(rows) == dict.fromkeys(["none", "gzip", "snappy", "lz4", "zstd"], NEITHER)
    assert all(row["bytes_to_none"] < 1 for row in rows[1:])


@pytest.mark.campaign
def test_segments_are_read_with_kafkas_own_tool(
    command: Commands, services_folder: Path, broker: str, tmp_path: Path
) -> None:
    (tmp_path / ".kafka_assets").symlink_to(services_folder)  # the project whose broker this is
    connection, topic = Connection(broker), f"{PREFIX}segments"
    create_topic(connection, topic, partitions=1, config={"segment.bytes": "1048576"})
    try:
        for _ in range(30):
            produce(connection, topic, [Record(b"%500d" % one, partition=0) for one in range(100)])
        found = command("lab", "segments", topic, "--json").json
        assert "position" in command("lab", "segments", topic).out
        assert "choose among 0" in command("lab", "segments", topic, "--partition", "7", code=2).err
        assert "choose among 1" in command("lab", "segments", topic, "--broker", "3", code=2).err
    finally:
        delete_topic(connection, topic)
    batches, entries = found["batches"], found["entries"]
    assert sum(one["records"] for one in batches) == 3000
    logs = [one["file"] for one in found["files"] if one["file"].endswith(".log")]
    assert logs == sorted({one["segment"] for one in batches})
    assert len(logs) == 2
    # An index entry leads to the beginning of a batch.
    begins = {(one["segment"].removesuffix(".log"), one["position"]) for one in batches}
    led = {(one["index"].removesuffix(".index"), one["position"]) for one in entries if one["position"] is not None}
    assert led and led <= begins
    assert any(one["timestamp"] is not None for one in entries)
    assert "topics list" in " ".join(command("lab", "segments", topic, code=1).err.split())


@pytest.mark.parametrize(
    "arguments", [["semantics"], ["rebalance"], ["partitioners"], ["compression"]], ids=lambda given: given[0]
)
def test_a_broker_that_is_down_is_said_in_words(
    command: Commands, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", NOWHERE)
    said = command("lab", *arguments, "--json", code=1)
    assert NOWHERE in said.err and "kafka-assets up" in " ".join(said.err.split())
    assert said.out == ""


def test_segments_need_a_local_broker(command: Commands) -> None:
    assert "kafka-assets up" in " ".join(command("lab", "segments", "orders", code=1).err.split())
