"""Where topics begin and end: asked with their ids before and after, so that no offset is given to the wrong topic."""

# pyright: reportPrivateImportUsage=false
# confluent_kafka.admin is where these are documented to be; it only lacks an __all__.
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import IsolationLevel, KafkaError, Node, TopicCollection, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec, TopicDescription

from kafka_assets.broker.admin import TIMEOUT, Admin, admin, topic_error
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import BrokerRefused, BrokerUnavailable, KafkaAssetsError, TopicChanged

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"

Where = tuple[str, int]


@dataclass(frozen=True)
class PartitionOffsets:
    """``log_start <= last_stable <= high_watermark``; only what is below ``last_stable`` may be planned."""

    log_start: int
    last_stable: int
    high_watermark: int


@dataclass(frozen=True)
class TopicOffsets:
    """All partitions of one incarnation of a topic; the id changes when it is deleted and created again."""

    topic: str
    topic_id: str
    partitions: Mapping[int, PartitionOffsets]


Observation = TopicOffsets | KafkaAssetsError
"""A topic's offsets, or why there are none: one topic's trouble never hides the others."""


def observe(connection: Connection, topics: Sequence[str], *, timeout: float = TIMEOUT) -> Mapping[str, Observation]:
    """Ask for all topics at once. Raises only when the cluster as a whole does not answer or refuses.

    What it does NOT promise: one moment for all numbers. They are asked in the order log start, last
    stable, high watermark, so each partition's are in order, and each may have grown since.
    """
    if not topics:
        return {}
    with admin(connection, timeout=timeout) as asking:
        return _observed(asking, topics)


def observe_chosen(
    connection: Connection, choose: Callable[[Collection[str]], Sequence[str]], *, timeout: float = TIMEOUT
) -> Mapping[str, Observation]:
    """Observe the topics that `choose` names among all that the cluster shows to this user.

    What it does NOT promise: that a topic which is not listed is gone. A user without rights sees it as little.
    """
    with admin(connection, timeout=timeout) as asking:
        topics = choose(asking.metadata().topics.keys())
        return _observed(asking, topics) if topics else {}


def _observed(asking: Admin, topics: Sequence[str]) -> Mapping[str, Observation]:
    """Five calls, however many topics: librdkafka asks each broker once in each."""
    before = describe(asking, topics)
    offsets = _ask_all(asking, partitions_of(before))
    after = describe(asking, topics)
    return {
        topic: _observation(asking, topic, before=before[topic], after=after[topic], offsets=offsets)
        for topic in topics
    }


def offsets_of_led(asking: Admin, where: Sequence[Where]) -> dict[Where, PartitionOffsets]:
    """To look at, not to plan by: partitions that do not answer now are left out, and no id is compared."""
    kinds = _ask_all(asking, where)
    found: dict[Where, PartitionOffsets] = {}
    for place in where:
        said = [kind[place] for kind in kinds]
        known = [one.offset for one in said if not isinstance(one, KafkaError)]
        if len(known) == len(said):
            found[place] = PartitionOffsets(*known)
    return found


def offsets_at(connection: Connection, topic: str, timestamp_ms: int, *, timeout: float = TIMEOUT) -> Mapping[int, int]:
    """Per partition the first offset whose record is at or after the timestamp, or else the end."""
    with admin(connection, timeout=timeout) as asking:
        before = describe(asking, [topic])
        where = partitions_of(before)
        # The ends first: what is written between the two questions is then after "the end", never skipped.
        ends = ask(asking, where, OffsetSpec.latest())
        found = ask(asking, where, OffsetSpec.for_timestamp(timestamp_ms))
        after = describe(asking, [topic])
        _same_topic(asking, topic, before=before[topic], after=after[topic])
        begin: dict[int, int] = {}
        for place in where:
            offset = _offset(asking, place, found, absent=-1)
            begin[place[1]] = _offset(asking, place, ends) if offset < 0 else offset
        return begin


def describe(
    asking: Admin, topics: Iterable[str], *, leaderless: bool = False
) -> dict[str, TopicDescription | KafkaAssetsError]:
    """Each topic's id and partitions, or why not.

    A partition without a leader is an answer that is not there yet, unless `leaderless` takes it as it is.
    """
    futures = asking.client.describe_topics(TopicCollection(list(dict.fromkeys(topics))), request_timeout=asking.left())
    answers = asking.answers(cast("dict[str, Future[TopicDescription]]", futures))
    found = {topic: _described(asking, topic, answer) for topic, answer in answers.items()}
    return found if leaderless else {topic: _led(topic, answer) for topic, answer in found.items()}


