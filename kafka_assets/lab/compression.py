"""What each compression costs and saves, and that it loses nothing: rates and sizes, and every record read back."""

from __future__ import annotations

import secrets

from kafka_assets.audit.bench import Figure
from kafka_assets.audit.compression import bench_compression, orders
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.consume import consume
from kafka_assets.broker.listing import topic_offsets
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.producer_config import COMPRESSIONS, Compression
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.lab.brokers import Say
from kafka_assets.lab.outcome import Outcome, counted
from kafka_assets.lab.rounds import PREFIX


def compression(connection: Connection, *, records: int, say: Say = lambda what: None) -> list[Outcome]:
    """Measure all of them in turns, then write the same records once more with each, and read them back."""
    figures = {one.name: one for one in bench_compression(connection, records=records, say=say)}
    return [_one(connection, way, figures, records=records, say=say) for way in COMPRESSIONS]


def _one(connection: Connection, way: Compression, figures: dict[str, Figure], *, records: int, say: Say) -> Outcome:
    say(f"{way}: reading all records back")
    values, topic = orders(records), PREFIX + secrets.token_hex(4)
    create_topic(connection, topic, partitions=1)
    try:
        with Producer(connection, compression=way) as producer:
            for value in values:
                producer.send(topic, value)
        end = topic_offsets(connection, topic).partitions[0].last_stable
        stored = [record.value for record in consume(connection, topic, {0: 0}, end={0: end})]
    finally:
        delete_topic(connection, topic)
    size, rate = figures[f"{way}: size"], figures[f"{way}: rate"]
    return counted(
        way,
        records=records,
        expected=values,
        found=stored,
        bytes_per_record=size.value,
        bytes_to_none=size.ratio or 1.0,
        records_per_second=round(rate.value),
        rate_to_none=rate.ratio or 1.0,
    )
