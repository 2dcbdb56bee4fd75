"""Records of Kafka as a task of Spark's reads them: by the client that live mode reads with.

No record passes through Java then, which took half of a query's work (docs/performance.md): Spark says which task
reads which offsets and tries again what fails, and records come to the decoder straight from the broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from kafka_assets.decode.fingerprints import hashes_of
from kafka_assets.decode.messages import Columns, joined
from kafka_assets.decode.passage import HEADER_TYPE

Range = tuple[str, int, int, int]
"""Topic, partition, start, end."""

BLOCK = 10_000
BLOCK_BYTES = 4 << 20
"""Records that are decoded at a time, or so many bytes of them. What the client has fetched ahead is bounded by its
own queue (`QUEUED`), whatever their size."""

PATIENCE = 30.0
"""Seconds without any progress. Both ends of what is read are checked before, so there never should be any."""

QUEUED = {"queued.max.messages.kbytes": "2048"}
"""What the client fetches ahead, unless a user says otherwise: this process holds it, and what is fetched beyond a
task's end is thrown away."""

AT_ONCE = {"fetch.wait.max.ms": "10", "fetch.queue.backoff.ms": "5"}
"""What is read is there: nobody has to wait for it to come. But with each answer the client asks for what comes next,
and at the log's end the broker keeps that question for so long. It is never what a user says, who means those that
wait. And where enough was fetched ahead, that is soon decoded."""

_POLL = 0.05
"""Seconds to wait for the next record: where there are holes only the client's position tells that it is past them."""


UNTOLD: Any = object()
"""Headers that the client cannot give."""


class NotFetched(Exception):
    """What Spark tells of it is its text, which says why in words for `spark/reached.py`."""

    def __init__(self, *, place: Range, at: int, code: int | None, why: str) -> None:
        topic, partition, _, end = place
        told = {"topic": topic, "partition": partition, "at": at, "end": end, "code": code, "why": why}
        super().__init__(json.dumps(told))


Fetch = tuple[Mapping[str, str], Sequence[Range], bool]
"""The client's properties, with what it needs to be let in; what each task reads, by its number; and whether records
that have no value are left out."""


def fetched(tasks: Iterable[Any], fetch: Fetch) -> Generator[Any]:
    """The records of these tasks, in batches whose columns `passage.Reader` reads; raises `NotFetched`."""
    config, ranges, valued = fetch
    for batch in tasks:
        asked: list[int] = batch.column(0).to_pylist()
        for number in asked:
            with closing(_read(config, ranges[number])) as blocks:
                for columns in blocks:
                    found = _batch(columns)
                    yield found.filter(found.column("value").is_valid()) if valued else found


def _read(config: Mapping[str, str], place: Range) -> Generator[Columns]:
    """The committed records of a range, in order; holes are simply not there."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    topic, partition, start, end = place
    said: list[KafkaError] = []
    consumer: Any = Consumer({**QUEUED, **config, **AT_ONCE, "error_cb": said.append})
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        at, heard, block = start, time.monotonic(), _Block()
        while at < end:
            # What is there at once is no more than the client's queue holds.
            messages: list[Any] = consumer.consume(min(BLOCK, end - at), 0) or consumer.consume(1, _POLL)
            good, before = _records(messages, place, at), at
            if good:
                at = good[-1].offset() + 1
                block.add([message for message in good if message.offset() < end] if at > end else good)
            else:
                # Past holes and control records no message comes; only the position tells.
                at = max(at, consumer.position([TopicPartition(topic, partition)])[0].offset)
            if at > before:
                heard = time.monotonic()
            elif time.monotonic() - heard > PATIENCE:
                why = said[-1].str() if said else "the log ends there, or an open transaction holds the rest back"
                raise NotFetched(place=place, at=at, code=said[-1].code() if said else None, why=why)
            if block.is_full:
                yield block.taken()
        if len(block):
            yield block.taken()
    finally:
        consumer.close()


def _records(messages: Sequence[Any], place: Range, at: int) -> Sequence[Any]:
    """The messages that are records; raises what another one says, except that this is the log's end."""
    from confluent_kafka import KafkaError

    if not messages:
        return messages
    ask: Any = type(messages[0]).error
    errors: list[Any] = list(map(ask, messages))
    if not any(errors):
        return messages
    for error in errors:
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise NotFetched(place=place, at=at, code=error.code(), why=error.str())
    return [message for message, error in zip(messages, errors, strict=True) if error is None]


class _Block:
    """Records that are decoded together."""

    def __init__(self) -> None:
        self._parts: list[Columns] = []
        self._bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def is_full(self) -> bool:
        return len(self) >= BLOCK or self._bytes >= BLOCK_BYTES

    def add(self, messages: Sequence[Any]) -> None:
        if messages:
            self._parts.append(Columns.of(messages, untold=UNTOLD))
            self._bytes += self._parts[-1].bytes

    def taken(self) -> Columns:
        """All of it, of which there is one at least; the next ones go into another block."""
        parts, self._parts, self._bytes = self._parts, [], 0
        return joined(parts)


def _batch(columns: Columns) -> Any:
    """Records as the columns that `passage.Reader` reads."""
    count = len(columns)
    at, timed = columns.times
    told: Any = pa.nulls(count, HEADER_TYPE)
    untold: Any = pa.repeat(pa.scalar(False), count)
    if (headers := columns.headers) is not None:
        pairs = [None if one is None or one is UNTOLD else one for one in headers]
        told = pa.array([one and [{"key": key, "value": value} for key, value in one] for one in pairs], HEADER_TYPE)
        untold = pa.array([one is UNTOLD for one in headers])
    prints = hashes_of(columns.partition, columns.offsets, columns.keys, columns.values)
    found: dict[str, Any] = {
        "value": columns.values,
        "key": columns.keys,
        "headers": told,
        "untold": untold,
        "partition": pa.repeat(pa.scalar(columns.partition, pa.int32()), count),
        "offset": pa.array(columns.offsets),
        "timestampType": pa.array(columns.stamps[:, 0] - 1, pa.int32()),
        "timestamp": pa.array(at, mask=~timed),
        "fingerprint": pa.array(prints),
    }
    return pa.RecordBatch.from_pydict(found)
