"""Where a consumer's offsets are kept, and when: what a consumer tells its keeper.

A keeper is told between records, never while one is in the caller's hand, and always in the consumer's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from confluent_kafka import Consumer as Client

from kafka_assets.broker.units import Unit, Where


class Keeper(Protocol):
    """What a commit mode does at each of a consumer's steps. `Nowhere` does nothing: inherit, and override."""

    needs_group: bool
    whole: bool
    """Whether a unit is kept as a whole, or not at all and comes again."""
    properties: Mapping[str, str]
    """What librdkafka's consumer must be told for it."""

    def attach(self, client: Client) -> None:
        """The consumer is there; called once, before anything else."""

    def begins(self, places: Collection[Where]) -> Mapping[Where, int | None]:
        """The next offset of each of these new partitions; None: not yet, ask again; absent: none is known."""
        ...

    def began(self, offsets: Mapping[Where, int]) -> None:
        """Of these none was known, and they begin here: next time they are known, whatever `start` says then."""

    def before(self, unit: Unit) -> None:
        """Its first record is about to be handed over."""

    def done(self, unit: Unit) -> None:
        """What is done of it is to be kept; raising means that it is not kept now."""

    def undo(self, unit: Unit) -> Mapping[Where, int]:
        """It will not be finished; where reading begins again, so that what is not kept comes again."""
        ...

    def released(self, places: Collection[Where]) -> None:
        """Another member gets these when this returns: what was done of them must be kept by then."""

    def lost(self, places: Collection[Where], unit: Unit | None) -> Mapping[Where, int]:
        """They are another member's already; nothing of them may be kept. Where others begin again for that."""
        ...

    def idle(self) -> None:
        """Some time has passed, with records or without."""

    def close(self) -> None:
        """No record comes any more, and the consumer is still in the group."""


class Nowhere:
    """Keeps nothing: each time it begins at `start`."""

    needs_group = False
    whole = False
    properties: Mapping[str, str] = {}

    def attach(self, client: Client) -> None:
        return

    def begins(self, places: Collection[Where]) -> Mapping[Where, int | None]:
        return {}

    def began(self, offsets: Mapping[Where, int]) -> None:
        return

    def before(self, unit: Unit) -> None:
        return

    def done(self, unit: Unit) -> None:
        return

    def undo(self, unit: Unit) -> Mapping[Where, int]:
        return unit.open

    def released(self, places: Collection[Where]) -> None:
        return

    def lost(self, places: Collection[Where], unit: Unit | None) -> Mapping[Where, int]:
        return {}

    def idle(self) -> None:
        return

    def close(self) -> None:
        return
