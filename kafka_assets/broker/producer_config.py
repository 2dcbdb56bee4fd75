"""What librdkafka is told for a producer: no loss and no doubles, and a time for everything."""

from __future__ import annotations

from typing import Literal

from kafka_assets.broker.connection import Connection, producer_config
from kafka_assets.errors import UsageError

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
DELIVERY_TIMEOUT = 120.0


def configured(
    connection: Connection, *, compression: str | None, transactional_id: str | None, timeout: float | None
) -> tuple[dict[str, str], float]:
    """The properties, and how many seconds a record may wait for its answer."""
    config = producer_config(connection)
    if compression is not None:
        if compression not in COMPRESSIONS:
            raise UsageError(f"there is no compression {compression!r}", cure=f"choose among {', '.join(COMPRESSIONS)}")
        config["compression.type"] = compression
    theirs = config.pop("message.timeout.ms", None) or config.get("delivery.timeout.ms")
    patience = timeout if timeout is not None else int(theirs) / 1000 if theirs else DELIVERY_TIMEOUT
    config["delivery.timeout.ms"] = str(int(patience * 1000))
    config.setdefault("partitioner", "murmur2_random")
    if transactional_id is not None:
        config["transactional.id"] = transactional_id
        # A transaction outlives its records' time, or the broker would abort it under them.
        config.setdefault("transaction.timeout.ms", str(max(60_000, int(patience * 1000))))
    return config, patience
