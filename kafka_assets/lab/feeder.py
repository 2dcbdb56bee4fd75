"""Records that keep coming, at the same rate in each partition, while something else is looked at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.producer import Producer


class Feeder:
    """One record for each partition of each topic at each beat: a partition's n-th record has the offset n.

    `beats` a second; one that is late is made up for. `value` makes a record of its number in its partition.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Sequence[str],
        *,
        partitions: int,
        beats: float,
        value: Callable[[int], bytes] = lambda number: b"%d" % number,
    ) -> None:
        self.sent = 0
        """So many in each partition."""
        self._producer = Producer(connection)
        self._places = [(topic, partition) for topic in topics for partition in range(partitions)]
        self._pause, self._value = 1 / beats, value
        self._stop = threading.Event()
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def end(self) -> int:
        """Stop, wait until all is acknowledged, and say how many each partition was given."""
        self._stop.set()
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble
        return self.sent

    def _run(self) -> None:
        try:
            with self._producer as producer:
                began = time.monotonic()
                while not self._stop.wait(max(began + self.sent * self._pause - time.monotonic(), 0)):
                    for topic, partition in self._places:
                        producer.send(topic, self._value(self.sent), partition=partition)
                    self.sent += 1
        except BaseException as error:  # noqa: BLE001 - raised by `end`, in the thread that waits for it
            self._trouble = error
