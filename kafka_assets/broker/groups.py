"""Consumer groups: who is in them, what they have committed, and how to set that back."""

# pyright: reportPrivateImportUsage=false
# confluent_kafka.admin is where these are documented to be; it only lacks an __all__.
from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from kafka_assets.broker.admin import TIMEOUT, Admin, admin, kafka_error, refused
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import BrokerRefused, BrokerUnavailable, GroupMissing, KafkaAssetsError

Where = tuple[str, int]

_SETTLING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_MISSING = {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID}
_IN_USE = {
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.GROUP_SUBSCRIBED_TO_TOPIC,
    KafkaError.REBALANCE_IN_PROGRESS,
}


@dataclass(frozen=True)
class ListedGroup:
    """A line of the list of groups.

    Of groups that are no consumer groups the client says only that they are there: `type` is UNTOLD for share groups
    (KIP-932) and those of the new protocol of Kafka Streams (KIP-1071), else what they call themselves, as `connect`.
    """

    group: str
    state: str
    type: str


UNTOLD = "share or streams"


@dataclass(frozen=True)
class ListedGroups:
    """Groups by name; `troubles` says of each broker that did not answer why: those that it keeps are not listed."""

    groups: list[ListedGroup]
    troubles: list[str]


@dataclass(frozen=True)
class Member:
    """A consumer in a group, and what it was given; several may have one client id, and each has its own member id."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[Where, ...]


@dataclass(frozen=True)
class Group:
    """A group as its coordinator has it; `offsets` are the next ones to read, as Kafka's own clients commit them."""

    group: str
    state: str
    members: tuple[Member, ...]
    offsets: Mapping[Where, int]

    @property
    def in_use(self) -> bool:
        return bool(self.members)


def list_groups(connection: Connection, *, timeout: float = TIMEOUT) -> ListedGroups:
    """Every group that the user may see, of each broker that answers: a group is known to one of them."""
    with admin(connection, timeout=timeout) as asking:
        future = asking.client.list_consumer_groups(request_timeout=asking.left())
        answer: Any = asking.answers({"groups": future})["groups"]
        if isinstance(answer, KafkaError):
            raise refused(connection, answer)
        found = listed(answer)
        try:
            others = _others(asking, {one.group for one in found.groups})
        except KafkaException as raised:
            error = kafka_error(raised)
            return ListedGroups(found.groups, [*found.troubles, f"{error.str()} ({error.name()})"])
    return ListedGroups(sorted([*found.groups, *others], key=lambda one: one.group), found.troubles)


