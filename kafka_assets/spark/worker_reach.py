"""The way from Spark's workers to Kafka: they read there themselves, from every broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from kafka_assets.broker.connection import Connection, worker_config
from kafka_assets.errors import BrokerUnavailable
from kafka_assets.spark.reached import reached
from kafka_assets.spark.traveling import answers

_CURES = {
    "certificate verify failed": "set ssl.ca.location to the authority that signed the brokers' certificates: what is "
    "in that file goes along with the query, where without it each machine trusts the authorities that it knows",
    "ssl.keystore.location": "put the file on the machines of Spark's workers, too, at the same path; or set "
    "ssl.certificate.location and ssl.key.location instead, which go along with the query",
}
"""What to do, by what librdkafka says on a worker."""
_NETWORK = (
    "see that the machines of Spark's workers reach all brokers, at the addresses that these advertise "
    "(advertised.listeners), through the network and the firewalls between"
)
_ANSWER = pa.schema([("address", pa.string()), ("why", pa.string())])


def brokers_reached(spark: SparkSession, connection: Connection, *, seconds: float) -> Sequence[str]:
    """The brokers' addresses, all of which one worker reaches; raises `BrokerUnavailable` where it does not.

    Not guaranteed: that all workers do, and that more than one broker lets them in.
    """
    with reached():
        found = answers(spark, "brokers", _ANSWER, worker_config(connection), seconds)
    ungiven = [row for row in found if row.why is not None]
    if ungiven:
        raise not_reached({row.address: row.why for row in ungiven})
    return [row.address for row in found]


def not_reached(whys: Mapping[str, str]) -> BrokerUnavailable:
    """What is wrong, by the address of each broker that a worker did not reach."""
    why = "; ".join(dict.fromkeys(whys.values()))
    return BrokerUnavailable(
        f"a worker of Spark's does not reach Kafka at {', '.join(whys)}",
        why=why,
        cure=next((cure for said, cure in _CURES.items() if said in why), _NETWORK),
    )
