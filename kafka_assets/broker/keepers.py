"""Where a consumer's offsets are kept, and when: what a consumer tells its keeper.

A keeper is told between records, never while one is in the caller's hand, and always in the consumer's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Consumer as Client

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.units import Unit, Where


@dataclass(frozen=True)
class Attached:
    """What a keeper knows of its consumer."""

    client: Client
    connection: Connection
    group: str | None
    longest_silence: float
    """Seconds without a poll after which its partitions are to be others': a group's `max_poll_interval`."""


First = Callable[[Collection[Where]], Mapping[Where, int]]
"""Where partitions begin of which nothing is kept: what the consumer's `start` says."""


class Keeper(Protocol):
    """What a commit mode does at each of a consumer's steps. `Nowhere` does nothing: inherit, and override."""

    needs_group: bool
    whole: bool
    """Whether a unit is kept as a whole or not at all: where `done` fails, its partitions begin again, by `begins`.

    Of a unit that is undone all records are handed over again, and not only those that were not done.
    """
    knows_expired: bool
    """Whether `begins` says itself what becomes of offsets that are not there any more; else they are an error."""
    properties: Mapping[str, str]
    """What librdkafka's consumer must be told for it."""

    def attach(self, consumer: Attached) -> None:
        """The consumer is there; called once, before anything else."""

    def begins(self, places: Collection[Where], first: First) -> Mapping[Where, int]:
        """The next offset of each of these new partitions, `first` of those of which none is known.

        What it leaves out cannot be had yet, and is asked for again.
        """
        ...

    def polling(self) -> AbstractContextManager[None]:
        """Around each call for records: while librdkafka's consumer is in one, it lets no other thread in."""
        ...

    def before(self, unit: Unit) -> None:
        """Its first record is about to be handed over."""

    def done(self, unit: Unit) -> None:
        """What is done of it is to be kept; raising means that it is not kept now."""

    def undo(self, unit: Unit) -> None:
        """It will not be finished as it is: what of it is not kept when this returns is handed over again."""

    def released(self, places: Collection[Where]) -> None:
        """Another member gets these when this returns: what was done of them must be kept by then."""

    def lost(self, places: Collection[Where]) -> None:
        """They are another member's already; nothing of them may be kept, nor of a whole unit that has some of them."""

    def idle(self) -> Collection[Where]:
        """Some time has passed, with records or without; the partitions that must begin again, by `begins`."""
        ...

    def close(self) -> None:
        """No record comes any more, and the consumer is still in the group."""


class Nowhere:
    """Keeps nothing: each time it begins at `start`."""

    needs_group = False
    whole = False
    knows_expired = False
    properties: Mapping[str, str] = {}

    def attach(self, consumer: Attached) -> None:
        return

    def begins(self, places: Collection[Where], first: First) -> Mapping[Where, int]:
        return first(places)

    def polling(self) -> AbstractContextManager[None]:
        return nullcontext()

    def before(self, unit: Unit) -> None:
        return

    def done(self, unit: Unit) -> None:
        return

    def undo(self, unit: Unit) -> None:
        return

    def released(self, places: Collection[Where]) -> None:
        return

    def lost(self, places: Collection[Where]) -> None:
        return

    def idle(self) -> Collection[Where]:
        return ()

    def close(self) -> None:
        return
