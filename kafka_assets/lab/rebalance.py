"""What happens to a group's partitions when members join, leave, die and come back; each member is a process."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.group_configs import set_group_config
from kafka_assets.broker.groups import delete_group
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.errors import BrokerRefused, KafkaAssetsError
from kafka_assets.lab.brokers import Say
from kafka_assets.lab.child import Child, reaching
from kafka_assets.lab.feeder import Feeder
from kafka_assets.lab.outcome import Outcome
from kafka_assets.lab.rounds import PREFIX
from kafka_assets.lab.sightings import Handling, Sightings
from kafka_assets.lab.waiting import until

PARTITIONS = 6
SESSION = 6.0
"""Seconds of silence until a member counts as dead: the least that a broker allows by default."""
TIMES = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "3000"}
"""The same for the new protocol, where the broker has it; and heartbeats as often as classic members send them."""
OWED = 0.3
"""Seconds after its last commit in which a member must have handled something when it is killed."""
PATIENCE = 120.0
SETTLE = 1.0
SILENCE = 15.0
MEMBER = "kafka_assets.lab.member"

MODES: Mapping[str, Mapping[str, Any]] = {
    "range": {"assignor": "range", "session_timeout": SESSION},
    "cooperative": {"assignor": "cooperative-sticky", "session_timeout": SESSION},
    "static": {"assignor": "range", "session_timeout": SESSION, "instance_id": ""},
    "kip-848": {"protocol": "consumer"},
}


@dataclass
class Group:
    """The members of one experiment, and all that they said."""

    connection: Connection
    topic: str
    name: str
    membership: Mapping[str, Any]
    stack: ExitStack
    members: dict[str, Child] = field(default_factory=dict[str, Child])
    seen: Sightings = field(default_factory=Sightings)

    def start(self, member: str) -> None:
        membership = dict(self.membership)
        if "instance_id" in membership:
            membership["instance_id"] = f"{self.name}-{member}"
        task = {**reaching(self.connection), "topic": self.topic, "group": self.name, "membership": membership}
        self.members[member] = self.stack.enter_context(Child(MEMBER, task))

    def leave(self, member: str) -> None:
        """It closes, and says so to the group (a static one does not)."""
        child = self.members[member]
        child.go()
        while (said := child.said()) is not None:
            self.seen.add(member, said)
        del self.members[member]
        self.seen.gone(member)

    def die(self, member: str) -> None:
        """Killed while it has done what it has not committed: the worst moment, and most of all moments."""
        until(lambda: self._owes(member), f"the {member} member has something to lose", every=0.02)
        for said in self.members.pop(member).kill():
            self.seen.add(member, said)
        self.seen.gone(member)

    def restart(self, member: str) -> None:
        """Killed, and started again at once."""
        self.die(member)
        self.start(member)

    def listen(self) -> None:
        for name, child in self.members.items():
            for said in child.heard():
                self.seen.add(name, said)

    def _owes(self, member: str) -> bool:
        self.listen()
        return self.seen.owes(member, since=OWED)

    def settled(self) -> bool:
        """Each partition is one member's, each member has some, and records of each are handled."""
        self.listen()
        owned = [partition for name in self.members for partition in self.seen.owned.get(name, ())]
        return (
            sorted(owned) == list(range(PARTITIONS))
            and all(self.seen.owned.get(name) for name in self.members)
            and all(self.seen.handled_since(partition, self.seen.moved_at) for partition in range(PARTITIONS))
        )


EVENTS: Mapping[str, Callable[[Group], None]] = {
    "joins": lambda group: group.start("third"),
    "leaves": lambda group: group.leave("third"),
    "killed, back": lambda group: group.restart("second"),
    "killed": lambda group: group.die("second"),
}


def rebalance(
    connection: Connection, *, modes: Sequence[str], rate: int, say: Say = lambda what: None
) -> list[Outcome]:
    """Each mode with its own topic and group, one after the other; records come all the time."""
    found: list[Outcome] = []
    for number, mode in enumerate(modes, start=1):
        where = f"{number} of {len(modes)}, {mode}"
        found += _one(connection, mode, rate=rate, say=lambda what, where=where: say(f"{where}: {what}"))
    return found


def _one(connection: Connection, mode: str, *, rate: int, say: Say) -> list[Outcome]:
    name = PREFIX + secrets.token_hex(4)
    with ExitStack() as stack:
        create_topic(connection, name, partitions=PARTITIONS)
        stack.callback(_forget, connection, name)
        feeder = stack.enter_context(Feeder(connection, [name], partitions=PARTITIONS, beats=rate / PARTITIONS))
        if MODES[mode].get("protocol") == "consumer":
            # Another broker may not allow it: then its own times, 45 s as a rule, are what is measured.
            with suppress(BrokerRefused):
                set_group_config(connection, name, TIMES)
        group = Group(connection, name, name, MODES[mode], stack)
        say("two members start")
        group.start("first")
        group.start("second")
        until(group.settled, "two members share the partitions", patience=PATIENCE, every=0.02)
        windows: list[tuple[str, float, int]] = []
        for event, happen in EVENTS.items():
            say(event)
            windows.append((event, time.time(), feeder.sent))
            happen(group)
            until(group.settled, event, patience=PATIENCE, every=0.02)
            _listen_on(group, SETTLE)
        sent = feeder.end()
        _listen_to_the_end(group, sent)
        windows.append(("", time.time(), sent))
        for member in list(group.members):
            group.leave(member)
        return [
            _outcome(mode, event, group.seen, (began, until_), (first, last))
            for (event, began, first), (_, until_, last) in pairwise(windows)
        ]


def _outcome(mode: str, event: str, seen: Sightings, between: tuple[float, float], offsets: tuple[int, int]) -> Outcome:
    stopped = seen.stopped(*between)
    first, last = offsets
    there = {(one.partition, one.offset) for one in seen.handlings}
    missing = [
        (part, offset) for part in range(PARTITIONS) for offset in range(first, last) if (part, offset) not in there
    ]
    return Outcome(
        mode,
        records=(last - first) * PARTITIONS,
        lost=len(missing),
        doubled=_again(seen.handlings, *between),
        more={
            "event": event,
            "partitions": PARTITIONS,
            "stopped": len(stopped),
            "pause_s": round(max((seen.pause(one, *between) for one in stopped), default=0.0), 1),
        },
    )


def _again(handlings: Sequence[Handling], began: float, ended: float) -> int:
    """How many records were handled in this time that had been handled before."""
    known: set[tuple[int, int]] = set()
    again = 0
    for one in sorted(handlings, key=lambda one: one.at):
        place = (one.partition, one.offset)
        again += place in known and began <= one.at < ended
        known.add(place)
    return again


def _listen_to_the_end(group: Group, sent: int) -> None:
    """Until each record was handled, or nothing has come for so long that nothing will."""
    heard, moved = 0, time.monotonic()
    while len({(one.partition, one.offset) for one in group.seen.handlings}) < sent * PARTITIONS:
        _listen_on(group, 0.1)
        if len(group.seen.handlings) > heard:
            heard, moved = len(group.seen.handlings), time.monotonic()
        elif time.monotonic() - moved > SILENCE:
            return


def _listen_on(group: Group, seconds: float) -> None:
    ended = time.monotonic() + seconds
    while time.monotonic() < ended:
        group.listen()
        time.sleep(0.02)


def _forget(connection: Connection, name: str) -> None:
    for forget in (delete_topic, delete_group):
        # A static member stays in its group until its session ends, and the broker forgets empty groups itself.
        with suppress(KafkaAssetsError):
            forget(connection, name)
