"""A broker that went away from whoever waits for its next records: found out, and said once."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from kafka_assets.broker.admin import ALL_DOWN_GRACE, Beside, Watch
from kafka_assets.broker.connection import Connection


class Outage:
    """Without this, no records because of no broker look like no records."""

    def __init__(self, connection: Connection, watch: Watch, say: Callable[[str], None]) -> None:
        self._connection, self._watch, self._say = connection, watch, say
        self._beside = Beside(connection)
        self._lost = False
        self._asked = 0.0

    def look(self) -> None:
        """Call it between two polls: it asks, where all connections were lost, whether a broker answers."""
        suspicious = self._lost or self._watch.down_since is not None
        if not suspicious or time.monotonic() - self._asked < ALL_DOWN_GRACE:
            return
        lost, self._asked = not self._answers(), time.monotonic()
        if lost != self._lost:
            self._lost = lost
            where = self._connection.bootstrap_servers
            self._say(f"no broker answers at {where}; waiting for it" if lost else f"a broker answers at {where} again")
        elif not lost:
            self._watch.down_since = None

    def _answers(self) -> bool:
        try:
            self._beside.list_topics(timeout=ALL_DOWN_GRACE / 2)
        except KafkaException:
            return False
        return True
