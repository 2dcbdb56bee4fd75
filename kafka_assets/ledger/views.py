"""The ledger's views: what an operator asks, answered by one SELECT, in the same words in every database.

Columns are always named with their table: after a dot even MySQL takes `partition` for a name.
Names in "double quotes" are reserved words there, and get its own quotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Integer, String, TableClause, column
from sqlalchemy import table as clause
from sqlalchemy.types import TypeEngine

from kafka_assets.ledger.constructs import Timestamp


@dataclass(frozen=True)
class View:
    """A view: what it shows, what it is made of, and its columns for statements."""

    name: str
    comment: str
    query: str
    table: TableClause


def _view(name: str, comment: str, query: str, **columns: type[TypeEngine[Any]] | TypeEngine[Any]) -> View:
    table = clause(name, *(column(column_name, kind) for column_name, kind in columns.items()))
    return View(name=name, comment=comment, query=query.strip(), table=table)


committed_offset = _view(
    "kafka_committed_offset",
    "The classic offset table: the next offset of each consumer group, which is the asset; retired topics left out",
    """
SELECT r.topic AS topic,
       c.asset AS consumer_group,
       c.partition AS topic_partition,
       c.committed_through AS next_offset,
       c.updated_at AS updated_at
FROM kafka_committed c
JOIN kafka_source r ON r.id = c.source_id
WHERE r.retired_at IS NULL
""",
    topic=String, consumer_group=String, topic_partition=Integer, next_offset=BigInteger, updated_at=Timestamp,
)  # fmt: skip

lag = _view(
    "kafka_lag",
    "Offsets that wait: lag can be read and is not committed, hanging is held by a producer's open transaction",
    """
SELECT c.asset AS asset,
       r.stream AS stream,
       r.topic AS topic,
       c.partition AS topic_partition,
       c.committed_through AS committed_through,
       p.planned_through AS planned_through,
       p.last_stable AS last_stable,
       p.high_watermark AS high_watermark,
       CASE WHEN p.last_stable > c.committed_through THEN p.last_stable - c.committed_through ELSE 0 END AS "lag",
       CASE WHEN p.high_watermark > p.last_stable THEN p.high_watermark - p.last_stable ELSE 0 END AS hanging,
       p.observed_at AS observed_at
FROM kafka_committed c
JOIN kafka_progress p ON p.source_id = c.source_id AND p.partition = c.partition
JOIN kafka_source r ON r.id = c.source_id
WHERE r.retired_at IS NULL
""",
    asset=String, stream=String, topic=String, topic_partition=Integer, committed_through=BigInteger,
    planned_through=BigInteger, last_stable=BigInteger, high_watermark=BigInteger, lag=BigInteger, hanging=BigInteger,
    observed_at=Timestamp,
)  # fmt: skip

# Each slice is compared with the one before it, by LAG: a running MAX would take MariaDB and MySQL the square of
# history's length. So one slice inside another is told twice: as an overlap, and as a gap behind it.
gap = _view(
    "kafka_gap",
    "Empty when all is well: offsets that no slice covers, or two do, and committed_through where it is wrong",
    """
