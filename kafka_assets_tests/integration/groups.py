"""Members of a group on a real broker, for tests: each remembers what the group did to it."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_assets.broker.client_partitions import place_of
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.rebalances import Place
from kafka_assets.broker.subscription import Subscription

_numbers = itertools.count(1)
TIMES: dict[str, Any] = {"max_poll_interval": 30.0, "session_timeout": 6.0}


def fresh(prefix: str) -> str:
    """A name that nobody has used."""
    return f"{prefix}{os.getpid()}_{next(_numbers)}"


def numbered(connection: Connection, topic: str, count: int, *, partition: int = 0, first: int = 0) -> None:
    produce(connection, topic, (Record(value=b"%d" % (first + n), partition=partition) for n in range(count)))


@dataclass
class Member:
    """A subscription that begins where it is told, and notes all that it is told."""

    connection: Connection
    topics: Sequence[str] | str
    membership: Membership
    begin: Callable[[Sequence[Place]], Mapping[Place, int]] = lambda places: dict.fromkeys(places, 0)
    revoke: Callable[[Sequence[Place]], None] = lambda places: None
    assigned: list[list[Place]] = field(default_factory=list[list[Place]])
    revoked: list[list[Place]] = field(default_factory=list[list[Place]])
    lost: list[list[Place]] = field(default_factory=list[list[Place]])
    records: list[tuple[Place, int]] = field(default_factory=list[tuple[Place, int]])

    def __post_init__(self) -> None:
        def on_assign(places: Sequence[Place]) -> Mapping[Place, int]:
            self.assigned.append(list(places))
            return self.begin(places)

        def on_revoke(places: Sequence[Place]) -> None:
            self.revoked.append(list(places))
            self.revoke(places)

        self.group = Subscription(
            self.connection,
            self.topics,
            self.membership,
            on_assign=on_assign,
            on_revoke=on_revoke,
            on_lost=lambda places: self.lost.append(list(places)),
            properties={
                "topic.metadata.refresh.interval.ms": "1000",
                # A member hears of a rebalance with its next heartbeat; the new protocol's broker says how often.
                **({"heartbeat.interval.ms": "300"} if self.membership.protocol == "classic" else {}),
            },
        )

    def poll(self, timeout: float = 0.1) -> None:
        self.records += [(place_of(one), int(one.offset() or 0)) for one in self.group.consume(1000, timeout)]

    @property
    def owned(self) -> set[Place]:
        return set(self.group.assigned)


def polled(*members: Member, until: Callable[[], bool], patience: float = 120.0) -> None:
    """Poll all of them in turn until that is so."""
    deadline = time.monotonic() + patience
    while not until():
        assert time.monotonic() < deadline, [(one.owned, len(one.records)) for one in members]
        for one in members:
            one.poll(0.05)
