"""How a consumer takes part in a group: protocol, assignor, identity and times, valid once made."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from kafka_assets.broker.connection import Connection, consumer_config
from kafka_assets.errors import SettingsError, UsageError

LOGGER = logging.getLogger("kafka_assets.group")

GroupProtocol = Literal["classic", "consumer"]

ASSIGNORS = ("range", "roundrobin", "cooperative-sticky")
"""Of the classic protocol, which librdkafka runs in the group's leader."""
SERVER_ASSIGNORS = ("uniform", "range")
"""Of the new protocol (KIP-848), which the broker runs."""

_JAVA = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_FORBIDDEN = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy", "group.protocol.type")
"""What librdkafka refuses beside group.protocol=consumer: the broker decides these."""
_OWN = {
    "group.id": "group (`--group`)",
    "group.protocol": "protocol (`--group-protocol`)",
    "group.instance.id": "instance_id (`--instance-id`)",
    "group.remote.assignor": "assignor (`--assignor`)",
    "partition.assignment.strategy": "assignor (`--assignor`)",
}
"""What a membership says itself, and where: one set of properties is for many groups."""
_POLL, _SESSION = "max.poll.interval.ms", "session.timeout.ms"


@dataclass(frozen=True)
class Membership:
    """A group, and how this member takes part in it."""

    group: str
    assignor: str | None = None
    """Classic: range, roundrobin, or cooperative-sticky (the default). New: uniform, range, or the broker's choice."""
    protocol: GroupProtocol = "classic"
    instance_id: str | None = None
    """Static membership: who comes back under it within the session's timeout gets the same partitions."""
    max_poll_interval: float | None = None
    """Seconds between two calls of `consume`, and for a callback, after which the group takes the partitions away.

    None: the connection's max.poll.interval.ms, or 300. `poll_interval` says what counts.
    """
    session_timeout: float | None = None
    """Seconds of silence after which a member counts as dead. Classic only; the broker has it in the new protocol."""

    def __post_init__(self) -> None:
        if not self.group:
            raise UsageError("a group needs a name", cure="say which group to join")
        if self.protocol not in {"classic", "consumer"}:
            raise UsageError(
                f"there is no group protocol {self.protocol!r}",
                cure="take classic, or consumer (KIP-848, brokers from 4.0 on)",
            )
        if self.assignor is not None:
            _check_assignor(self.assignor, self.protocol)
        if self.protocol == "consumer" and self.session_timeout is not None:
            raise UsageError(
                "the new group protocol has no session timeout of a member's own",
                why="with group.protocol=consumer the broker's group.consumer.session.timeout.ms counts",
                cure="leave it out, or alter the group's consumer.session.timeout.ms on the broker",
            )

    @property
    def cooperative(self) -> bool:
        """Whether a rebalance takes and gives single partitions, or takes all of them and gives anew."""
        return self.protocol == "consumer" or self.assignor in {None, "cooperative-sticky"}

    def config(self, connection: Connection) -> dict[str, str]:
        """librdkafka's properties of such a member; it commits nothing by itself, and starts nowhere by itself."""
        given = {name: value for name, value in consumer_config(connection).items() if name not in _OWN}
        given.setdefault("topic.metadata.refresh.interval.ms", "10000")  # 5 minutes until partitions are met, else
        given[_POLL] = str(round(self.poll_interval(connection) * 1000))
        config = self._taking_part(given)
        _say_what_is_dropped(connection.properties, config)
        return config

    def poll_interval(self, connection: Connection) -> float:
        """Seconds that a member may take between two polls: its own, or the connection's, or librdkafka's."""
        if self.max_poll_interval is not None:
            return self.max_poll_interval
        return _milliseconds(_POLL, connection.properties.get(_POLL, "300000")) / 1000

    def _taking_part(self, given: dict[str, str]) -> dict[str, str]:
        ours = {"group.id": self.group, "group.protocol": self.protocol}
        if self.instance_id:
            ours["group.instance.id"] = self.instance_id
        if self.protocol == "consumer":
            _leave_out(given)
            if self.assignor:
                ours["group.remote.assignor"] = self.assignor
            return {**given, **ours}
        ours["partition.assignment.strategy"] = self.assignor or "cooperative-sticky"
        if self.session_timeout is not None:
            ours[_SESSION] = str(round(self.session_timeout * 1000))
        session = _milliseconds(_SESSION, {**given, **ours}.get(_SESSION, "45000"))
        # librdkafka refuses a session that is longer than what a member may take between two polls.
        ours[_SESSION] = str(min(session, int(given[_POLL])))
        return {**given, **ours}


def _milliseconds(name: str, text: str) -> int:
    if not text.isdecimal():
        raise SettingsError(
            f"the Kafka property {name} is {text!r}", why="it is a number of milliseconds", cure="correct it"
        )
    return int(text)


def _say_what_is_dropped(properties: Mapping[str, str], config: Mapping[str, str]) -> None:
    for name, said_by in _OWN.items():
        if name in properties and properties[name] != config.get(name):
            LOGGER.warning(
                "the Kafka property %s = %s does not count for the group %s: %s says it",
                name, properties[name], config["group.id"], said_by,
            )  # fmt: skip


def _leave_out(given: dict[str, str]) -> None:
    for name in _FORBIDDEN:
        if name in given:
            LOGGER.warning(
                "the Kafka property %s is left out: with the new group protocol (KIP-848) the broker decides it", name
            )
            del given[name]


def _check_assignor(name: str, protocol: str) -> None:
    if protocol == "consumer":
        if name not in SERVER_ASSIGNORS:
            raise UsageError(
                f"there is no assignor {name!r} in the new group protocol",
                why="the broker assigns there, and it has " + " and ".join(SERVER_ASSIGNORS),
                cure="take one of these, or none for the broker's own choice; or the classic protocol for "
                + ", ".join(ASSIGNORS),
            )
        return
    if name in ASSIGNORS:
        return
    known = cast("Mapping[str, str]", _JAVA).get(name.rpartition(".")[2])
    raise UsageError(
        f"there is no assignor {name!r} here",
        why=f"librdkafka calls it {known!r}"
        if known
        else "librdkafka has "
        + ", ".join(ASSIGNORS)
        + "; of Java's, StickyAssignor (sticky) and assignors of your own class have no equivalent",
        cure=f"take {known}"
        if known
        else "take one of these: cooperative-sticky keeps assignments as sticky does, "
        "and stops only the partitions that move; all members of a group must agree",
    )
