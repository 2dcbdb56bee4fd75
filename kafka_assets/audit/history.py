"""A ledger with a history: so many slices that were landed long ago, made in bulk, and the little that is open.

What is open is the same whatever the history, so that two ledgers differ in history alone: what an operation takes
more on the longer one, it takes for reading history. Sources are as different as in use: partitions by the dozen or
alone, offsets of a thousand or of billions, a group that was declared late, a topic that was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    case,
    func,
    insert,
    literal,
    select,
    update,
)

from kafka_assets.ledger import planning
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import Timestamp, now_ts
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.sources import Source
from kafka_assets.plan import Offsets

LANDED, BUSY, RETIRED, LIVE = "orders", "clicks", "returns", "payments"
"""The streams; the first is landed by runs, and the last by a live consumer."""
DOWNSTREAM = "orders_daily"
"""An asset that shares the slices of the first."""
GIVEN_UP = 7
"""Of this partition of the first, a slice in the middle of its history was given up."""
LEFT_OUT, BAD = 19, 3
"""One slice in so many was skipped or lost, and one has a bad record: so many that the least history, too, has more of
them than anybody is shown."""
_MOST_PARTS = 50
"""History is inserted in parts of all partitions, so that their slices lie mixed, as planning mixes them."""

_numbers = Table(
    "bench_number", MetaData(), Column("n", BigInteger, primary_key=True, autoincrement=False), mysql_engine="InnoDB"
)


@dataclass(frozen=True)
class Topic:
    """One source of the history: its part of all slices, and how large its slices are."""

    stream: str
    partitions: int
    share: float
    size: int
    origin: int = 0
    incarnation: int = 1
    readers: tuple[str, ...] = ()
    """Assets that have committed it all, beside the stream's own."""

    @property
    def topic_id(self) -> str:
        return f"{self.stream}-{self.incarnation}"


TOPICS = (
    Topic(LANDED, 10, 0.45, 1_000, readers=(DOWNSTREAM,)),
    Topic(BUSY, 20, 0.25, 250_000, origin=5_000_000_000),
    Topic(RETIRED, 4, 0.05, 10),
    Topic(RETIRED, 4, 0.10, 10, incarnation=2),
    Topic(LIVE, 10, 0.15, 100),
)


@dataclass(frozen=True)
class History:
    """What was made: the source that is read now of each stream, and where each of its partitions ends."""

    sources: Mapping[str, Source]
    ends: Mapping[str, Mapping[int, int]]
    slices: int


