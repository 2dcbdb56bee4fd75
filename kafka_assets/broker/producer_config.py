"""What librdkafka is told for a producer: no loss and no doubles, and a time for everything."""

from __future__ import annotations

from typing import Literal

from kafka_assets.broker.connection import Connection, producer_config
from kafka_assets.errors import SettingsError, UsageError

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
DELIVERY_TIMEOUT = 120.0
LONGEST = 2_147_483.0
"""Seconds: librdkafka counts milliseconds in 31 bits."""


def configured(
    connection: Connection, *, compression: str | None, transactional_id: str | None, timeout: float | None
) -> tuple[dict[str, str], float]:
    """The properties, and how many seconds a record may wait for its answer."""
    config = producer_config(connection)
    if compression is not None:
        if compression not in COMPRESSIONS:
            raise UsageError(f"there is no compression {compression!r}", cure=f"choose among {', '.join(COMPRESSIONS)}")
        config["compression.type"] = compression
    alias = config.pop("message.timeout.ms", None)
    theirs = alias or config.get("delivery.timeout.ms")
    if timeout is not None:
        patience = _given(timeout)
    else:
        patience = (
            _set("message.timeout.ms" if alias else "delivery.timeout.ms", theirs) if theirs else DELIVERY_TIMEOUT
        )
    config["delivery.timeout.ms"] = str(int(patience * 1000))
    config.setdefault("partitioner", "murmur2_random")
    if transactional_id is not None:
        config["transactional.id"] = transactional_id
        # A transaction outlives its records' time, or the broker would abort it under them.
        config.setdefault("transaction.timeout.ms", str(max(60_000, int(patience * 1000))))
    return config, patience


def _given(timeout: float) -> float:
    if not 0.001 <= timeout <= LONGEST:  # so neither is not-a-number
        raise UsageError(
            f"a record cannot be given {timeout:g} seconds",
            why="each record's time is bounded, so that each is heard of",
            cure=f"give at least 0.001, and at most {LONGEST:.0f}",
        )
    return timeout


def _set(name: str, milliseconds: str) -> float:
    """The user's own property, in seconds. librdkafka's 0, no limit, would be a close that never ends."""
    try:
        seconds = int(milliseconds) / 1000
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST:
        raise SettingsError(
            f"the Kafka property {name!r} cannot be {milliseconds!r} for a producer",
            why="each record's time is bounded, so that each is heard of",
            cure=f"give whole milliseconds, from 1 to {LONGEST * 1000:.0f}, or leave it out: {DELIVERY_TIMEOUT:g} s",
        )
    return seconds