WITH chain AS (
    SELECT s.source_id AS source_id, s.partition AS part, s.start_offset AS start_offset, s.end_offset AS end_offset,
           LAG(s.end_offset) OVER (PARTITION BY s.source_id, s.partition ORDER BY s.start_offset) AS reached,
           p.origin AS origin
    FROM kafka_slice s
    JOIN kafka_progress p ON p.source_id = s.source_id AND p.partition = s.partition
),
plan AS (
    SELECT p.source_id AS source_id, p.partition AS part, p.origin AS origin, p.planned_through AS planned_through,
           COALESCE((SELECT MAX(s.end_offset) FROM kafka_slice s
                     WHERE s.source_id = p.source_id AND s.partition = p.partition), p.origin) AS reached
    FROM kafka_progress p
),
done AS (
    SELECT c.asset AS asset, c.source_id AS source_id, c.partition AS part, c.committed_through AS said,
           COALESCE((SELECT MIN(s.start_offset) FROM kafka_slice s
                     WHERE s.source_id = c.source_id AND s.partition = c.partition AND s.kind = 'normal'
                       AND NOT EXISTS (SELECT 1 FROM kafka_publication u
                                       WHERE u.slice_id = s.id AND u.asset = c.asset AND u.state = 'committed')),
                    p.planned_through) AS so
    FROM kafka_committed c
    JOIN kafka_progress p ON p.source_id = c.source_id AND p.partition = c.partition
),
published AS (
    SELECT DISTINCT u.asset AS asset, s.source_id AS source_id, s.partition AS part
    FROM kafka_publication u
    JOIN kafka_slice s ON s.id = u.slice_id
),
found AS (
    SELECT chain.source_id AS source_id, chain.part AS part, NULL AS asset,
           COALESCE(chain.reached, chain.origin) AS start_offset, chain.start_offset AS end_offset,
           'no slice covers these offsets' AS problem
    FROM chain WHERE chain.start_offset > COALESCE(chain.reached, chain.origin)
    UNION ALL
    SELECT chain.source_id, chain.part, NULL, chain.start_offset,
           CASE WHEN chain.end_offset < chain.reached THEN chain.end_offset ELSE chain.reached END,
           'two slices cover these offsets'
    FROM chain WHERE chain.start_offset < chain.reached
    UNION ALL
    SELECT chain.source_id, chain.part, NULL, chain.start_offset, chain.origin, 'a slice starts below the origin'
    FROM chain WHERE chain.reached IS NULL AND chain.start_offset < chain.origin
    UNION ALL
    SELECT plan.source_id, plan.part, NULL, plan.reached, plan.planned_through, 'no slice covers these offsets'
    FROM plan WHERE plan.reached < plan.planned_through
    UNION ALL
    SELECT plan.source_id, plan.part, NULL, plan.planned_through, plan.reached, 'a slice ends beyond planned_through'
    FROM plan WHERE plan.reached > plan.planned_through
    UNION ALL
    SELECT done.source_id, done.part, done.asset, done.so, done.said,
           'committed_through is beyond what is committed'
    FROM done WHERE done.said > done.so
    UNION ALL
    SELECT done.source_id, done.part, done.asset, done.said, done.so,
           'committed_through is behind what is committed'
    FROM done WHERE done.said < done.so
    UNION ALL
    SELECT plan.source_id, plan.part, published.asset, plan.origin, plan.planned_through,
           'committed_through is missing'
    FROM published
    JOIN plan ON plan.source_id = published.source_id AND plan.part = published.part
    WHERE NOT EXISTS (SELECT 1 FROM kafka_committed c
                      WHERE c.asset = published.asset AND c.source_id = published.source_id
                        AND c.partition = published.part)
)
SELECT r.stream AS stream, r.topic AS topic, r.incarnation AS incarnation, r.id AS kafka_source,
       found.part AS kafka_partition, found.asset AS asset, found.start_offset AS start_offset,
       found.end_offset AS end_offset, found.problem AS problem
FROM found
JOIN kafka_source r ON r.id = found.source_id
""",
    stream=String, topic=String, incarnation=Integer, kafka_source=BigInteger, kafka_partition=Integer, asset=String,
    start_offset=BigInteger, end_offset=BigInteger, problem=String,
)  # fmt: skip

lineage = _view(
    "kafka_lineage",
    "From a row to its slice, run and code: joined by kafka_source, kafka_partition, kafka_offset in [start, end)",
    """
SELECT u.asset AS asset,
       t.table_name AS table_name,
       r.stream AS stream,
       r.topic AS topic,
       r.incarnation AS incarnation,
       s.source_id AS kafka_source,
       s.partition AS kafka_partition,
       s.start_offset AS start_offset,
       s.end_offset AS end_offset,
       s.id AS slice_id,
       s.kind AS kind,
       u.state AS state,
       u.committed_attempt AS attempt,
       u.run_id AS run_id,
       u.code_version AS code_version,
       u.committed_at AS committed_at
FROM kafka_slice s
JOIN kafka_source r ON r.id = s.source_id
LEFT JOIN kafka_publication u ON u.slice_id = s.id
LEFT JOIN kafka_target t ON t.asset = u.asset
""",
    asset=String, table_name=String, stream=String, topic=String, incarnation=Integer, kafka_source=BigInteger,
    kafka_partition=Integer, start_offset=BigInteger, end_offset=BigInteger, slice_id=BigInteger, kind=String,
    state=String, attempt=Integer, run_id=String, code_version=String, committed_at=Timestamp,
)  # fmt: skip

VIEWS = (committed_offset, lag, gap, lineage)
