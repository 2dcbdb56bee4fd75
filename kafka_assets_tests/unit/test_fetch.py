"""What a worker makes of the client's messages: blocks of bounded size, and the columns that the decoder reads."""

from __future__ import annotations

import json
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from kafka_assets.decode import fetch
from kafka_assets.decode.fetch import NotFetched
from kafka_assets.decode.messages import LATEST, Columns
from kafka_assets.decode.passage import HEADER_TYPE

PLACE = ("orders", 3, 0, 100)
_message: Any = Message  # its stubs know no arguments
_error: Any = KafkaError


def message(offset: int, *, error: int | None = None, why: str = "why", **more: Any) -> Message:
    given = {"key": None, "value": b"{}", "headers": None, "timestamp": (1, 42)} | more
    told = None if error is None else _error(error, why)
    return _message(topic="orders", partition=3, offset=offset, error=told, **given)


def batch(*messages: Message, headers: Any = None) -> Any:
    columns = Columns.of(messages, untold=fetch.UNTOLD)
    if headers is not None:
        columns = Columns(**{**vars(columns), "headers": headers})
    return fetch._batch(columns)


def test_a_block_is_full_of_records_or_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "BLOCK", 3)
    monkeypatch.setattr(fetch, "BLOCK_BYTES", 100)
    block = fetch._Block()
    block.add([])
    assert (len(block), block.is_full) == (0, False)
    block.add([message(0), message(1)])
    assert (len(block), block.is_full) == (2, False)
    block.add([message(2)])
    assert block.is_full
    assert block.taken().offsets.tolist() == [0, 1, 2]
    assert (len(block), block.is_full) == (0, False)
    block.add([message(3, key=b"k" * 60, value=b"v" * 39)])
    assert not block.is_full
    block.add([message(4, key=b"k", value=None)])
    assert block.is_full
    assert block.taken().keys.to_pylist() == [b"k" * 60, b"k"]


def test_a_block_is_full_of_headers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "BLOCK_BYTES", 100)
    block = fetch._Block()
    block.add([message(0, headers=[("trace", b"v" * 90)])])
    assert not block.is_full
    block.add([message(1), message(2, headers=[("a", None)])])
    assert block.is_full


def test_a_record_has_the_columns_that_the_decoder_reads() -> None:
    found = batch(
        message(11, key=b"k", value=b"abc", headers=[("h", b"v"), ("h", None)], timestamp=(2, 7)),
        message(14, key=b"", value=None, headers=[], timestamp=(0, 0)),
        message(15, key=None, value=b"", timestamp=(1, LATEST)),
    )
    rows = found.to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (11, b"k", b"abc"), (14, b"", None), (15, None, b"")
    ]  # fmt: skip
    assert [(row["timestampType"], row["timestamp"]) for row in rows] == [(1, 7), (-1, None), (0, LATEST)]
    pairs = [{"key": "h", "value": b"v"}, {"key": "h", "value": None}]
    assert [row["headers"] or [] for row in rows] == [pairs, [], []]
    assert {row["partition"] for row in rows} == {3}
    assert not any(row["untold"] for row in rows)
    assert found.schema.field("headers").type == HEADER_TYPE
    assert len({row["fingerprint"] for row in rows}) == 3


@pytest.mark.parametrize("at", [-1, -(2**63), LATEST + 1, 2**63 - 1])
def test_a_time_that_no_column_holds_is_none(at: int) -> None:
    assert batch(message(0, timestamp=(1, at))).column("timestamp").to_pylist() == [None]


def test_of_headers_that_the_client_cannot_give_it_is_said_that_there_are_some() -> None:
    found = batch(message(0), message(1), headers=[fetch.UNTOLD, [("h", b"v")]])
    assert found.column("untold").to_pylist() == [True, False]
    assert found.column("headers").to_pylist() == [[], [{"key": "h", "value": b"v"}]]
    plain = batch(message(0), message(1))
    assert plain.schema == found.schema
    assert plain.column("untold").to_pylist() == [False, False]


