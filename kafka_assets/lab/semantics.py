"""What a consumer that dies loses or repeats in its database, under each commit mode; each dies where it hurts most."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any, cast

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, Table, select

from kafka_assets.audit.scratch import scratch_ledger
from kafka_assets.broker.cluster import describe_cluster
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.consume import consume
from kafka_assets.broker.groups import delete_group, describe_group
from kafka_assets.broker.listing import topic_offsets
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.errors import GroupMissing, KafkaAssetsError, Permanent
from kafka_assets.lab.brokers import Say
from kafka_assets.lab.child import Child, reaching
from kafka_assets.lab.outcome import Outcome, counted
from kafka_assets.lab.rounds import PREFIX
from kafka_assets.lab.waiting import until
from kafka_assets.ledger.engine import read

CONSUMER = "kafka_assets.lab.consuming"
PARTITIONS = 2
AT_ONCE = 2
BATCHES = 10

TAKEN, WRITTEN, COMMITTING = "taken", "written", "committing"
"""Where a consumer stands: it has the records; it has written the rows; it was told to go on a moment ago."""


LEDGER, TRANSACTION = "ledger", "kafka-transaction"
OUT = "_out"
"""What a topic's name is followed by in that of the one into which its records are copied."""


@dataclass(frozen=True)
class Mode:
    """A way to commit, and the moments at which it is killed, in turns."""

    name: str
    moments: Sequence[str]
    where: str
    """The moment in words."""
    committed: bool | None = None
    """Whether Kafka must have the batch's offset before the kill, or must not; None: whatever it has."""
    consumer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the project's Consumer is given."""


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode(
            "offset-first",
            [TAKEN],
            "offset committed, rows not written",
            committed=True,
            consumer={"commit": "sync", "offset_first": True},
        ),
        Mode(
            "data-first", [WRITTEN], "rows written, offset not committed", committed=False, consumer={"commit": "sync"}
        ),
        Mode(
            "data-first-async",
            [WRITTEN],
            "rows written, offset not committed",
            committed=False,
            consumer={"commit": "async"},
        ),
        Mode(
            "auto-commit-slow-work",
            [TAKEN],
            "the timer committed the offset, rows not written",
            committed=True,
            consumer={"commit": "auto", "auto_interval": 0.5},
        ),
        Mode(
            "auto-commit-quick-work",
            [WRITTEN],
            "rows written, the timer had not fired",
            committed=False,
            consumer={"commit": "auto", "auto_interval": 5.0},
        ),
        Mode(LEDGER, [TAKEN, WRITTEN, COMMITTING], "before the rows, before COMMIT, around COMMIT"),
        Mode(TRANSACTION, [TAKEN, WRITTEN, COMMITTING], "before the records, before the commit, around the commit"),
    )
}


def semantics(
    connection: Connection,
    database: str,
    *,
    modes: Sequence[str],
    records: int,
    kills: int,
    say: Say = lambda what: None,
) -> list[Outcome]:
    """Each mode with a topic, a group and a scratch database of its own, two modes at a time."""
    describe_cluster(connection)  # nobody there is known before databases are made
    pool = ThreadPoolExecutor(max_workers=AT_ONCE)
    try:
        running = [
            pool.submit(_one, connection, database, MODES[mode], records=records, kills=kills, say=say)
            for mode in dict.fromkeys(modes)
        ]
        return [one.result() for one in running]
    finally:
        # After a Ctrl-C, or where one failed, the others need not begin.
        pool.shutdown(cancel_futures=True)


