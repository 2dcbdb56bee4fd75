"""What the broker shows of a stream, met by the ledger: a source for each topic, and where new partitions begin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from sqlalchemy import Engine

from kafka_assets.errors import StreamError
from kafka_assets.ledger.sources import Source, make_sources
from kafka_assets.plan import Offsets
from kafka_assets.streams import Stream


def meet_topics(
    engine: Engine,
    stream: Stream,
    ids: Mapping[str, str],
    *,
    known: Sequence[Source],
    attempt: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Source]:
    """The source of each topic by its id; `known` are the stream's, and `attempt` holds what each step may raise.

    What is met for the first time is written together: those of a stream's first look are known by that later.
    """
    by_id = {(one.topic, one.topic_id): one for one in known}
    there = {topic: by_id[key] for topic, topic_id in ids.items() if (key := (topic, topic_id)) in by_id}
    new = {topic: topic_id for topic, topic_id in ids.items() if topic not in there}
    met = {one.topic for one in known}
    again = [topic for topic in new if topic in met]
    first = {topic: topic_id for topic, topic_id in new.items() if topic not in met}
    # A topic that was created again waits for whoever lands its predecessor: the others need not.
    for some in (first, *({topic: new[topic]} for topic in again)):
        if some:
            with attempt():
                there |= make_sources(engine, stream=stream.name, topics=some)
    return there


def origins(
    stream: Stream,
    source: Source,
    fresh: Sequence[int],
    *,
    known: Collection[int],
    offsets: Mapping[int, Offsets],
    at: Callable[[str, int], Mapping[int, int]],
) -> dict[int, int]:
    """Where new partitions begin: `start` counts only where the ledger knows nothing of the stream yet.

    A partition that was added later, and a topic that was created again, begin at 0: whatever their
    first offset is by then, what lies below it expired and is an error or recorded, never a jump. A
    topic that a pattern matches later begins at what Kafka has of it: it may be older than the pattern.
    `at` asks the broker where a topic stood at a time, in ms.
    """
    if known or source.incarnation > 1:
        return dict.fromkeys(fresh, 0)
    start = stream.start
    if start == "none":
        raise StreamError(
            f"the ledger knows nothing of topic {source.topic!r} of stream {stream.name!r}, which declares start: none",
            why="none means: go on from what the ledger knows, and never guess",
            cure="declare start: earliest, latest or a timestamp",
        )
    if start == "earliest" or (stream.topics is not None and not source.founding):
        return {number: offsets[number].log_start for number in fresh}
    if start == "latest":
        return {number: offsets[number].last_stable for number in fresh}
    found = at(source.topic, int(start.timestamp() * 1000))
    return {number: min(found[number], offsets[number].last_stable) for number in fresh}