def fill(engine: Engine, *, slices: int, say: Callable[[str], None] = lambda what: None) -> History:
    """Land so many slices in an empty ledger, without any record; `say` is told how far that is."""
    made = [(topic, _source(engine, topic)) for topic in TOPICS]
    lengths = {topic: max(1, round(slices * topic.share / topic.partitions)) for topic in TOPICS}
    _number(engine, max(lengths.values()))
    with write(engine) as connection:
        _end_all(connection, made, lengths)
    parts = max(2, min(_MOST_PARTS, slices // 2_000))
    for part in range(parts):
        say(f"history of {slices:,} slices: {part * 100 // parts} %")
        with write(engine) as connection:
            after, then = _last(connection), datetime.now(UTC) - timedelta(days=parts - part)
            for topic, source in made:
                bounds = [lengths[topic] * at // parts for at in (part, part + 1)]
                for partition in range(topic.partitions):
                    _slices(connection, topic, source, partition, bounds, then)
            _results(connection, after, made, then)
    with write(engine) as connection:
        _numbers.drop(connection)
        _give_up(connection, made[0], at=lengths[made[0][0]] // 2)
        _seen_once(connection, made[0])
        retired = [source.id for topic, source in made if (topic.stream, topic.incarnation) == (RETIRED, 1)]
        connection.execute(update(t.source).where(t.source.c.id.in_(retired)).values(retired_at=now_ts()))
    return History(
        sources={topic.stream: source for topic, source in made},
        ends={topic.stream: dict.fromkeys(range(topic.partitions), _end(topic, lengths)) for topic, _ in made},
        slices=sum(lengths[topic] * topic.partitions for topic in TOPICS),
    )


def _give_up(connection: Connection, stream: tuple[Topic, Source], *, at: int) -> None:
    """Leave a slice of long ago given up: all that was landed of its partition since lies above committed_through."""
    (topic, source), p, d = stream, t.publication.c, t.committed.c
    start = topic.origin + at * topic.size
    mine = select(t.slice_.c.id).where(
        t.slice_.c.source_id == source.id, t.slice_.c.partition == GIVEN_UP, t.slice_.c.start_offset == start
    )
    nothing = dict.fromkeys(("records_read", "landed", "quarantined"), 0)
    connection.execute(
        update(t.publication)
        .where(p.slice_id == mine.scalar_subquery(), p.asset == topic.stream)
        .values(state="failed", committed_attempt=None, committed_at=None, **nothing)
    )
    connection.execute(
        update(t.committed)
        .where(d.asset == topic.stream, d.source_id == source.id, d.partition == GIVEN_UP)
        .values(committed_through=start)
    )


def _seen_once(connection: Connection, stream: tuple[Topic, Source]) -> None:
    """Leave marks of planning at the beginning, as a burst does that was landed long ago."""
    topic, source = stream
    connection.execute(
        insert(t.published),
        [
            {"asset": asset, "source_id": source.id, "partition": place, "published_through": topic.origin + topic.size}
            for asset in (topic.stream, *topic.readers)
            for place in range(topic.partitions)
            if place != GIVEN_UP
        ],
    )


def _source(engine: Engine, topic: Topic) -> Source:
    """Met as a sensor meets it; the retirement of the topic before it finds nothing there yet."""
    source = planning.resolve_source(engine, stream=topic.stream, topic=topic.stream, topic_id=topic.topic_id)
    begin = dict.fromkeys(range(topic.partitions), topic.origin)
    at = dict.fromkeys(begin, Offsets(0, topic.origin, topic.origin))
    planning.observe(engine, source, offsets=at, origins=begin, asset=topic.stream)
    for reader in topic.readers:
        add_publications(engine, asset=reader, stream=topic.stream)
    return source


def _end(topic: Topic, lengths: Mapping[Topic, int]) -> int:
    return topic.origin + lengths[topic] * topic.size


def _end_all(connection: Connection, made: Sequence[tuple[Topic, Source]], lengths: Mapping[Topic, int]) -> None:
    """Where planning and committing have come, and what the broker last said."""
    for topic, source in made:
        end = _end(topic, lengths)
        connection.execute(
            update(t.progress)
            .where(t.progress.c.source_id == source.id)
            .values(planned_through=end, last_stable=end, high_watermark=end)
        )
        connection.execute(
            update(t.committed).where(t.committed.c.source_id == source.id).values(committed_through=end)
        )


def _number(engine: Engine, count: int) -> None:
    """The numbers below `count`, from which history is selected: no two databases can count in the same words."""
    with write(engine) as connection:
        _numbers.create(connection)
        connection.execute(insert(_numbers), [{"n": number} for number in range(1000)])
        low, high = _numbers.alias(), _numbers.alias()
        for thousand in range(1, -(-count // 1000)):
            if thousand < 1000:
                more = select(low.c.n + thousand * 1000).where(low.c.n < 1000)
                connection.execute(insert(_numbers).from_select(["n"], more))
        for million in range(1, -(-count // 1_000_000)):
            more = select(high.c.n + million * 1_000_000).where(high.c.n < 1_000_000)
            connection.execute(insert(_numbers).from_select(["n"], more))


def _last(connection: Connection) -> int:
    return connection.scalar(select(func.max(t.slice_.c.id))) or 0


def _slices(
    connection: Connection, topic: Topic, source: Source, partition: int, bounds: Sequence[int], then: datetime
) -> None:
    n = _numbers.c.n
    start = literal(topic.origin, BigInteger) + n * topic.size
    left_out = (n % LEFT_OUT == LEFT_OUT - 1) & literal(topic.stream != LIVE)
    values: dict[str, Any] = {
        "source_id": literal(source.id),
        "partition": literal(partition),
        "start_offset": start,
        "end_offset": start + topic.size,
        "prior_end": case((n > 0, start)),
        "is_first": case((n == 0, 1)),
        "kind": case((left_out & (partition % 2 == 0), "skipped"), (left_out, "lost"), else_="normal"),
        "reason": case((left_out, "by hand")),
        "created_at": literal(then, Timestamp()),
    }
    connection.execute(
        insert(t.slice_).from_select(
            list(values), select(*values.values()).where(n >= bounds[0], n < bounds[1]).order_by(n)
        )
    )


def _results(connection: Connection, after: int, made: Sequence[tuple[Topic, Source]], then: datetime) -> None:
    """Publications of the slices behind `after`, their claims, and some bad records: all of it committed."""
    s, p = t.slice_.c, t.publication.c
    for topic, source in made:
        for asset in (topic.stream, *topic.readers):
            bad = case((s.id % BAD == 0, 1), else_=0) if asset == topic.stream else literal(0)
            values: dict[str, Any] = {
                "slice_id": s.id,
                "start_offset": s.start_offset,
                "end_offset": s.end_offset,
                "asset": literal(asset),
                "state": literal("committed"),
                "committed_attempt": literal(1),
                "committed_at": literal(then, Timestamp()),
                "run_id": literal(f"run of {after}"),
                "records_read": literal(topic.size),
                "landed": literal(topic.size) - bad,
                "quarantined": bad,
                "rows_written": literal(0),
            }
            mine = select(*values.values()).where(s.id > after, s.source_id == source.id, s.kind == "normal")
            connection.execute(insert(t.publication).from_select(list(values), mine.order_by(s.id)))
        bad_ones: dict[str, Any] = {
            "asset": literal(topic.stream),
            "kafka_source": s.source_id,
            "kafka_partition": s.partition,
            "kafka_offset": s.start_offset,
            "slice_id": s.id,
            "reason": literal("id: does not fit BIGINT exactly"),
            "quarantined_at": literal(then, Timestamp()),
        }
        found = select(*bad_ones.values()).where(
            s.id > after, s.source_id == source.id, s.kind == "normal", s.id % BAD == 0
        )
        connection.execute(insert(t.quarantine).from_select(list(bad_ones), found))
    claims = select(p.id, literal(1)).where(p.id > _claimed(connection)).order_by(p.id)
    connection.execute(insert(t.claim).from_select(["publication_id", "attempt"], claims))


def _claimed(connection: Connection) -> int:
    return connection.scalar(select(func.max(t.claim.c.publication_id))) or 0
