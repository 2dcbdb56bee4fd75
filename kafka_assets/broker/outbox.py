"""librdkafka's producer with its queue: what is put in comes out as a delivery or a failure, never as silence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from confluent_kafka import KafkaException, Producer

from kafka_assets.broker.admin import LOGGER, Watch, create, kafka_error
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.deliveries import Callback, Deliveries, Outgoing
from kafka_assets.broker.preparation import Written
from kafka_assets.broker.refusals import finished, is_final, record_error, said
from kafka_assets.errors import ProducerFinished, QueueFull

PURGED = 5.0
"""Seconds for librdkafka to hand back what it was told to give up; it takes milliseconds."""


class Outbox:
    """One librdkafka producer. `put` waits for room, `drain` for answers; `give_up` ends all waiting."""

    def __init__(
        self,
        connection: Connection,
        config: Mapping[str, str],
        deliveries: Deliveries,
        *,
        on_statistics: Callable[[str], None] | None = None,
    ) -> None:
        self.connection = connection
        self.deliveries = deliveries
        self.watch = Watch(connection)
        self.finished: ProducerFinished | None = None
        settled = cast("dict[str, Any]", {**config, "error_cb": self.watch.hear})
        if on_statistics is not None:
            settled["stats_cb"] = partial(deliveries.heed, on_statistics)
        self.client = create(lambda: Producer(settled, logger=LOGGER))

    def __len__(self) -> int:
        """Records without an answer."""
        return len(self.client)

    def put(
        self,
        record: Outgoing,
        written: Written,
        *,
        partition: int,
        callback: Callback | None,
        patience: float,
    ) -> None:
        """Queue the record; with a full queue wait for room, at most so long, then QueueFull."""
        deadline: float | None = None
        on_delivery = self.deliveries.expect(record, callback)
        while True:
            try:
                self.client.produce(
                    record.topic,
                    value=written.value,
                    key=written.key,
                    partition=partition,
                    timestamp=record.timestamp_ms or 0,
                    headers=cast(Any, written.headers) or None,
                    on_delivery=on_delivery,
                )
                return
            except BufferError:
                deadline = deadline or time.monotonic() + patience
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._full(patience) from None
                self.serve(min(left, 0.1))
            except KafkaException as raised:
                error = kafka_error(raised)
                if is_final(error):
                    self.finished = self.finished or finished(error)
                    raise self.finished from raised
                raise record_error(self.connection, record.topic, error) from raised

    def serve(self, seconds: float) -> None:
        """Hear of deliveries and failures for so long, or until the first came."""
        self._ask(self.client.poll, seconds)

    def push(self, seconds: float) -> None:
        """Send what waits without lingering, and hear, for at most so long."""
        self._ask(self.client.flush, seconds)

    def drain(self, deadline: float | None) -> int:
        """Hear until each record has its answer, or the deadline; how many have none."""
        while len(self.client):
            left = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
            if left <= 0:
                break
            self.push(left)
            if self.finished is not None:
                self.give_up()
        self.serve(0)
        return len(self.client)

    def give_up(self) -> int:
        """Make a failure of each record that has no answer; how many librdkafka did not even hand back: none."""
        self.client.purge()
        deadline = time.monotonic() + PURGED
        while len(self.client) and time.monotonic() < deadline:
            self.push(0.1)
        return len(self.client)

    def _ask(self, serve: Callable[[float], int], seconds: float) -> None:
        self.deliveries.passing = None
        try:
            serve(seconds)
        except SystemError as lost:
            # What is raised while it serves, Ctrl-C above all, the client sometimes forgets on its way back.
            raise self.deliveries.passing or KeyboardInterrupt() from lost
        except KafkaException as raised:
            error = kafka_error(raised)
            if not is_final(error):
                raise record_error(self.connection, "", error) from raised
            # librdkafka says so once; each record's own failure comes by its callback.
            self.finished = self.finished or finished(error)

    def _full(self, patience: float) -> QueueFull:
        heard = f"; last heard: {said(self.watch.last)}" if self.watch.last else ""
        return QueueFull(
            f"the producer's queue stayed full for {patience:g} s",
            why=f"{len(self.client)} records wait for the broker at {self.connection.bootstrap_servers}{heard}",
            cure="send the same record again later; look at the broker; "
            "raise max_block, or queue.buffering.max.messages and .max.kbytes",
        )
