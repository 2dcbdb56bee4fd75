"""The connection of a client that lives for days: a handshake that failed once may succeed a moment later."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kafka_assets.broker.admin import Beside, Watch, has_met_a_broker, kafka_error
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.membership import LOGGER

REFUSED_GRACE = 60.0
"""Seconds for which every broker may refuse a client that was let in before."""
_ASKED_EVERY = 5.0
_HANDSHAKE = {KafkaError._SSL, KafkaError._AUTHENTICATION}
"""Also what librdkafka says of a connection that was cut while it was being made, as when a broker restarts."""


class LongWatch(Watch):
    """As Watch until a broker was met; from then on a failed handshake ends the client only where it stays so."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._beside = Beside(connection)
        self._since: float | None = None
        self._asked = 0.0

    def check(self, client: Any) -> None:
        if self.refusal is None or self.refusal.code() not in _HANDSHAKE or not has_met_a_broker(client):
            super().check(client)
            return
        now = time.monotonic()
        self._since = self._since or now
        if now - self._asked < _ASKED_EVERY:
            return
        self._asked = now
        # librdkafka says the same error once in half an hour: that it is silent means nothing.
        try:
            self._beside.list_topics(timeout=1.0)
        except KafkaException as raised:
            LOGGER.debug("no broker answers after a refusal: %s", kafka_error(raised).str())
            if now - self._since > REFUSED_GRACE:
                super().check(client)
            return
        LOGGER.warning("a connection was refused, and the cluster answers all the same: %s", self.refusal.str())
        self.refusal = self._since = None
