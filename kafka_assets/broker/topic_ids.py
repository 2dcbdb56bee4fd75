"""Whether topics are still the ones that they were: asked again and again, over one connection."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kafka_assets.broker.admin import TIMEOUT, Admin
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import describe, topic_id
from kafka_assets.errors import BrokerUnavailable, KafkaAssetsError, TopicChanged


class TopicIds:
    """Of one thread. A consumer goes on in a topic that was created again, at its offset in the one before."""

    def __init__(self, connection: Connection, *, timeout: float = TIMEOUT) -> None:
        self._connection, self._timeout = connection, timeout
        self._asking: Admin | None = None

    def require(self, ids: Mapping[str, str]) -> None:
        """Raise where a topic has not this id now. What was read before was then read of another one."""
        if self._asking is None:
            self._asking = Admin(self._connection, timeout=self._timeout)
        self._asking.deadline = time.monotonic() + self._timeout
        try:
            self._require(self._asking, ids)
        except BrokerUnavailable:
            # A client that met the broker while it went or came may know no controller, and asks for one again only
            # after minutes: whoever asks next does so by a new one.
            self._asking = None
            raise

    def _require(self, asking: Admin, ids: Mapping[str, str]) -> None:
        for topic, found in describe(asking, ids).items():
            if isinstance(found, KafkaAssetsError):
                raise found
            if topic_id(found) != ids[topic]:
                raise TopicChanged(
                    f"the topic {topic!r} was deleted and created again while it was being consumed",
                    why=f"its id was {ids[topic]}, and is now {topic_id(found)}",
                    cure="nothing: what the old one left unread is recorded as lost, and the new one is begun with",
                )
