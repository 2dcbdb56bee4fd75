"""The demo's own parts: the records it makes, and the comparison at its end."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from sqlalchemy import Engine

from kafka_assets.audit.standing import PartitionStanding, count_quarantined, count_table, gaps, standing
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import observe
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic
from kafka_assets.errors import KafkaAssetsError

TOPIC = "orders"
PARTITIONS = 4
ONE_BAD_IN = 10_000
CUSTOMER_TOPIC = "customers"
CUSTOMERS = 500
CUSTOMER_RECORDS = 2_000
BATCH = 10_000

_MALFORMED = (b'{"id": 7, "customer": "cut o', b'{"id": "seven", "customer": "ada"}', b"\xff\xfe", b"[]")
_CUSTOMERS = ("ada", "grace", "linus", "edsger", "barbara", "donald", "margaret", "tim")
_CITIES = ("Paris", "Porto", "Oslo", "Turin", "Ghent", "Graz", "Riga")
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def record(number: int) -> Record:
    """The demo's record number `number`: always the same one, so that a broken-off demo goes on where it was."""
    if number % ONE_BAD_IN == ONE_BAD_IN - 1:
        return Record(value=_MALFORMED[number // ONE_BAD_IN % len(_MALFORMED)], partition=number % PARTITIONS)
    chance = random.Random(number)
    order = {
        "id": number,
        "customer": f"{chance.choice(_CUSTOMERS)} 🛒 {chance.randrange(1000)}",
        "amount": float(Decimal(chance.randrange(100, 100_000)) / 100),
        "placed_at": (_FIRST + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return Record(
        key=str(number).encode(), value=json.dumps(order, ensure_ascii=False).encode(), partition=number % PARTITIONS
    )


def customer(number: int) -> Record:
    """A change of one of the demo's customers: each is met several times, and every tenth leaves at last."""
    known = number % CUSTOMERS
    key = str(known).encode()
    if number >= CUSTOMER_RECORDS - CUSTOMERS and known % 10 == 0:
        return Record(key=key, value=None, partition=0)
    name = _CUSTOMERS[known % len(_CUSTOMERS)]
    changed = {"id": known, "name": f"{name} {known}", "city": _CITIES[number % len(_CITIES)]}
    return Record(key=key, value=json.dumps(changed).encode(), partition=0)


def produce_customers(connection: Connection) -> None:
    """The compacted topic of the example's upsert stream; one that is there already is left as it is."""
    config = {"cleanup.policy": "compact"}
    if not create_topic(connection, CUSTOMER_TOPIC, partitions=1, config=config).existed:
        produce(connection, CUSTOMER_TOPIC, map(customer, range(CUSTOMER_RECORDS)))


def count_produced(connection: Connection) -> int:
    """How many records the topic has, by its offsets: the demo writes without transactions, so each is a record."""
    found = observe(connection, [TOPIC])[TOPIC]
    if isinstance(found, KafkaAssetsError):
        raise found
    return sum(part.high_watermark for part in found.partitions.values())


def produce_to(connection: Connection, *, total: int, seconds: float, landing: Callable[[], bool]) -> None:
    """Bring the topic to `total` records over about `seconds`; the last fifth only once rows are landing.

    So records arrive while others land, as they do in life.
    """
    already = count_produced(connection)
    batches = list(_batches(already, total))
    pause = seconds / max(1, len(batches))
    for number, (first, last) in enumerate(batches):
        while number >= 0.8 * len(batches) and not landing():
            time.sleep(0.2)
        produce(connection, TOPIC, (record(one) for one in range(first, last)))
        time.sleep(pause)


def _batches(first: int, total: int) -> Iterator[tuple[int, int]]:
    for at in range(first, total, BATCH):
        yield at, min(total, at + BATCH)


@dataclass(frozen=True)
class Verdict:
    """The demo's end, by SQL and by the broker's offsets."""

    produced: int
    rows: int
    distinct: int
    quarantined: int
    gaps: int
    partitions: list[PartitionStanding]
    ends: dict[int, int]

    @property
    def caught_up(self) -> bool:
        through = {one.partition: one.committed_through for one in self.partitions}
        return through == self.ends

    @property
    def exact(self) -> bool:
        balanced = self.produced == self.rows + self.quarantined and self.rows == self.distinct
        return balanced and not self.gaps and self.caught_up


def verdict(engine: Engine, connection: Connection) -> Verdict:
    """Compare the broker's offsets with what the tables hold."""
    found = observe(connection, [TOPIC])[TOPIC]
    if isinstance(found, KafkaAssetsError):
        raise found
    counted = count_table(engine, TOPIC, stream=TOPIC)
    return Verdict(
        produced=sum(part.high_watermark for part in found.partitions.values()),
        rows=counted.rows,
        distinct=counted.distinct,
        quarantined=count_quarantined(engine, asset=TOPIC, stream=TOPIC),
        gaps=gaps(engine),
        partitions=standing(engine, asset=TOPIC),
        ends={number: part.last_stable for number, part in found.partitions.items()},
    )
