"""What librdkafka says to a member of a group, in this package's words."""

from __future__ import annotations

from confluent_kafka import KafkaError

from kafka_assets.broker.admin import topic_error
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.membership import Membership
from kafka_assets.errors import BrokerRefused, BrokerUnavailable, GroupRefused, KafkaAssetsError, OffsetsExpired


class NotThere(OffsetsExpired):
    """The offset that was asked for is below the log's start, or beyond its end."""

    def __init__(self, topic: str, partition: int, *, why: str, offset: int = -1) -> None:
        super().__init__(
            f"partition {partition} of the topic {topic!r} cannot be read on where it was",
            why=why,
            cure="begin between the log start and the end: `kafka-assets offsets` shows both, `kafka-assets lag` what"
            " is committed",
        )
        self.place = (topic, partition)
        self.offset = offset
        """What was asked for; -1 where librdkafka does not say."""


_EXPECTED = {
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What passes by itself: the client joins again, or tries again."""

_AGREE = {
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "the other members have another assignor, or another group protocol",
    KafkaError.UNSUPPORTED_ASSIGNOR: "the broker does not have this assignor",
    KafkaError.UNSUPPORTED_VERSION: "the broker does not know this group protocol",
    KafkaError.FENCED_INSTANCE_ID: "another member has joined under the same instance id",
    KafkaError.UNRELEASED_INSTANCE_ID: "another live member has the same instance id",
    KafkaError.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker allows",
    KafkaError.GROUP_ID_NOT_FOUND: "the group was deleted, or is one of the other protocol",
}


def _fatal(error: KafkaError) -> str | None:
    """A fatal error carries the one that led to it only in its words."""
    return next((why for code, why in _AGREE.items() if KafkaError(code).str() in error.str()), None)


def is_expected(error: KafkaError) -> bool:
    """Whether it is only worth a line in the log."""
    return not error.fatal() and error.code() in _EXPECTED


def member_error(
    connection: Connection,
    membership: Membership,
    error: KafkaError,
    *,
    topic: str | None = None,
    partition: int | None = None,
) -> KafkaAssetsError:
    """What it means; a topic's error where the message names one."""
    said = f"{error.str()} ({error.name()})"
    if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
        return NotThere(str(topic), -1 if partition is None else partition, why=said)
    if error.fatal() or error.code() == KafkaError._FATAL or error.code() in _AGREE:
        return GroupRefused(
            f"the group {membership.group!r} does not take this member any more",
            why=next((f"{why}: {said}" for why in [_AGREE.get(error.code()) or _fatal(error)] if why), said),
            cure="all members of a group need the same assignor and group protocol, and each an instance id of its"
            " own, if any; `kafka-assets groups describe` shows who is in it",
        )
    if topic:
        return topic_error(connection, topic, error)
    if error.retriable() or error.code() in _EXPECTED:
        return BrokerUnavailable(
            f"the group {membership.group!r} does not answer now",
            why=said,
            cure="nothing, if it passes; otherwise look at the state of the cluster",
        )
    return BrokerRefused(
        f"the broker at {connection.bootstrap_servers} refused the group {membership.group!r}",
        why=said,
        cure="check the user's rights on the group, and the settings",
    )
