"""The consumer under experiment, as a process of its own: it stops where it can be killed, and waits there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection as Database
from sqlalchemy import Engine, func, insert, select

from kafka_assets.broker.consumer import Consumer
from kafka_assets.broker.in_transaction import InTransaction
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.read import StoredRecord
from kafka_assets.lab.child import Parent
from kafka_assets.lab.semantics import LEDGER, OUT, TAKEN, TRANSACTION, WRITTEN, committed, landed
from kafka_assets.ledger.engine import make_engine, read, write
from kafka_assets.live.in_ledger import InLedger

IDLE = 20.0
"""Seconds of silence after which nothing comes: only where the commit that a kill interrupted was done after all."""
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
        for batch in _batches(consumer, _left(parent, _in_kafka(parent))):
            parent.wait(TAKEN, ends=_ends(batch))
            with write(engine) as database:
                _insert(database, batch)
            parent.wait(WRITTEN, ends=_ends(batch))


def _with_the_ledger(parent: Parent, engine: Engine) -> None:
    ledger = InLedger(engine, lease_ms=LEASE_MS)
    with _consumer(parent, commit=ledger) as consumer:
        for batch in _batches(consumer, _left(parent, _in_the_table(engine))):
            parent.wait(TAKEN, ends=_ends(batch))
            _insert(ledger.sql, batch)
            parent.wait(WRITTEN, ends=_ends(batch))


def _into_a_topic(parent: Parent) -> None:
    with (
        Producer(parent.connection, transactional_id=parent.task["topic"], value="json") as producer,
        _consumer(parent, commit=InTransaction(producer)) as consumer,
    ):
        for batch in _batches(consumer, _left(parent, _in_kafka(parent))):
            parent.wait(TAKEN, ends=_ends(batch))
            for one in batch:
                producer.send(parent.task["topic"] + OUT, [one.partition, one.offset], partition=one.partition)
            parent.wait(WRITTEN, ends=_ends(batch))


def _batches(consumer: Consumer, left: dict[int, int]) -> Iterator[Sequence[StoredRecord]]:
    """Until the end of each of these partitions was met: the topic was filled before, and nothing more comes."""
    if not left:
        return
    for batch in consumer.batches(idle=IDLE):
        yield batch
        left = {partition: end for partition, end in left.items() if _ends(batch).get(partition, 0) < end}
        if not left:
            consumer.stop()


def _left(parent: Parent, done: Mapping[int, int]) -> dict[int, int]:
    """The ends of the partitions that no earlier life has come to the end of."""
    return {int(part): end for part, end in parent.task["ends"].items() if done.get(int(part), 0) < end}


def _in_kafka(parent: Parent) -> dict[int, int]:
    topic = parent.task["topic"]
    return {partition: offset for (_, partition), offset in committed(parent.connection, topic).items()}


def _in_the_table(engine: Engine) -> dict[int, int]:
    c = landed().c
    with read(engine) as database:
        rows = database.execute(select(c.kafka_partition, func.max(c.kafka_offset)).group_by(c.kafka_partition))
        return {partition: last + 1 for partition, last in rows}


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
