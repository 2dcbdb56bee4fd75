"""A transaction that begins anew without the records that its table refused under a lock for which others wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from kafka_assets.errors import RowsRefused
from kafka_assets.records import BadRecord, Chunk, Fetch, Refused
from kafka_assets.sinks.road import Table
from kafka_assets.sinks.sieve import Place, without
from kafka_assets.slices import SliceKey

T = TypeVar("T")

ROUNDS = 20
"""How often a transaction begins anew without the records that the table refused in the last one."""


class Refusing(Exception):
    """Records that the table refuses under such a lock: their bytes are asked for without it."""

    def __init__(self, refused: Sequence[Refused]) -> None:
        super().__init__(refused)
        self.refused = refused


@contextmanager
def of_topic(keys: Collection[SliceKey]) -> Generator[None]:
    """Whose records are refused while a chunk of these slices, all of one topic, is inserted."""
    try:
        yield
    except Refusing as refusing:
        topic = next(iter(keys)).topic
        raise Refusing([replace(one, topic=topic) for one in refusing.refused]) from refusing


def in_rounds(transaction: Callable[[Callable[[Chunk], Chunk]], T], *, table: Table, fetch: Fetch) -> T:
    """Carry it out, and again while it is `Refusing`; what it is given leaves the refused records out of a chunk."""
    bad: dict[str, dict[Place, BadRecord]] = defaultdict(dict)
    for _ in range(ROUNDS):
        try:
            return transaction(lambda chunk: without(chunk, bad[_topic(chunk)]))
        except Refusing as refusing:
            # Rolled back: nobody waits for Kafka.
            for topic in sorted({one.topic for one in refusing.refused}):
                found = fetch([one for one in refusing.refused if one.topic == topic])
                bad[topic].update(((one.partition, one.offset), one) for one in found)
    raise RowsRefused(
        f"the table {table.name!r} refuses ever more records",
        why=f"{sum(map(len, bad.values()))} were refused in {ROUNDS} rounds, and each round found more "
        "(of a refused record's key, the version before it is tried next)",
        cure="correct the table's constraint, or the function, and land the slice again",
    )


def _topic(chunk: Chunk) -> str:
    return next((key.topic for key in chunk.seen), "")
