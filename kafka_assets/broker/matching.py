"""The topics that a member reads: a list, or all that match a pattern now; and how many partitions they have."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from confluent_kafka import KafkaException

from kafka_assets.broker.admin import Beside, kafka_error
from kafka_assets.broker.membership import LOGGER
from kafka_assets.errors import UsageError

EVERY = 5.0
"""Seconds between two looks."""
INTERNAL = "__"
"""How the names of topics begin that Kafka and its tools keep for themselves."""


class Matching:
    """Looked at by us, since librdkafka's own patterns are another language, and in the new protocol a third one."""

    def __init__(self, topics: Sequence[str] | str) -> None:
        self._pattern = _pattern(topics)
        self.topics: list[str] = [] if isinstance(topics, str) else sorted(topics)
        self._counts: dict[str, int] = {}
        self._looked_at: float | None = None

    def look(self, client: Beside, causes: list[str], *, now: bool = False) -> bool:
        """Whether other topics match than before; what changed is added to the causes of rebalances."""
        if not now and not self._due():
            return False
        self._looked_at = time.monotonic()
        try:
            there = client.list_topics(timeout=1.0 if self.topics else EVERY).topics
        except KafkaException as raised:
            LOGGER.debug("the topics could not be listed now: %s", kafka_error(raised).str())
            return False
        before = self.topics
        if self._pattern is not None:
            self.topics = sorted(n for n in there if not n.startswith(INTERNAL) and self._pattern.fullmatch(n))
            if before:
                causes += [f"the topic {name} matches now" for name in self.topics if name not in before]
                causes += [f"the topic {name} is gone" for name in before if name not in self.topics]
        counts = {name: len(there[name].partitions) for name in self.topics if name in there}
        causes += [
            f"{name} has {count} partitions, and had {self._counts[name]}"
            for name, count in counts.items()
            if count > self._counts.get(name, count)
        ]
        self._counts = counts
        return self.topics != before

    def _due(self) -> bool:
        if self._looked_at is None:
            return True
        return self._pattern is not None and time.monotonic() - self._looked_at >= EVERY


def _pattern(topics: Sequence[str] | str) -> re.Pattern[str] | None:
    if not isinstance(topics, str):
        if not topics:
            raise UsageError("there is no topic to subscribe to", cure="name one, or give a pattern that begins with ^")
        return None
    if not topics.startswith("^"):
        raise UsageError(
            f"{topics!r} is no pattern", why="a pattern begins with ^", cure="give a list of topics, or a pattern ^…"
        )
    try:
        # All of a name is compared; and flags, as in ^(?i)shop, may stand at the beginning alone.
        return re.compile(topics[1:])
    except re.error as error:
        raise UsageError(f"{topics!r} is no regular expression of Python's re", why=str(error)) from error
