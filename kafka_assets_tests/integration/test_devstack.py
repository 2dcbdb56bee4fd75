"""The local services for real: started, used, killed, stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_reads_a_topic_from_the_broker(broker: str, spark: SparkSession) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    topic = "devstack-reads"
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(topic, 2)])[topic].result()
    producer = Producer({"bootstrap.servers": broker})
    for number in range(100):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    assert records.count() == 100
