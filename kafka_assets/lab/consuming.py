"""The consumer under experiment, as a process of its own: it stops where it can be killed, and waits there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection as Database
from sqlalchemy import Engine, insert

from kafka_assets.broker.consumer import Consumer
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.read import StoredRecord
from kafka_assets.lab.child import Parent
from kafka_assets.lab.semantics import TAKEN, WRITTEN, landed
from kafka_assets.ledger.engine import make_engine, write

IDLE = 2.0
"""Seconds without a record after which all is taken: the topic was filled before."""


def main() -> None:
    """Land the topic in the table `landed`, batch by batch."""
    parent = Parent()
    engine = make_engine(parent.task["database"])
    how: dict[str, Any] | None = parent.task["consumer"]
    if how is None:
        _with_the_ledger(parent, engine)
    else:
        _with_kafkas_offsets(parent, engine, how)


def _with_kafkas_offsets(parent: Parent, engine: Engine, how: dict[str, Any]) -> None:
    topic = parent.task["topic"]
    # With an identity of its own, who is started again need not wait until the dead one's session ends.
    member = Membership(topic, instance_id=topic)
    with Consumer(parent.connection, topic, group=member, max_records=parent.task["batch"], **how) as consumer:
        for batch in consumer.batches(idle=IDLE):
            parent.wait(TAKEN, ends=_ends(batch))
            with write(engine) as database:
                _insert(database, batch)
            parent.wait(WRITTEN, ends=_ends(batch))


def _insert(database: Database, batch: Sequence[StoredRecord]) -> None:
    database.execute(
        insert(landed()), [{"kafka_partition": one.partition, "kafka_offset": one.offset} for one in batch]
    )


def _ends(batch: Sequence[StoredRecord]) -> dict[int, int]:
    return {one.partition: one.offset + 1 for one in batch}


if __name__ == "__main__":
    main()
