"""How records spread over partitions, by each partitioner; and what becomes of keys when partitions are added."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import pairwise

from kafka_assets.broker.configs import add_partitions
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.consume import consume
from kafka_assets.broker.listing import topic_offsets
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.lab.brokers import Say
from kafka_assets.lab.outcome import Outcome, counted
from kafka_assets.lab.rounds import PREFIX

WAYS = ("key", "round-robin", "sticky", "random")


def partitioners(
    connection: Connection, *, records: int, keys: int, partitions: int, more: int, say: Say = lambda what: None
) -> list[Outcome]:
    """The same keyed records by each way; then by key again, after the topic was given `more` partitions."""
    found: list[Outcome] = []
    for way in WAYS:
        topic = PREFIX + secrets.token_hex(4)
        create_topic(connection, topic, partitions=partitions)
        try:
            say(f"{way}: {records:,} records into {partitions} partitions")
            first, second = range(records), range(records, 2 * records)
            _send(connection, topic, way, first, keys=keys)
            before = _stored(connection, topic)
            found.append(_outcome(way, before, first, partitions=partitions))
            if way == "key":
                total = partitions + more
                say(f"{way}: the same keys into {total} partitions")
                add_partitions(connection, topic, total)
                _send(connection, topic, way, second, keys=keys)
                after = _stored(connection, topic)
                moved = _moved(before, after, second)
                found.append(_outcome(f"{way}, then {total}", after, second, partitions=total, moved=moved))
        finally:
            delete_topic(connection, topic)
    return found


def _send(connection: Connection, topic: str, way: str, numbers: range, *, keys: int) -> None:
    with Producer(connection, partitioner=way) as producer:
        for number in numbers:
            producer.send(topic, f"{number}", key=f"customer-{number % keys}")


def _stored(connection: Connection, topic: str) -> list[StoredRecord]:
    ends = topic_offsets(connection, topic).partitions
    begin = {part: one.log_start for part, one in ends.items()}
    return list(consume(connection, topic, begin, end={part: one.last_stable for part, one in ends.items()}))


def _outcome(
    mode: str, stored: Sequence[StoredRecord], numbers: range, *, partitions: int, moved: int | None = None
) -> Outcome:
    mine = [one for one in stored if int(one.value or b"") in numbers]
    sizes = [sum(one.partition == part for one in mine) for part in range(partitions)]
    homes = _homes(mine)
    return counted(
        mode,
        records=len(numbers),
        expected=numbers,
        found=[int(one.value or b"") for one in mine],
        partitions=partitions,
        least=min(sizes),
        most=max(sizes),
        # In the order in which they were sent: a change of partition is the end of a batch.
        run=round(len(numbers) / (1 + _changes(mine)), 1),
        keys=len(homes),
        split=sum(len(one) > 1 for one in homes.values()),
        moved=moved,
    )


def _moved(before: Sequence[StoredRecord], after: Sequence[StoredRecord], numbers: range) -> int:
    """How many keys have new records in another partition than their old ones."""
    old, new = _homes(before), _homes([one for one in after if int(one.value or b"") in numbers])
    return sum(old[key] != new[key] for key in old.keys() & new.keys())


def _homes(stored: Sequence[StoredRecord]) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for one in stored:
        found.setdefault(one.key or b"", set()).add(one.partition)
    return found


def _changes(stored: Sequence[StoredRecord]) -> int:
    in_order = sorted(stored, key=lambda one: int(one.value or b""))
    return sum(first.partition != second.partition for first, second in pairwise(in_order))
