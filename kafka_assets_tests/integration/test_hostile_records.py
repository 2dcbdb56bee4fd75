"""Records that nobody should write, on a real broker: each lands, or is quarantined, and none fails its neighbours."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from sqlalchemy import Engine, text

from kafka_assets import Consumer, kafka_listener, run_listeners
from kafka_assets.broker import Connection
from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.topics import create_topic
from kafka_assets.decode.messages import LATEST
from kafka_assets.errors import HeadersUnreadable
from kafka_assets.ledger.engine import read
from kafka_assets_tests.integration.consuming import QUICK, committed, new_topic, stored
from kafka_assets_tests.integration.living import Living, orders
from kafka_assets_tests.integration.project import Landing
from kafka_assets_tests.integration.raw_producer import Raw, produce_raw

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}
"""As every broker before 4.0 has it."""
YEAR_10000 = 253_402_300_800_000
TIMES: dict[int, int | None] = {
    1_700_000_000_000: 1_700_000_000_000,
    0: 0,
    -1: None,
    -2: None,
    -(10**15): None,
    YEAR_10000: YEAR_10000,
    1_700_000_000_000_000: 1_700_000_000_000_000,  # by a producer that thinks in microseconds
    LATEST: LATEST,
}
TOO_FAR = (LATEST + 1, 1_700_000_000_000_000_000, 2**63 - 1, -(2**63))
"""Of a producer that thinks in nanoseconds, and what else is past all columns."""
NAMED: list[tuple[bytes, bytes | None]] = [(b"trace", b"1"), (b"\xff\xfe", b"v")]


def records() -> list[Raw]:
    """One with each timestamp, numbered; and one more for each that cannot become a row."""
    times = [*TIMES, *TOO_FAR]
    good = [Raw(b'{"id": %d, "note": "n"}' % number, timestamp_ms=time) for number, time in enumerate(times)]
    return [*good, *(Raw(b"no", timestamp_ms=time) for time in times)]


LANDED = list(enumerate([*TIMES.values(), *(None for _ in TOO_FAR)]))


def write(broker: str, topic: str, *some: Raw) -> None:
    for one in some:
        produce_raw(broker, topic, [one])


@pytest.fixture
def living(tmp_path: Path, broker: str) -> Iterator[Callable[..., Living]]:
    made: list[Living] = []

    def declare(*, function: Any = None, **attributes: Any) -> Living:
        made.append(Living(broker, f"sqlite:///{tmp_path / 'live.db'}", tmp_path, orders(**attributes), function))
        return made[-1]

    yield declare
    for one in made:
        one.engine.dispose()


def with_ms(rows: pa.Table) -> pa.Table:
    micros: Any = rows.column("kafka_timestamp").cast(pa.int64())
    return rows.append_column("at", pc.divide(micros, pa.scalar(1000, pa.int64())))


def test_any_timestamp_lands_live(living: Callable[..., Living]) -> None:
    stream = living(function=with_ms)
    stream.topic(**ANY_TIME)
    write(stream.broker, stream.stream.reads, *records())
    stream.consumer().run(until_caught_up=True)
    assert stream.rows(f"select id, at from {stream.stream.target} order by id") == LANDED
    kept = stream.rows("select kafka_timestamp from kafka_quarantine order by kafka_offset")
    assert kept == [(time,) for _, time in LANDED]
    assert stream.rows("select first_timestamp, last_timestamp from kafka_publication") == [(0, LATEST)]


def test_any_timestamp_lands_by_runs(landing: Callable[..., Landing]) -> None:
    def with_ms(records: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

        return records.withColumn("at", F.unix_millis("kafka_timestamp"))

    stream = landing(transform=with_ms)
    stream.topic(**ANY_TIME)
    write(stream.broker, stream.name, *records())
    stream.land()
    assert stream.rows(f"select id, at from {stream.name} order by id") == LANDED
    kept = stream.rows(
        "select q.kafka_timestamp from kafka_quarantine q join kafka_slice s on s.id = q.slice_id "
        f"join kafka_source f on f.id = s.source_id where f.topic = '{stream.name}' order by q.kafka_offset"
    )
    assert kept == [(time,) for _, time in LANDED]


def test_a_header_whose_name_is_no_text_ends_no_live_consumer(living: Callable[..., Living]) -> None:
    for function in (None, with_ms):
        stream = living(function=function)
        stream.topic()
        for number in range(6):
            named = NAMED if number % 2 else [(b"trace", b"1")]
            write(stream.broker, stream.stream.reads, Raw(b'{"id": %d}' % number, headers=named))
        write(stream.broker, stream.stream.reads, Raw(b"no", headers=NAMED))
        stream.consumer().run(until_caught_up=True)
        landed = [number for (number,) in stream.rows(f"select id from {stream.stream.target} order by id")]
        kept = dict(
            stream.rows(f"select kafka_offset, reason from kafka_quarantine where asset = '{stream.stream.asset}'")
        )
        # A function is given headers: of a record that has none to give, it is not asked.
        assert landed == (list(range(6)) if function is None else [0, 2, 4])
        assert sorted(kept) == ([6] if function is None else [1, 3, 5, 6])
        assert all("not valid UTF-8" in reason for reason in kept.values())
        assert kept[6].startswith("the value is not valid JSON")


def test_a_header_whose_name_is_no_text_is_refused_only_to_who_asks(sqlite: Engine, broker: str) -> None:
    connection = Connection(broker, QUICK)
    topic, dead = new_topic(connection, partitions=1), new_topic(connection, partitions=1)
    write(broker, topic, Raw(b"0", headers=NAMED), Raw(b"1", headers=[(b"trace", b"1")]), Raw(b"2", headers=NAMED))
    values = list[bytes | None]()
    with Consumer(connection, topic, group=topic) as consumer:
        for record in consumer.records(idle=3):
            values.append(record.value)
            if record.offset != 1:
                for look in (list, len, lambda found: found[0], lambda found: "trace" in found):
                    with pytest.raises(HeadersUnreadable):
                        look(record.headers)
    assert values == [b"0", b"1", b"2"]
    assert [record.headers == () for record in stored(connection, topic)] == [True, False, True]

    def asks(record: StoredRecord) -> None:
        assert dict(record.headers)["trace"] == b"1"

    stop = threading.Event()
    for name, mode, more in ((dead, "sync", {}), ("kafka_quarantine", "ledger", {"engine": sqlite})):
        listener = kafka_listener(topics=topic, group=f"{topic}-{mode}", commit=mode, quarantine=name)(asks)
        run_listeners(listener, connection=connection, stop=stop, idle=3, **more)
    assert [letter.value for letter in stored(connection, dead)] == [b"0", b"2"]
    with read(sqlite) as sql:
        kept = sql.execute(text("select kafka_offset, headers, reason from kafka_quarantine order by 1")).all()
    assert [(row[0], row[1], "left out" in row[2]) for row in kept] == [(0, None, True), (2, None, True)]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise TypeError("not even that")


WRONG: list[Exception] = [ValueError("x" * 2_000_000), ValueError("half \udc80"), Unprintable(), ValueError("\0\n")]


@pytest.mark.parametrize("mode", ["sync", "transaction"])
def test_a_dead_letter_is_written_whatever_was_raised_and_however_big_its_record_is(broker: str, mode: Any) -> None:
    connection = Connection(broker, QUICK)
    topic = new_topic(connection, partitions=1)
    dead = f"{topic}-dead"
    create_topic(connection, dead, partitions=1, config={"max.message.bytes": "100000"})
    big = [Raw(b"v" * 99_900, key=b"key"), Raw(b"v" * 50_000, key=b"k" * 60_000)]
    named = [Raw(b"4", headers=NAMED), Raw(b"5", headers=[(b"big", b"h" * 200_000)]), Raw(b"6")]
    write(broker, topic, *(Raw(b"%d" % number) for number in range(4)), *big, *named)

    @kafka_listener(topics=topic, group=topic, retries=0, backoff=0.01, quarantine=dead, commit=mode)
    def refuses(record: StoredRecord) -> None:
        raise WRONG[record.offset] if record.offset < len(WRONG) else ValueError("no")

    run_listeners(refuses, connection=connection, stop=threading.Event(), idle=3)
    assert sum(committed(connection, topic, topic).values()) == 9
    letters = list(stored(connection, dead))
    said = [{name: (value or b"").decode() for name, value in one.headers} for one in letters]
    assert [one["kafka_assets.offset"] for one in said] == [str(at) for at in range(9)]
    reasons = [one["kafka_assets.reason"] for one in said]
    assert (len(reasons[0]), reasons[1], reasons[3]) == (1_001, "half \\udc80", "\0\n")
    assert said[2]["kafka_assets.error"] == "Unprintable"
    assert [one.value for one in letters[:4]] == [b"0", b"1", b"2", b"3"]
    # What of a record its letter cannot take along is said; it is still where it came from.
    assert [(one.value, one.key) for one in letters[4:]] == [
        *((None, b"key"), (None, None)),
        *((b"4", None), (b"5", None), (b"6", None)),
    ]
    assert [one.get("kafka_assets.left_out") for one in said[4:]] == [
        *("value (99900 bytes)", "value (50000 bytes), key (60000 bytes)"),
        *("headers", "headers", None),
    ]
