"""Fetching goes on at once where a partition is resumed or sought in.

librdkafka's thread of a broker sleeps for up to a second when none of its partitions is fetched, and is not told when
one of them may be again (https://github.com/confluentinc/confluent-kafka-go/issues/630): measured, half a second
each time. A request to that broker wakes it; what the broker answers is of no interest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from kafka_assets.broker.rebalances import Place

_log = logging.getLogger(__name__)

_WAIT = 0.05
"""Seconds to wait for the answer: where the broker is away there is nothing to wake it for."""


class Waking:
    """The partitions of one consumer that are to be fetched again. Of one thread."""

    def __init__(self) -> None:
        self._places: set[Place] = set()

    def add(self, places: Iterable[Place]) -> None:
        self._places.update(places)

    def wake(self, client: Consumer) -> None:
        """Ask their brokers something, all of them at once, where there are any."""
        if not self._places:
            return
        asked = [TopicPartition(*place, OFFSET_END) for place in self._places]
        self._places.clear()
        try:
            client.offsets_for_times(asked, timeout=_WAIT)
        except KafkaException as error:
            _log.debug("a broker did not answer in time, and fetching goes on a little later: %s", error)
        except RuntimeError as closed:  # the call for records that comes next says so in the caller's words
            _log.debug("nothing is fetched any more: %s", closed)