def _described(asking: Admin, topic: str, answer: TopicDescription | KafkaError) -> TopicDescription | KafkaAssetsError:
    if isinstance(answer, KafkaError):
        return topic_error(asking.connection, topic, answer)
    if topic_id(answer) == NO_TOPIC_ID:
        return BrokerRefused(
            f"the broker at {asking.connection.bootstrap_servers} gives no id for the topic {topic!r}",
            why="without ids a topic that was deleted and created again looks like the old one",
            cure="use brokers of Kafka 3.0 or newer",
        )
    return answer


def _led(topic: str, answer: TopicDescription | KafkaAssetsError) -> TopicDescription | KafkaAssetsError:
    if isinstance(answer, KafkaAssetsError):
        return answer
    leaders = {part.id: cast("Node | None", part.leader) for part in answer.partitions}
    leaderless = [partition for partition, leader in leaders.items() if leader is None or leader.id < 0]
    if leaderless:
        return BrokerUnavailable(
            f"partitions {leaderless} of the topic {topic!r} have no leader now",
            why="their brokers are down, or an election is going on",
            cure="nothing, if it passes; otherwise bring the brokers of these partitions back",
        )
    return answer


def topic_id(description: TopicDescription) -> str:
    """The id as Kafka's own tools print it, in the URL's alphabet; librdkafka has the other one."""
    return str(description.topic_id).replace("+", "-").replace("/", "_")


def partitions_of(described: Mapping[str, TopicDescription | KafkaAssetsError]) -> list[Where]:
    return [
        (topic, part.id)
        for topic, description in described.items()
        if isinstance(description, TopicDescription)
        for part in description.partitions
    ]


def _ask_all(asking: Admin, where: Sequence[Where]) -> tuple[dict[Where, ListOffsetsResultInfo | KafkaError], ...]:
    """Log starts, last stable offsets and high watermarks, in this order."""
    return (
        ask(asking, where, OffsetSpec.earliest()),
        ask(asking, where, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
        ask(asking, where, OffsetSpec.latest()),
    )


def ask(
    asking: Admin,
    where: Sequence[Where],
    spec: Any,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[Where, ListOffsetsResultInfo | KafkaError]:
    """One call for all partitions of all topics."""
    if not where:
        return {}
    futures = asking.client.list_offsets(
        {TopicPartition(topic, partition): spec for topic, partition in where},
        isolation_level=isolation,
        request_timeout=asking.left(),
    )
    answers = asking.answers(cast("dict[TopicPartition, Future[ListOffsetsResultInfo]]", futures))
    return {(place.topic, place.partition): answer for place, answer in answers.items()}


def _observation(
    asking: Admin,
    topic: str,
    *,
    before: TopicDescription | KafkaAssetsError,
    after: TopicDescription | KafkaAssetsError,
    offsets: tuple[Mapping[Where, ListOffsetsResultInfo | KafkaError], ...],
) -> Observation:
    try:
        known = _same_topic(asking, topic, before=before, after=after)
        partitions: dict[int, PartitionOffsets] = {}
        for part in sorted(known.partitions, key=lambda part: part.id):
            found = PartitionOffsets(*(_offset(asking, (topic, part.id), kind) for kind in offsets))
            if not found.log_start <= found.last_stable <= found.high_watermark:
                raise _contradiction(topic, part.id, str(found))
            partitions[part.id] = found
        return TopicOffsets(topic, topic_id(known), partitions)
    except KafkaAssetsError as error:
        return error


def _same_topic(
    asking: Admin,
    topic: str,
    *,
    before: TopicDescription | KafkaAssetsError,
    after: TopicDescription | KafkaAssetsError,
) -> TopicDescription:
    """The description from before, whose partitions were asked for; added ones come with the next observation."""
    for description in (before, after):
        if isinstance(description, KafkaAssetsError):
            raise description
    known, again = cast(TopicDescription, before), cast(TopicDescription, after)
    if topic_id(known) != topic_id(again):
        raise TopicChanged(
            f"the topic {topic!r} was deleted and created again while it was being looked at",
            why=f"its id was {topic_id(known)}, and is now {topic_id(again)}",
            cure="nothing; the next look sees the new topic",
        )
    return known


def _offset(
    asking: Admin,
    place: Where,
    found: Mapping[Where, ListOffsetsResultInfo | KafkaError],
    *,
    absent: int | None = None,
) -> int:
    answer = found[place]
    if isinstance(answer, KafkaError):
        raise topic_error(asking.connection, place[0], answer)
    if answer.offset < 0 and answer.offset != absent:
        raise _contradiction(place[0], place[1], f"offset {answer.offset}")
    return answer.offset


def _contradiction(topic: str, partition: int, said: str) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"the offsets of partition {partition} of the topic {topic!r} contradict each other",
        why=f"the broker said {said}; this happens while its leader changes",
        cure="nothing, if it passes",
    )
