"""One member's loop without a broker: ledger, leases and transactions are real, what Kafka would say is given.

A gate holds batches up, so that a test says what becomes of the group meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from sqlalchemy import Engine

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.rebalances import Rebalances
from kafka_assets.forms import ArrowForm
from kafka_assets.live.batch import Place
from kafka_assets.live.figures import Figures
from kafka_assets.live.keeping import Keeper
from kafka_assets.live.landing import Landing
from kafka_assets.live.limits import Limits
from kafka_assets.live.loop import Loop
from kafka_assets.live.taking import Taking
from kafka_assets_tests.ticking import orders

ORDERS, OTHER = ("orders", 0), ("orders", 1)


class Record:
    """A message, as far as a loop asks it."""

    def __init__(self, place: Place, offset: int) -> None:
        self._place, self._offset = place, offset

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b'{"id": %d, "note": "a"}' % self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def headers(self) -> None:
        return None


class Group:
    """A subscription as a loop sees it: partitions that end somewhere, read from where they are started."""

    def __init__(self, **ends: int) -> None:
        self.rebalances = Rebalances()
        self.end = {("orders", int(name[1:])): end for name, end in ends.items()}
        self.assigned: set[Place] = set()
        self.at: dict[Place, int] = {}
        self.paused: set[Place] = set()
        self.raises: list[Exception] = []
        self.heard: set[Place] = set()
        """Of which records came: only with them a broker says where a partition ends."""

    def consume(self, max_records: int, timeout: float) -> list[Any]:
        if self.raises:
            raise self.raises.pop(0)
        found: list[Any] = []
        for place in [one for one in self.at if one not in self.paused]:
            until = min(self.end[place], self.at[place] + max_records - len(found))
            found += [Record(place, offset) for offset in range(self.at[place], until)]
            self.at[place] = until
            self.heard.add(place)
        return found

    def start(self, offsets: Mapping[Place, int]) -> None:
        self.at.update(offsets)

    def park(self, places: Iterable[Place]) -> None:
        for place in places:
            self.at.pop(place, None)

    def pause(self, places: Iterable[Place]) -> None:
        self.paused.update(places)

    def resume(self, places: Iterable[Place]) -> None:
        self.paused.difference_update(places)

    def positions(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self.at[place] for place in places if place in self.at}

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        return {place: self.end[place] for place in places if place in self.heard}


class Member:
    """A loop on the ledger of `orders`; while its gate is closed, the worker stands before a batch's transaction."""

    def __init__(
        self, engine: Engine, stack: ExitStack, *, limits: Limits, patience: float, lease_ms: int, **ends: int
    ) -> None:
        self.engine, self.group = engine, Group(**ends)
        connection, stream = Connection("nowhere:1"), orders()
        landing = Landing(engine, connection, ArrowForm(stream, "v1", None), owner="live-1", limits=limits)
        self.gate, self.reached, self.fails = threading.Event(), threading.Event(), list[Exception]()
        self.gate.set()
        land = landing.land

        def held_up(parts: Sequence[Any]) -> Any:
            self.reached.set()
            assert self.gate.wait(60)
            if self.fails:
                raise self.fails.pop(0)
            return land(parts)

        landing.land = held_up
        self.keeper = stack.enter_context(Keeper(engine, lease_ms=lease_ms, aside=lambda _: None))
        self.loop = Loop(
            taking=Taking(engine, connection, stream, owner="live-1", lease_ms=lease_ms),
            landing=landing,
            keeper=self.keeper,
            limits=limits,
            figures=Figures(),
            patience=patience,
        )
        stack.callback(self.loop.close)
        stack.callback(self.gate.set)

    def assign(self, *places: Place) -> None:
        self.group.assigned.update(places)
        self.loop.on_assign(places)

    def revoke(self, *places: Place, lost: bool = False) -> None:
        """As a subscription does it: told first, then gone."""
        try:
            (self.loop.on_lost if lost else self.loop.on_revoke)(places)
        finally:
            self.group.assigned.difference_update(places)
            self.group.park(places)

    def turns(self, until: Callable[[], object], patience: float = 60.0) -> None:
        deadline = time.monotonic() + patience
        while not until():
            assert time.monotonic() < deadline, "it never came"
            self.loop.turn(self.group)
            time.sleep(0.001)

    def in_flight(self, *places: Place) -> None:
        """Until a batch of these partitions stands before its transaction."""
        self.gate.clear()
        self.assign(*(places or (ORDERS,)))
        self.turns(self.reached.is_set)

    @property
    def figures(self) -> Figures:
        return self.loop.figures

    def wait_for_the_worker(self) -> None:
        self.loop._worker.submit(lambda: None).result(20)
