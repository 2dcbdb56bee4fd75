"""What a tick takes with a history behind it: a ledger and a Dagster that have landed so many slices."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from sqlalchemy import Engine, insert, literal, select, update

from kafka_assets.assets.keys import add_keys
from kafka_assets.assets.tick import tick
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import PartitionOffsets, TopicOffsets
from kafka_assets.errors import CountsDisagree
from kafka_assets.ledger import planning
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import write
from kafka_assets.plan import Offsets
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream, declare

TOPIC, TOPIC_ID = "bench", "bench"
SIZE = 10
STREAM = declare(
    name="bench", topic=TOPIC, target="bench", schema="id BIGINT", slices={"max_records": SIZE, "max_delay": "0ms"}
)

Seconds = Callable[[int], float]
"""Ticks once, with so many new slices to plan and to ask a run for, and says how long it took."""


@contextmanager
def ticking(engine: Engine, folder: Path, *, keys: int) -> Generator[Seconds]:
    """A sensor whose ledger is `engine` and whose Dagster is in `folder`, both with so many slices landed and told."""
    end = _history(engine, keys)
    folder.mkdir()
    with dg.DagsterInstance.local_temp(str(folder)) as instance:
        _told(instance, [_key(number) for number in range(keys)])
        cursor: str | None = None

        def look(connection: Connection, streams: Sequence[Stream], active: object) -> Mapping[str, TopicOffsets]:
            return {TOPIC: TopicOffsets(TOPIC, TOPIC_ID, {0: PartitionOffsets(0, end, end)})}

        def once(new: int) -> float:
            nonlocal cursor, end
            end += new * SIZE
            began = time.perf_counter()
            found = tick(
                [STREAM],
                engine=engine,
                connection=Connection("nowhere:1"),
                instance=instance,
                log=logging.getLogger(__name__),
                cursor=cursor,
                look=look,
            )
            took = time.perf_counter() - began
            cursor = found.cursor
            if found.troubles or found.events or found.planned != new or (new and not found.requests):
                raise CountsDisagree(
                    "a tick of the benchmark did something else than it was measured for",
                    why=f"{found.planned} planned, {len(found.requests)} runs, {len(found.events)} told, "
                    f"{' | '.join(found.troubles) or 'no trouble'}",
                    cure="please report this",
                )
            return took

        while _behind(cursor, keys):  # until the cursor has met what there is
            once(0)
        yield once


def _behind(cursor: str | None, keys: int) -> bool:
    from kafka_assets.assets.cursor import Cursor

    return Cursor.parse(cursor).met < keys


def _key(number: int) -> str:
    return str(SliceKey(TOPIC, 1, 0, number * SIZE, (number + 1) * SIZE))


def _history(engine: Engine, slices: int) -> int:
    """Slices that were landed, in one transaction; where they end."""
    end = slices * SIZE
    source = planning.resolve_source(engine, stream=STREAM.name, topic=TOPIC, topic_id=TOPIC_ID)
    planning.observe(engine, source, offsets={0: Offsets(0, end, end)}, origins={0: 0}, asset=STREAM.asset)
    s, p, g = t.slice_.c, t.publication.c, t.progress.c
    with write(engine) as connection:
        connection.execute(
            insert(t.slice_).values(source_id=source.id, partition=0, created_at=now_ts()),
            [
                {
                    "start_offset": number * SIZE,
                    "end_offset": (number + 1) * SIZE,
                    "prior_end": number * SIZE if number else None,
                    "is_first": None if number else 1,
                }
                for number in range(slices)
            ],
        )
        landed = {
            "asset": literal(STREAM.asset), "state": literal("committed"), "committed_attempt": literal(1),
            "committed_at": now_ts(), "records_read": literal(SIZE), "landed": literal(SIZE),
        }  # fmt: skip
        connection.execute(
            insert(t.publication).from_select(
                ["slice_id", "start_offset", "end_offset", *landed],
                select(s.id, s.start_offset, s.end_offset, *landed.values()).order_by(s.id),
            )
        )
        connection.execute(insert(t.claim).from_select(["publication_id", "attempt"], select(p.id, literal(1))))
        connection.execute(update(t.progress).where(g.source_id == source.id).values(planned_through=end))
        connection.execute(update(t.committed).values(committed_through=end))
    return end


def _told(instance: dg.DagsterInstance, keys: Sequence[str]) -> None:
    """Keys and materializations as runs would have left them: one is told, the others are copies of its row."""
    add_keys(instance, STREAM, keys)
    instance.report_runless_asset_event(
        dg.AssetMaterialization(STREAM.name, partition=keys[0], metadata={"attempt": 1})
    )
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    told = SqlEventLogStorageTable
    with storage.index_connection() as connection:
        row = connection.execute(select(told).where(told.c.partition == keys[0])).mappings().one()
        copies = [
            {**row, "id": row["id"] + number, "partition": key, "event": row["event"].replace(keys[0], key)}
            for number, key in enumerate(keys[1:], start=1)
        ]
        for at in range(0, len(copies), 1000):
            connection.execute(insert(told), copies[at : at + 1000])
