"""How big a batch may become, and how long anything may take."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_assets.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """A batch is committed when it is full, or when its first record has waited for `delay` seconds.

    A consumer holds at most two batches, one of which is being committed, each as it came and decoded; and what
    librdkafka has fetched ahead.
    """

    records: int = 50_000
    bytes: int = 64 * 1024 * 1024
    delay: float = 0.5
    window: float = 60.0
    """Seconds after which a slice is closed, and gets its Dagster key."""
    lease: float = 30.0
    """Seconds for which a partition is this consumer's after it was last heard of."""

    def __post_init__(self) -> None:
        for name, least in (("records", 1), ("bytes", 1), ("delay", 0), ("window", 1), ("lease", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name):g}, and must be {least} or more")
