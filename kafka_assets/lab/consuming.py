"""The consumer under experiment, as a process of its own: it stops where it can be killed, and waits there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection as Database
from sqlalchemy import Engine, insert

from kafka_assets.broker.consumer import Consumer
from kafka_assets.broker.in_transaction import InTransaction
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.read import StoredRecord
from kafka_assets.lab.child import Parent
from kafka_assets.lab.semantics import LEDGER, OUT, TAKEN, TRANSACTION, WRITTEN, landed
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets.live.in_ledger import InLedger

IDLE = 20.0
"""Seconds without a record after which there is none: only where a partition's end was taken in an earlier life."""

LEASE_MS = 3_000
"""How long the next consumer waits for one that was killed: the lease, which nobody extends any more."""


def main() -> None:
    """Take the topic's records batch by batch, and make each a row, or a record of another topic."""
    parent = Parent()
    mode = parent.task["mode"]
    if mode == TRANSACTION:
        _into_a_topic(parent)
    elif mode == LEDGER:
        _with_the_ledger(parent, make_engine(parent.task["database"]))
    else:
        _with_kafkas_offsets(parent, make_engine(parent.task["database"]))


def _with_kafkas_offsets(parent: Parent, engine: Engine) -> None:
    with _consumer(parent, **parent.task["consumer"]) as consumer:
        for batch in _batches(consumer, parent.task["ends"]):
            parent.wait(TAKEN, ends=_ends(batch))
            with write(engine) as database:
                _insert(database, batch)
            parent.wait(WRITTEN, ends=_ends(batch))


def _with_the_ledger(parent: Parent, engine: Engine) -> None:
    ledger = InLedger(engine, lease_ms=LEASE_MS)
    with _consumer(parent, commit=ledger) as consumer:
        for batch in _batches(consumer, parent.task["ends"]):
            parent.wait(TAKEN, ends=_ends(batch))
            _insert(ledger.sql, batch)
            parent.wait(WRITTEN, ends=_ends(batch))


def _into_a_topic(parent: Parent) -> None:
    with (
        Producer(parent.connection, transactional_id=parent.task["topic"], value="json") as producer,
        _consumer(parent, commit=InTransaction(producer)) as consumer,
    ):
        for batch in _batches(consumer, parent.task["ends"]):
            parent.wait(TAKEN, ends=_ends(batch))
            for one in batch:
                producer.send(parent.task["topic"] + OUT, [one.partition, one.offset], partition=one.partition)
            parent.wait(WRITTEN, ends=_ends(batch))


def _batches(consumer: Consumer, ends: Mapping[str, int]) -> Iterator[Sequence[StoredRecord]]:
    """Until each partition's last record was met: the topic was filled before, and nothing more comes."""
    left = {int(partition): end for partition, end in ends.items()}
    for batch in consumer.batches(idle=IDLE):
        yield batch
        left = {partition: end for partition, end in left.items() if _ends(batch).get(partition, 0) < end}
        if not left:
            consumer.stop()


def _consumer(parent: Parent, **how: Any) -> Consumer:
    topic = parent.task["topic"]
    # With an identity of its own, who is started again need not wait until the dead one's session ends.
    member = Membership(topic, instance_id=topic)
    return Consumer(parent.connection, topic, group=member, max_records=parent.task["batch"], **how)


def _insert(database: Database, batch: Sequence[StoredRecord]) -> None:
    rows = [{"kafka_partition": one.partition, "kafka_offset": one.offset} for one in batch]
    database.execute(insert(landed()), rows)


def _ends(batch: Sequence[StoredRecord]) -> dict[int, int]:
    return {one.partition: one.offset + 1 for one in batch}


if __name__ == "__main__":
    main()
