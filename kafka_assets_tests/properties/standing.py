"""The ledger and the table as they stand, and as the model says that they must."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, text

from kafka_assets.ledger.engine import read
from kafka_assets_tests.properties.append_model import Model, Slice


def compare(engine: Engine, model: Model) -> None:
    """Every row, every bad record, every slice with its result and its counts, all progress; and no gap."""
    with read(engine) as connection:

        def rows(statement: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in connection.execute(text(statement))]

        landed = rows(_ROWS)
        assert set(landed) == model.rows()
        assert len(landed) == len(model.rows())
        assert set(rows(_QUARANTINE)) == model.quarantined()
        assert rows(_SLICES) == [_expected(one) for one in model.slices()]
        assert rows(_PROGRESS) == _progress(model)
        assert rows("SELECT * FROM kafka_gap") == []


def _expected(one: Slice) -> tuple[Any, ...]:
    claim: tuple[Any, ...] = (one.state, one.attempt, one.failures_alone)
    counts: tuple[Any, ...] = (0, 0, 0, 0, 0, 0, 0, 0, None, None)
    if not one.published:
        claim, counts = (None, None, None), (None,) * 10
    elif one.result is not None:
        found = one.result.delivered
        holes = one.end - one.start - found.read - found.expired
        counts = (found.read, one.result.landed, one.result.superseded, one.result.tombstoned)
        counts += (len(found.filtered), len(found.bad), holes, found.expired, one.result.attempt, one.result.run)
    return (*one.key, one.end, one.kind, *claim, *counts)


def _progress(model: Model) -> list[tuple[Any, ...]]:
    return [
        (incarnation, number, part.planned_through, part.committed_through)
        for incarnation, partitions in enumerate(model.topics, 1)
        for number, part in sorted(partitions.items())
        if part.known
    ]


_ROWS = """
SELECT r.incarnation, o.kafka_partition, o.kafka_offset, o.note
FROM orders o JOIN kafka_source r ON r.id = o.kafka_source
"""
_QUARANTINE = """
SELECT r.incarnation, q.kafka_partition, q.kafka_offset
FROM kafka_quarantine q JOIN kafka_source r ON r.id = q.kafka_source
"""
_SLICES = """
SELECT r.incarnation, s.partition, s.start_offset, s.end_offset, s.kind, u.state, c.attempt, c.failures_alone,
       u.records_read, u.landed, u.superseded, u.tombstoned, u.filtered, u.quarantined, u.holes, u.expired,
       u.committed_attempt, u.run_id
FROM kafka_slice s
JOIN kafka_source r ON r.id = s.source_id
LEFT JOIN kafka_publication u ON u.slice_id = s.id
LEFT JOIN kafka_claim c ON c.publication_id = u.id
ORDER BY r.incarnation, s.partition, s.start_offset
"""
_PROGRESS = """
SELECT r.incarnation, p.partition, p.planned_through, c.committed_through
FROM kafka_progress p
JOIN kafka_source r ON r.id = p.source_id
LEFT JOIN kafka_committed c ON c.source_id = p.source_id AND c.partition = p.partition
ORDER BY r.incarnation, p.partition
"""
