"""Where a stream stands, by SQL alone: what is planned, committed, landed and quarantined in each partition."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine, Select, func, select, text

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import target_clause
from kafka_assets.ledger.engine import read
from kafka_assets.records import OFFSET, PARTITION, SOURCE


@dataclass(frozen=True)
class PartitionStanding:
    """One partition of a stream's current topic."""

    partition: int
    origin: int
    end: int
    """The last stable offset, as the ledger saw it last."""
    committed_through: int
    landed: int
    quarantined: int
    filtered: int
    holes: int
    busy_ms: int
    """Its share of the time in which its slices were being landed."""

    @property
    def lag(self) -> int:
        return self.end - self.committed_through

    @property
    def rows_per_second(self) -> int:
        return round(self.landed * 1000 / self.busy_ms) if self.busy_ms else 0


@dataclass(frozen=True)
class TableCount:
    """What a count of the table itself says, apart from the ledger's books."""

    rows: int
    distinct: int


def standing(engine: Engine, *, asset: str) -> list[PartitionStanding]:
    """Each partition of the asset's current sources; empty before the first tick."""
    p, s, g, d, src = t.publication.c, t.slice_.c, t.progress.c, t.committed.c, t.source.c
    # A run lands many slices in one go: each partition is charged with its share of the run's time.
    runs = (
        select(p.run_id, func.sum(p.records_read).label("records"))
        .where(p.asset == asset, p.state == "committed")
        .group_by(p.run_id)
        .subquery()
    )
    sums = (
        select(
            s.source_id,
            s.partition,
            *(
                func.coalesce(func.sum(column_), 0).label(column_.name)
                for column_ in (p.landed, p.quarantined, p.filtered, p.holes)
            ),
            func.sum(p.duration_ms * p.records_read / func.nullif(runs.c.records, 0)).label("duration_ms"),
        )
        .join_from(t.publication, t.slice_, p.slice_id == s.id)
        .join(runs, runs.c.run_id == p.run_id)
        .where(p.asset == asset, p.state == "committed")
        .group_by(s.source_id, s.partition)
        .subquery()
    )
    statement = (
        select(g.partition, g.origin, g.last_stable, d.committed_through, sums)
        .join_from(t.committed, t.progress, (d.source_id == g.source_id) & (d.partition == g.partition))
        .join(t.source, src.id == g.source_id)
        .outerjoin(sums, (sums.c.source_id == g.source_id) & (sums.c.partition == g.partition))
        .where(d.asset == asset, src.retired_at.is_(None))
        .order_by(g.partition)
    )
    with read(engine) as connection:
        rows = connection.execute(statement).all()
    return [
        PartitionStanding(
            partition=row[0],
            origin=row[1],
            end=row[2],
            committed_through=row[3],
            landed=row.landed or 0,
            quarantined=row.quarantined or 0,
            filtered=row.filtered or 0,
            holes=row.holes or 0,
            busy_ms=int(row.duration_ms or 0),
        )
        for row in rows
    ]


def count_table(engine: Engine, name: str, *, stream: str) -> TableCount:
    """Count the rows that an append table has of the stream's current topic, and its different records."""
    target = target_clause(name, SOURCE, PARTITION, OFFSET)
    current = target.c[SOURCE].in_(_current(stream))
    places = select(target.c[SOURCE], target.c[PARTITION], target.c[OFFSET]).where(current).distinct().subquery()
    with read(engine) as connection:
        rows = connection.scalar(select(func.count()).select_from(target).where(current)) or 0
        distinct = connection.scalar(select(func.count()).select_from(places)) or 0
    return TableCount(rows=rows, distinct=distinct)


def count_quarantined(engine: Engine, *, asset: str, stream: str) -> int:
    """Count the quarantined records that an asset has of the stream's current topic."""
    q = t.quarantine.c
    statement = select(func.count()).where(q.asset == asset, q.kafka_source.in_(_current(stream)))
    with read(engine) as connection:
        return connection.scalar(statement) or 0


def _current(stream: str) -> Select[tuple[int]]:
    """A topic that was deleted leaves its rows: they are of a source that is retired."""
    return select(t.source.c.id).where(t.source.c.stream == stream, t.source.c.retired_at.is_(None))


def gaps(engine: Engine) -> int:
    """How many rows kafka_gap has: none, when all is well."""
    with read(engine) as connection:
        return connection.scalar(text("select count(*) from kafka_gap")) or 0


def failures(engine: Engine, *, asset: str) -> list[str]:
    """Why slices of the asset are not committed, newest last."""
    statement = (
        select(t.claim.c.failure)
        .join(t.publication, t.claim.c.publication_id == t.publication.c.id)
        .where(t.publication.c.asset == asset, t.publication.c.state != "committed", t.claim.c.failure.is_not(None))
        .order_by(t.publication.c.id)
    )
    with read(engine) as connection:
        return [str(failure) for failure in connection.scalars(statement)]
