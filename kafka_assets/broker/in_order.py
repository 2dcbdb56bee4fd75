"""Stop on the first error: nothing that was sent after a failed record is delivered before somebody handles it.

One partition at a time: what goes to another waits until all before it is acknowledged. Within the
partition, one request at a time, and librdkafka's gapless guarantee stops its sender before the next one.
Where a second request was made ready meanwhile, it goes out all the same, and the broker refuses it for its
sequence number: so the first record goes alone, until the broker knows the producer's numbers.
The guarantee leaves timeouts out, so librdkafka gets none, and the patience is counted here.
"""

from __future__ import annotations

import time

from kafka_assets.broker.deliveries import Failure
from kafka_assets.broker.outbox import Outbox
from kafka_assets.errors import Undelivered

CONFIG = {
    # More in flight, and more than one request would follow a refused one.
    "max.in.flight.requests.per.connection": "1",
    "enable.gapless.guarantee": "true",
    "delivery.timeout.ms": "0",
}


FORGOTTEN = 3600.0
"""Seconds without a record after which the broker may have forgotten the numbers (producer.id.expiration.ms)."""


class InOrder:
    """Guards one outbox; once it has stopped, it stays so, and a new outbox needs a new guard."""

    def __init__(self, outbox: Outbox, *, patience: float) -> None:
        self._outbox = outbox
        self._patience = patience
        self._place: tuple[str, int] | None = None
        self._since = time.monotonic()
        self._alone = False
        """Whether the last record was the first that the broker gets here, or may take for it."""
        self._failed_before = outbox.deliveries.failed
        self.stopped: Undelivered | None = None
        """What it stopped with; raised to whoever sends on."""
        outbox.deliveries.collecting = True

    def before(self, place: tuple[str, int]) -> None:
        """Wait until a record may go to this place; raises Undelivered when one before it has failed."""
        self._outbox.serve(0)
        self.check()
        first = place != self._place or time.monotonic() - self._since > FORGOTTEN
        if first or self._alone:
            self.wait(None)
        self._place, self._alone = place, first
        if not len(self._outbox):
            self._since = time.monotonic()

    def wait(self, deadline: float | None) -> None:
        """Until each record is acknowledged; raises at the first that is not."""
        while len(self._outbox) and (deadline is None or time.monotonic() < deadline):
            self._outbox.push(0.2 if deadline is None else max(0.0, min(0.2, deadline - time.monotonic())))
            self.check()
        self.check()

    def check(self) -> None:
        if self.stopped is not None:
            raise self.stopped
        deliveries = self._outbox.deliveries
        waited = time.monotonic() - max(self._since, deliveries.progress_at)
        overdue = len(self._outbox) > 0 and waited > self._patience
        if overdue or self._outbox.finished is not None or deliveries.failed > self._failed_before:
            self._outbox.give_up()
            self.stopped = undelivered(deliveries.take_untold(), stopped=True)
            raise self.stopped


def undelivered(failures: list[Failure], *, stopped: bool = False) -> Undelivered:
    """The error that carries these failures."""
    if not failures:
        return Undelivered(
            "the producer has stopped", why="it failed for good", cure="call resume(), or make a new one"
        )
    first = failures[0]
    doubtful = sum(one.in_doubt for one in failures)
    handle = "handle them in their order, then call resume(); " if stopped else ""
    return Undelivered(
        f"{len(failures)} records were not delivered, the first for the topic {first.record.topic!r}",
        why=f"the first: {first.error.what}: {first.error.why}; {doubtful} of them may be in the topic all the same",
        cure=f"{handle}`failures` of this error holds each record with its own error; of the first: {first.error.cure}",
        failures=failures,
    )