def _others(asking: Admin, known: Collection[str]) -> list[ListedGroup]:
    """Groups that are no consumer groups: the call that tells types leaves them out, and the older one, which has
    them, tells the type only of those of the classic protocol."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # nothing else names them
        everything: Any = asking.client.list_groups(timeout=asking.left())
    return [
        ListedGroup(one.id, one.state.lower() if one.protocol_type else "unknown", one.protocol_type or UNTOLD)
        for one in everything
        if one.id not in known
    ]


def listed(answer: Any) -> ListedGroups:
    """What librdkafka gathered from all brokers."""
    groups = (ListedGroup(one.group_id, one.state.name.lower(), one.type.name.lower()) for one in answer.valid)
    errors = [kafka_error(one) if isinstance(one, KafkaException) else one for one in answer.errors]
    return ListedGroups(
        sorted(groups, key=lambda one: one.group), [f"{error.str()} ({error.name()})" for error in errors]
    )


def describe_group(connection: Connection, group: str, *, timeout: float = TIMEOUT) -> Group:
    """A group with its members and offsets; GroupMissing where it has neither and is not known."""
    with admin(connection, timeout=timeout) as asking:
        return _described(asking, group)


def set_offsets(
    connection: Connection, group: str, offsets: Mapping[Where, int], *, timeout: float = TIMEOUT
) -> dict[Where, int]:
    """Make these the group's next offsets; refused while it has members, which would overwrite them."""
    with admin(connection, timeout=timeout) as asking:
        with suppress(GroupMissing):  # it is made so
            refuse_members(_described(asking, group))
        places = [TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        answer = _ask(asking, group, asking.client.alter_consumer_group_offsets, wanted)
        for place in answer.topic_partitions:
            if place.error is not None:
                raise _group_error(connection, group, place.error)
        return {(place.topic, place.partition): place.offset for place in answer.topic_partitions}


def delete_group(connection: Connection, group: str, *, timeout: float = TIMEOUT) -> None:
    """Delete a group and what it has committed; refused while it has members."""
    with admin(connection, timeout=timeout) as asking:
        refuse_members(_described(asking, group))
        _ask(asking, group, asking.client.delete_consumer_groups, [group])


def refuse_members(found: Group) -> None:
    """A group that is in use is not set back: its members would overwrite that."""
    if found.in_use:
        raise BrokerRefused(
            f"the group {found.group!r} is in use",
            why=f"{len(found.members)} members are in it, of the clients "
            + ", ".join(sorted({member.client_id for member in found.members})),
            cure="stop its consumers, and try again",
        )


def _described(asking: Admin, group: str) -> Group:
    answer = _ask(asking, group, asking.client.describe_consumer_groups, [group])
    members = tuple(
        Member(
            member_id=str(one.member_id),
            client_id=str(one.client_id),
            host=str(one.host),
            partitions=tuple((place.topic, place.partition) for place in one.assignment.topic_partitions),
        )
        for one in answer.members
    )
    offsets = _offsets(asking, group)
    state = str(answer.state.name).lower()
    if state == "dead" and not members and not offsets:
        _refuse_another_kind(asking, group)
        raise _missing(asking.connection, group, "its coordinator knows neither members nor offsets of it")
    return Group(group, state, members, offsets)


def _refuse_another_kind(asking: Admin, group: str) -> None:
    try:
        kind = next((one.type for one in _others(asking, ()) if one.group == group), None)
    except KafkaException as raised:
        raise _group_error(asking.connection, group, kafka_error(raised)) from raised
    if kind is not None:
        raise BrokerRefused(
            f"{group!r} is no consumer group, but one of the kind {kind}",
            why="librdkafka names such groups, and knows neither their members nor what they have read"
            + (": not even whether it is a share group (KIP-932) or one of Kafka Streams" if kind == UNTOLD else ""),
            cure="ask Kafka's own kafka-share-groups.sh or kafka-streams-groups.sh, with --describe --group",
        )


def _offsets(asking: Admin, group: str) -> dict[Where, int]:
    answer = _ask(asking, group, asking.client.list_consumer_group_offsets, [ConsumerGroupTopicPartitions(group)])
    return {
        (place.topic, place.partition): place.offset
        for place in sorted(answer.topic_partitions, key=lambda place: (place.topic, place.partition))
        if place.offset >= 0
    }


def _ask(asking: Admin, group: str, call: Callable[..., Mapping[str, Future[Any]]], wanted: object) -> Any:
    """The coordinator's answer; asked again while there is none, as at a broker's first group ever."""
    while True:
        answer = asking.answers(call(wanted, request_timeout=asking.left()))[group]
        if not isinstance(answer, KafkaError):
            return answer
        if answer.code() not in _SETTLING or time.monotonic() > asking.deadline:
            raise _group_error(asking.connection, group, answer)
        time.sleep(0.1)


def _missing(connection: Connection, group: str, why: str) -> GroupMissing:
    return GroupMissing(
        f"the group {group!r} does not exist at {connection.bootstrap_servers}",
        why=why,
        cure="`kafka-assets groups list` names those that there are",
    )


def _group_error(connection: Connection, group: str, error: KafkaError) -> KafkaAssetsError:
    said = f"{error.str()} ({error.name()})"
    if error.code() in _MISSING:
        return _missing(connection, group, said)
    if error.code() in _IN_USE:
        return BrokerRefused(f"the group {group!r} is in use", why=said, cure="stop its consumers, and try again")
    if error.retriable() or error.code() in _SETTLING:
        return BrokerUnavailable(
            f"the broker at {connection.bootstrap_servers} has no answer for the group {group!r} now",
            why=said,
            cure="nothing, if it passes; otherwise look at the state of the cluster",
        )
    return BrokerRefused(
        f"the broker at {connection.bootstrap_servers} refused the group {group!r}",
        why=said,
        cure="check the user's rights on the group",
    )
