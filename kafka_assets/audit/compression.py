"""What each compression costs and saves: the same records through the producer, on the broker in the settings."""

from __future__ import annotations

import json
import random
import statistics
import time
import uuid
from collections.abc import Callable, Sequence

from kafka_assets.audit.bench import ROUNDS, Figure
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.producer_config import COMPRESSIONS, Compression
from kafka_assets.broker.topics import create_topic, delete_topic

INTERVAL_MS = 50
CITIES = ("Lisbon", "Oslo", "Prague", "Kraków", "Ghent", "Turku", "Graz", "Cork")


def bench_compression(
    connection: Connection, *, records: int, say: Callable[[str], None] = lambda what: None
) -> list[Figure]:
    """Records a second, and bytes a record on the wire, of each compression beside none; in a topic of its own."""
    values = orders(records)
    topic = f"bench-compression-{uuid.uuid4().hex[:8]}"
    create_topic(connection, topic, partitions=1)
    took: dict[Compression, list[float]] = {one: [] for one in COMPRESSIONS}
    wire: dict[Compression, float] = {}
    try:
        for number in range(1, ROUNDS + 1):
            for one in COMPRESSIONS:  # in turns: the machine's neighbours favour none
                say(f"round {number} of {ROUNDS}: {one}")
                seconds, sent = _produce(connection, topic, values, one)
                took[one].append(records / seconds)
                wire[one] = sent / records
    finally:
        delete_topic(connection, topic)
    rates = {one: statistics.median(found) for one, found in took.items()}
    figures: list[Figure] = []
    for name, unit, found in (("rate", "records/s", rates), ("size", "bytes/record", wire)):
        base = found["none"]
        for one in COMPRESSIONS:
            against, ratio = (None, None) if one == "none" else (f"none: {name}", round(found[one] / base, 3))
            figures.append(Figure(f"{one}: {name}", round(found[one], 1), unit, against, ratio))
    return figures


def orders(records: int) -> list[bytes]:
    """JSON of about 190 bytes: names that repeat, and numbers that do not; the same in each run."""
    draw = random.Random(4)
    return [
        json.dumps(
            {
                "id": number,
                "customer": f"customer-{draw.randrange(5_000):05d}",
                "city": draw.choice(CITIES),
                "amount": f"{draw.randrange(1_000_000) / 100:.2f}",
                "placed_at": f"2026-03-{draw.randrange(1, 29):02d}T{draw.randrange(24):02d}:30:00Z",
                "reference": f"{draw.getrandbits(128):032x}",
            },
            ensure_ascii=False,
        ).encode("utf-8")
        for number in range(records)
    ]


def _produce(
    connection: Connection, topic: str, values: Sequence[bytes], compression: Compression
) -> tuple[float, int]:
    """Seconds from the first send to the last acknowledgement, and the bytes that went to the brokers."""
    heard: list[int] = []

    def count(told: str) -> None:
        heard.append(sum(broker["txbytes"] for broker in json.loads(told)["brokers"].values()))

    often = Connection(
        connection.bootstrap_servers, {**connection.properties, "statistics.interval.ms": str(INTERVAL_MS)}
    )
    with Producer(often, compression=compression, on_statistics=count) as producer:
        producer.deliver(topic, values[0])  # connections and the producer's id are not what is measured
        began = time.perf_counter()
        for value in values:
            producer.send(topic, value)
        producer.flush()
        seconds = time.perf_counter() - began
        told = len(heard)
        while len(heard) <= told + 1:  # the statistics that came after the last acknowledgement
            producer.poll(INTERVAL_MS / 1000)
    return seconds, heard[-1]