def _one(connection: Connection, database: str, mode: Mode, *, records: int, kills: int, say: Say) -> Outcome:
    name = PREFIX + secrets.token_hex(4)
    with ExitStack() as stack:
        engine = stack.enter_context(scratch_ledger(database))
        table = _table(engine)
        stack.callback(_forget, connection, name)
        stack.callback(_forget, connection, name + OUT)
        for topic in (name, name + OUT):
            create_topic(connection, topic, partitions=PARTITIONS)
        produce(connection, name, (Record(b"%d" % one, partition=one % PARTITIONS) for one in range(records)))
        task = {
            **reaching(connection),
            "topic": name,
            "database": engine.url.render_as_string(hide_password=False),
            "batch": max(records // BATCHES, 1),
            "ends": {part: one.last_stable for part, one in topic_offsets(connection, name).partitions.items()},
            "mode": mode.name,
            "consumer": mode.consumer,
        }
        for number, moment in enumerate(islice(cycle(mode.moments), kills), start=1):
            at = _killed(connection, mode, moment, task)
            say(f"{mode.name}: kill {number} of {kills}, {at}")
        _to_the_end(task)
        rows = _copied(connection, name + OUT) if mode.name == TRANSACTION else _rows(engine, table)
        return counted(
            mode.name,
            records=records,
            expected=_places(connection, name),
            found=rows,
            kills=kills,
            killed_when=mode.where,
            rows=len(rows),
        )


def _killed(connection: Connection, mode: Mode, moment: str, task: Mapping[str, Any]) -> str:
    """One life of a consumer: it lands a batch or more, and is killed at this moment of a later one."""
    with Child(CONSUMER, task) as child:
        landed = 0
        while (said := child.said()) is not None:
            stands = moment if moment != COMMITTING else WRITTEN
            if said["stage"] == stands and landed and _is_so(connection, mode, task, said["ends"]):
                if moment == COMMITTING:
                    child.go()
                child.kill()
                return f"pid {child.pid} {moment}: " + ", ".join(
                    f"partition {part} to {end}" for part, end in said["ends"].items()
                )
            landed += said["stage"] == WRITTEN
            child.go()
    raise Permanent(
        f"the consumer of {mode.name!r} ended before it could be killed",
        why=f"it found too few records to stand at {moment!r} after a first batch",
        cure="give it more: raise --records, or lower --kills",
    )


def _is_so(connection: Connection, mode: Mode, task: Mapping[str, Any], ends: Mapping[str, int]) -> bool:
    """Whether Kafka has, or has not, the offsets of this batch, as this mode's worst moment wants it."""
    if mode.committed is None:
        return True

    def has_them() -> bool:
        known = committed(connection, task["topic"])
        return all(known.get((task["topic"], int(part)), 0) >= end for part, end in ends.items())

    if mode.committed:
        until(has_them, "Kafka has the offsets of a batch that is not written", patience=20)
        return True
    return not has_them()


def committed(connection: Connection, group: str) -> Mapping[tuple[str, int], int]:
    """The next offsets that Kafka has of the group."""
    try:
        return describe_group(connection, group).offsets
    except GroupMissing:
        return {}


def _to_the_end(task: Mapping[str, Any]) -> None:
    """A last life, which nobody ends: all that is left is landed."""
    with Child(CONSUMER, task) as child:
        while child.said() is not None:
            child.go()


def _table(engine: Engine) -> Table:
    table = landed()
    table.create(engine)
    return table


def landed() -> Table:
    """No key: the database is to take whatever a mode does, twice, too."""
    return Table(
        "landed",
        MetaData(),
        Column("kafka_partition", Integer, nullable=False),
        Column("kafka_offset", BigInteger, nullable=False),
    )


def _rows(engine: Engine, table: Table) -> list[tuple[int, int]]:
    with read(engine) as asking:
        return [(row.kafka_partition, row.kafka_offset) for row in asking.execute(select(table))]


def _copied(connection: Connection, topic: str) -> list[tuple[int, int]]:
    """What a `read_committed` reader finds of the copies: each names the record that it was made of."""
    return [cast("tuple[int, int]", tuple(json.loads(one.value or b""))) for one in _records(connection, topic)]


def _places(connection: Connection, topic: str) -> list[tuple[int, int]]:
    """What is in the topic, by a consumer that no group knows."""
    return [(record.partition, record.offset) for record in _records(connection, topic)]


def _records(connection: Connection, topic: str) -> list[StoredRecord]:
    ends = topic_offsets(connection, topic).partitions
    begin = {part: one.log_start for part, one in ends.items()}
    end = {part: one.last_stable for part, one in ends.items()}
    return list(consume(connection, topic, begin, end=end))


def _forget(connection: Connection, name: str) -> None:
    forgetting: Sequence[Callable[[Connection, str], object]] = (delete_topic, delete_group)
    for forget in forgetting:
        # A member that was killed stays in its group until its session ends; the broker forgets empty ones itself.
        with suppress(KafkaAssetsError):
            forget(connection, name)
