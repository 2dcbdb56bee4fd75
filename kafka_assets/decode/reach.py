"""What a worker of Spark's has and reaches, as itself says: asked before records are read there."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

AT_ONCE = 32
"""Brokers that are tried at the same time: one that cannot be reached may take all of its seconds."""


def versions(batches: Iterable[Any], answer: pa.Schema) -> Iterator[Any]:
    """Of Python, and of the packages that reading and decoding need; raises where one cannot be imported."""
    import confluent_kafka
    import numpy

    found = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "pyarrow": pa.__version__,
        "numpy": numpy.__version__,
        "confluent_kafka": confluent_kafka.__version__,
    }
    for _ in batches:
        yield pa.RecordBatch.from_pylist([found], answer)


def brokers(batches: Iterable[Any], answer: pa.Schema, config: Mapping[str, str], seconds: float) -> Iterator[Any]:
    """The address of each broker, with the reason why it is not reached; None where it is."""
    for _ in batches:
        yield pa.RecordBatch.from_pylist(_met(config, seconds), answer)


def _met(config: Mapping[str, str], seconds: float) -> list[dict[str, str | None]]:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    said: list[KafkaError] = []
    try:
        consumer: Any = Consumer({**config, "error_cb": said.append})
    except KafkaException as error:
        return [{"address": config["bootstrap.servers"], "why": error.args[0].str()}]
    try:
        known: Any = consumer.list_topics(timeout=seconds).brokers.values()
    except KafkaException as error:
        consumer.poll(0)  # the reasons come by the callback, and only to who polls
        why = next((one for one in said if one.code() != KafkaError._ALL_BROKERS_DOWN), error.args[0]).str()
        return [{"address": config["bootstrap.servers"], "why": why}]
    finally:
        consumer.close()
    places: list[tuple[str, int]] = sorted((one.host, one.port) for one in known)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tried = [(f"{host}:{port}", pool.submit(unreached, host, port, seconds)) for host, port in places]
        return [{"address": address, "why": why.result()} for address, why in tried]


def unreached(host: str, port: int, seconds: float) -> str | None:
    """Why nobody there can be spoken to: one broker has told of all of them, and was asked itself."""
    try:
        socket.create_connection((host, port), timeout=seconds).close()
    except OSError as error:
        return str(error)
    return None