def test_the_end_of_the_log_and_a_group_that_nobody_uses_are_no_error_and_all_else_is() -> None:
    some = [message(0), message(1, error=KafkaError._PARTITION_EOF), message(1)]
    good, log_end = fetch._records(some, PLACE, 0)
    assert ([one.offset() for one in good], log_end) == ([0, 1], 1)
    assert fetch._records([], PLACE, 7) == ([], 7)
    assert fetch._records([message(0, error=KafkaError.GROUP_AUTHORIZATION_FAILED)], PLACE, 7) == ([], 7)
    # Behind its last record a log may go on with holes, up to an open transaction: it is read to there.
    assert fetch._records([message(9, error=KafkaError._PARTITION_EOF)], PLACE, 7) == ([], 9)
    wrong = [message(0), message(1, error=KafkaError.OFFSET_OUT_OF_RANGE, why="gone")]
    with pytest.raises(NotFetched) as found:
        fetch._records(wrong, PLACE, 0)
    assert json.loads(str(found.value)) == {
        "topic": "orders",
        "partition": 3,
        "at": 0,
        "end": 100,
        "code": KafkaError.OFFSET_OUT_OF_RANGE,
        "why": "gone",
    }


def test_the_codes_of_what_is_gone_are_librdkafka_s() -> None:
    names = ("OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PART", "_AUTO_OFFSET_RESET", "_UNKNOWN_TOPIC")
    assert tuple(getattr(KafkaError, name) for name in (*names, "_UNKNOWN_PARTITION")) == fetch.GONE
    damaged = ("INVALID_MSG", "UNSUPPORTED_COMPRESSION_TYPE", "_BAD_COMPRESSION", "_BAD_MSG")
    assert tuple(getattr(KafkaError, name) for name in damaged) == fetch.DAMAGED


def test_a_client_that_goes_on_fetching_is_waited_for_and_one_that_says_what_is_gone_not_long() -> None:
    told = fetch._Told(7)
    for next_offset in (0, 9, 8):
        told.counted(json.dumps({"topics": {"orders": {"partitions": {"3": {"next_offset": next_offset}}}}}))
    assert told.fetched == 9
    told.counted(json.dumps({"topics": {}}))
    assert told.fetched == 9
    assert told.patience == fetch.PATIENCE
    told.failed(_error(KafkaError._ALL_BROKERS_DOWN, "down"))
    assert told.patience == fetch.PATIENCE
    told.failed(_error(KafkaError._UNKNOWN_PARTITION, "no such"))
    assert told.patience == fetch.GRACE < fetch.PATIENCE
    assert json.loads(str(told.not_fetched(None, PLACE, 9)))["why"] == "no such"


def test_a_client_is_not_waited_for_that_cannot_be_made() -> None:
    task = pa.RecordBatch.from_pydict({"id": [0]})
    with pytest.raises(NotFetched) as found:
        next(
            fetch.fetched(
                [task], ({"group.id": "g", "ssl.key.pem": "S3cret", "security.protocol": "ssl"}, [PLACE], False)
            )
        )
    said = json.loads(str(found.value))
    assert said["at"] is None
    assert "ssl.key.pem" in said["why"] and "S3cret" not in said["why"]


class Log:
    """What a client gives of a partition, portion by portion, and nothing after them; its position stands still."""

    def __init__(self, *portions: list[Message]) -> None:
        self.portions = list(portions)

    def __call__(self, config: dict[str, Any]) -> Log:
        return self

    def assign(self, places: Any) -> None:
        pass

    def consume(self, count: int, timeout: float) -> list[Message]:
        return self.portions.pop(0) if self.portions else []

    def position(self, places: list[Any]) -> list[Any]:
        return places  # without an offset

    def list_topics(self, topic: str, timeout: float) -> Any:
        raise KafkaException(_error(KafkaError._TRANSPORT, "gone"))

    def close(self) -> None:
        pass


@pytest.mark.parametrize("together", [False, True])
def test_holes_before_an_open_transaction_at_the_log_s_end_are_passed(
    monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setattr(fetch, "PATIENCE", 0.1)
    last, log_end = message(4), message(9, error=KafkaError._PARTITION_EOF)
    for end, ends in ((9, True), (10, False)):
        portions = [[last, log_end]] if together else [[last], [log_end]]
        monkeypatch.setattr(confluent_kafka, "Consumer", Log(*portions))
        reading = fetch._read({}, ("orders", 3, 0, end))
        if ends:
            assert [one.offsets.tolist() for one in reading] == [[4]]
        else:
            with pytest.raises(NotFetched):
                list(reading)
