"""Several consumers in one process, each in a thread of its own with its own place in the group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from kafka_assets.broker.membership import Membership
from kafka_assets.live.consumer import LiveConsumer
from kafka_assets.live.figures import Figures, total


def member(membership: Membership, number: int, count: int) -> Membership:
    """The membership of one among several: an instance id belongs to one member at a time."""
    if membership.instance_id is None or count == 1:
        return membership
    return replace(membership, instance_id=f"{membership.instance_id}-{number}")


class Crew:
    """Consumers of one stream; the first error ends all of them, and is raised when they have given back."""

    def __init__(self, consumers: Sequence[LiveConsumer]) -> None:
        self._consumers = consumers
        self._errors: list[BaseException] = []

    @property
    def figures(self) -> Figures:
        return total(one.figures for one in self._consumers)

    def stop(self) -> None:
        for one in self._consumers:
            one.stop()

    def run(
        self,
        *,
        until_caught_up: bool = False,
        patience: timedelta = timedelta(minutes=5),
        say: Callable[[Figures], None] | None = None,
        say_every: float = 10.0,
    ) -> Figures:
        """As `LiveConsumer.run`; what is said is of all of them together."""

        def tell(of_the_first: Figures) -> None:
            if say is not None:
                say(self.figures)

        def consume(one: LiveConsumer, first: bool) -> None:
            try:
                one.run(
                    until_caught_up=until_caught_up,
                    patience=patience,
                    say=tell if first else None,
                    say_every=say_every,
                )
            except BaseException as error:  # noqa: BLE001 raised below, in the caller's thread
                self._errors.append(error)
                self.stop()

        if len(self._consumers) == 1:
            return self._consumers[0].run(
                until_caught_up=until_caught_up, patience=patience, say=say, say_every=say_every
            )
        threads = [
            threading.Thread(target=consume, args=(one, number == 0), name=f"live-{number}")
            for number, one in enumerate(self._consumers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a join without end would keep signals waiting
                thread.join(0.2)
        if self._errors:
            raise self._errors[0]
        return self.figures
