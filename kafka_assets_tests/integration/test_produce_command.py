"""`kafka-assets produce`: lines in, records there, and exit codes that can be trusted."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kafka_assets import cli
from kafka_assets.broker import Connection
from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.broker.partitioners import partition_of_key
from kafka_assets.broker.read import StoredRecord, read_range
from kafka_assets.broker.topics import create_topic
from kafka_assets_tests.integration.settling import settled

_numbers = count(1)


@pytest.fixture
def topic(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", broker)
    name = f"lines-{os.getpid()}-{next(_numbers)}"
    create_topic(Connection(broker), name, partitions=3)
    return name


class Command:
    """Runs `kafka-assets produce` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str, stdin: bytes = b"") -> int:
        self._monkeypatch.setattr(sys, "argv", ["kafka-assets", "produce", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        self.out, self.err = self._capsys.readouterr()
        return int(ended.value.code or 0)

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


@pytest.fixture
def produce(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def stored(broker: str, topic: str) -> list[StoredRecord]:
    connection = Connection(broker)
    return [
        record
        for partition, ends in settled(connection, topic, patience=5).items()
        for record in read_range(connection, topic, partition, ends.log_start, ends.last_stable)
    ]


def ends(broker: str, topic: str) -> int:
    """How many records the partitions have, committed or not."""
    found = observe(Connection(broker), [topic])[topic]
    assert isinstance(found, TopicOffsets)
    return sum(one.high_watermark for one in found.partitions.values())


def test_the_lines_of_files_and_of_stdin_are_the_values(
    broker: str, topic: str, tmp_path: Path, produce: Command
) -> None:
    (tmp_path / "one.txt").write_bytes(b"1\n2\r\n\n")
    (tmp_path / "two.txt").write_bytes(b"\xff\xfe")
    assert produce(topic, "one.txt", "-", "two.txt", "--partition", "1", stdin=b"stdin\n") == 0
    assert [(one.partition, one.key, one.value) for one in stored(broker, topic)] == [
        (1, None, value) for value in (b"1", b"2", b"", b"stdin", b"\xff\xfe")
    ]
    assert "5 of 5 lines delivered" in produce.out


def test_a_pipe_is_read_and_stdout_is_json_and_nothing_else(broker: str, topic: str) -> None:
    command = [sys.executable, "-c", "from kafka_assets.cli import main; main()", "produce", topic, "--json"]
    lines = b"".join(b"%d\n" % number for number in range(20_000))
    done = subprocess.run(command, input=lines, capture_output=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["topic"], summary["read"], summary["delivered"], summary["failed"]) == (topic, 20_000, 20_000, 0)
    assert sum(summary["partitions"].values()) == 20_000
    assert summary["committed"] is None
    assert sorted(int(one.value or b"-1") for one in stored(broker, topic)) == list(range(20_000))


def test_keys_are_split_off_and_land_by_their_hash(broker: str, topic: str, produce: Command) -> None:
    lines = b"".join(b"key-%d\t%d\n" % (number, number) for number in range(100))
    assert produce(topic, "--key-separator", "\\t", "--compression", "lz4", stdin=lines) == 0
    records = stored(broker, topic)
    assert {one.key: one.value for one in records} == {b"key-%d" % n: b"%d" % n for n in range(100)}
    assert all(one.partition == partition_of_key(one.key or b"", 3) for one in records)


def test_json_lines_say_key_headers_timestamp_and_partition(broker: str, topic: str, produce: Command) -> None:
    lines = [
        {"value": {"id": 1}, "key": "k", "headers": {"h": "1"}, "timestamp": 1_700_000_000_123, "partition": 2},
        {"key": "k", "partition": 2},
        {"value": "elsewhere"},
    ]
    stdin = "\n".join(json.dumps(line) for line in lines).encode()
    assert produce(topic, "--format", "json", "--partition", "0", stdin=stdin) == 0
    elsewhere, full, tombstone = stored(broker, topic)
    assert (full.partition, full.key, full.value, full.headers) == (2, b"k", b'{"id": 1}', (("h", b"1"),))
    assert full.timestamp_ms == 1_700_000_000_123
    assert (tombstone.key, tombstone.value) == (b"k", None)
    assert (elsewhere.partition, elsewhere.value) == (0, b"elsewhere")


def test_the_partitioner_can_be_chosen(broker: str, topic: str, produce: Command) -> None:
    assert produce(topic, "--partitioner", "round-robin", stdin=b"0\n1\n2\n3\n4\n5\n") == 0
    placed = sorted((one.partition, one.value) for one in stored(broker, topic))
    assert placed == [(0, b"0"), (0, b"3"), (1, b"1"), (1, b"4"), (2, b"2"), (2, b"5")]


BAD = b'{"value": 1, "partition": 0}\n{"value": \n{"value": 3, "partition": 0}\n'


def test_a_line_that_is_no_record_is_named_and_the_others_are_delivered(
    broker: str, topic: str, produce: Command
) -> None:
    assert produce(topic, "--format", "json", "--json", stdin=BAD) == 1
    assert (produce.json["read"], produce.json["delivered"], produce.json["failed"]) == (3, 2, 1)
    [failure] = produce.json["failures"]
    assert (failure["where"], failure["in_doubt"]) == ("stdin:2", False)
    assert "1 of 3 lines were not delivered" in produce.err
    assert "stdin:2" in produce.err
    assert "Traceback" not in produce.err
    assert [one.value for one in stored(broker, topic)] == [b"1", b"3"]


def test_with_stop_on_first_error_nothing_after_it_is_there(broker: str, topic: str, produce: Command) -> None:
    assert produce(topic, "--format", "json", "--stop-on-first-error", "--json", stdin=BAD) == 1
    assert (produce.json["read"], produce.json["delivered"], produce.json["failed"]) == (2, 1, 1)
    assert [one.value for one in stored(broker, topic)] == [b"1"]


def test_a_record_that_the_broker_refuses_is_named_by_its_line(
    broker: str, topic: str, produce: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__MESSAGE_MAX_BYTES", "4000000")
    stdin = b"1\n" + b"x" * 2_000_000 + b"\n3\n"
    assert produce(topic, "--partition", "0", "--json", stdin=stdin) == 1
    [failure] = produce.json["failures"]
    assert failure["where"] == "stdin:2"
    assert "MSG_SIZE_TOO_LARGE" in failure["why"]
    assert sorted(one.value or b"" for one in stored(broker, topic)) == [b"1", b"3"]
    assert produce(topic, "--partition", "0", "--stop-on-first-error", "--json", stdin=stdin) == 1
    assert produce.json["delivered"] == 1
    assert len(stored(broker, topic)) == 3


def test_a_transaction_makes_all_lines_visible_or_none(broker: str, topic: str, produce: Command) -> None:
    lines = ("--format", "json", "--transactional-id", topic, "--json")
    assert produce(topic, *lines, stdin=BAD) == 1
    assert (produce.json["committed"], produce.json["delivered"]) == (False, 0)
    assert stored(broker, topic) == []
    assert produce(topic, *lines, stdin=b'{"value": 1}\n{"value": 2}\n') == 0
    assert (produce.json["committed"], produce.json["delivered"]) == (True, 2)
    assert sorted(one.value or b"" for one in stored(broker, topic)) == [b"1", b"2"]


def test_no_line_ends_the_others_with_a_traceback(broker: str, topic: str, produce: Command) -> None:
    bad = [
        b'{"headers": {"\\ud800": "x"}}',
        b'{"headers": {"a\\u0000b": "x"}}',
        b'{"value": {"a": "\\ud800"}}',
        b'{"timestamp": 1' + b"0" * 30 + b"}",
        b'{"partition": 1' + b"0" * 30 + b"}",
        b'{"value": ' + b"9" * 5000 + b"}",
    ]
    good = b'{"value": {"a":12345678901234567.89,"a":1e999}}'
    stdin = b"\n".join([*bad, good])
    assert produce(topic, "--format", "json", "--json", stdin=stdin) == 1
    assert [one["where"] for one in produce.json["failures"]] == [f"stdin:{number}" for number in range(1, 7)]
    assert "Traceback" not in produce.err
    assert [one.value for one in stored(broker, topic)] == [b'{"a":12345678901234567.89,"a":1e999}']


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_reading_and_what_was_read_is_delivered_and_said(
    broker: str, topic: str, number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-c", "from kafka_assets.cli import main; main()", "produce", topic, "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n2\n3\n")
        process.stdin.flush()
        deadline = time.monotonic() + 120
        while len(stored(broker, topic)) < 3:
            assert time.monotonic() < deadline
        process.send_signal(number)  # while it waits for a fourth line
        out, err = process.communicate(timeout=180)
    summary = json.loads(out)
    assert (process.returncode, summary["read"], summary["delivered"]) == (code, 3, 3)
    assert f"stopped by {number.name} after 3 lines" in err.decode()
    assert "Traceback" not in err.decode()


def test_a_stopped_transaction_is_aborted(broker: str, topic: str) -> None:
    command = [sys.executable, "-c", "from kafka_assets.cli import main; main()", "produce", topic, "--json"]
    options = ["--transactional-id", topic]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, *options], **pipes) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n")
        process.stdin.flush()
        deadline = time.monotonic() + 120
        while not ends(broker, topic):
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=180)
    summary = json.loads(out)
    assert (process.returncode, summary["delivered"], summary["committed"]) == (143, 0, False)
    assert "send all lines again" in err.decode()
    assert stored(broker, topic) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("no-such-topic",), 1, "does not exist"),
        (("TOPIC", "no-such-file"), 2, "there is no file 'no-such-file'"),
        (("TOPIC", "--partitioner", "robin"), 2, "round-robin"),
        (("TOPIC", "--compression", "brotli"), 2, "zstd"),
        (("TOPIC", "--format", "json", "--key-separator", ":"), 2, "is for lines"),
        (("TOPIC", "--format", "csv"), 2, "--format"),
        (("TOPIC", "--stop-on-first-error", "--transactional-id", "t"), 2, "exclude each other"),
        (("TOPIC", "--partition", "7"), 1, "has no partition 7"),
    ],
)
def test_a_wrong_name_is_said_with_the_cure(
    topic: str, produce: Command, arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert produce(*(topic if one == "TOPIC" else one for one in arguments), stdin=b"1\n") == code
    assert said in " ".join(produce.err.split())
    assert "Traceback" not in produce.err


def test_a_broker_that_is_down_is_said(topic: str, produce: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert produce(topic, "--json", stdin=b"1\n") == 1
    assert produce.json["delivered"] == 0
    assert "no Kafka broker answered" in produce.err
