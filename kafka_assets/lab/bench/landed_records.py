"""What a load has landed: each record with its commit, out of the ledger and the tables; and whether all is there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import BigInteger, Engine, Row, case, column, func, select

from kafka_assets.lab.bench.load_figures import LandedSlice, TableCheck
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import Timestamp, target_clause
from kafka_assets.ledger.engine import read
from kafka_assets.records import OFFSET

ID = "id"
"""Of a stream's n-th record: n, from 0 on."""
PRODUCED_AT = "placed_at"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class LandedRecords:
    """Every record that is committed; each look reads those that came since the last.

    The streams land in tables of their own names, each out of one partition of one topic.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: set[int] = set()
        self.slices: list[LandedSlice] = []

    @property
    def records(self) -> int:
        return sum(len(one.produced) for one in self.slices)

    def look(self) -> list[LandedSlice]:
        """The slices that were committed since the last look."""
        p, s = t.publication.c, t.slice_.c
        committed = (
            select(p.id, p.asset, p.start_offset, p.end_offset, s.created_at, p.committed_at, p.run_id)
            .join(t.slice_, s.id == p.slice_id)
            .where(p.state == "committed")
            .order_by(p.asset, p.start_offset)
        )
        with read(self._engine) as connection:
            rows = [row for row in connection.execute(committed) if row.id not in self._known]
        by_asset: dict[str, list[Row[tuple[int, str, int, int, datetime, datetime, str]]]] = {}
        for row in rows:
            by_asset.setdefault(row.asset, []).append(row)
        new = [one for asset, mine in by_asset.items() for one in self._read(asset, mine)]
        self._known |= {row.id for row in rows}
        self.slices += new
        return new

    def _read(
        self, asset: str, rows: Sequence[Row[tuple[int, str, int, int, datetime, datetime, str]]]
    ) -> list[LandedSlice]:
        """The rows of these slices, by their offsets; when they were made, they say themselves."""
        offset, produced_at = column(OFFSET, BigInteger()), column(PRODUCED_AT, Timestamp())
        between = offset.between(rows[0].start_offset, max(row.end_offset for row in rows) - 1)
        statement = select(offset, produced_at).select_from(target_clause(asset)).where(between)
        produced: list[list[int]] = [[] for _ in rows]
        starts = [row.start_offset for row in rows]
        with read(self._engine) as connection:
            for at, made in connection.execute(statement):
                place = bisect_right(starts, at) - 1
                if at < rows[place].end_offset:  # else of a slice between them, that is not committed or known
                    produced[place].append(_ms(made))
        return [
            LandedSlice(asset, _ms(row.created_at), _ms(row.committed_at), row.run_id, made)
            for row, made in zip(rows, produced, strict=True)
        ]


def committed_records(engine: Engine) -> int:
    """How many offsets of all streams are committed without a gap before them; none of them begins after 0."""
    with read(engine) as connection:
        return int(connection.scalar(select(func.sum(t.committed.c.committed_through))) or 0)


def table_check(engine: Engine, name: str, *, produced: int) -> TableCheck:
    """What a stream's table has, beside the so many records that were produced for it."""
    number = column(ID, BigInteger())
    made = case((number.between(0, produced - 1), number))
    counted = select(func.count(), func.count(made.distinct())).select_from(target_clause(name))
    with read(engine) as connection:
        rows, distinct = connection.execute(counted).one()
    return TableCheck(produced, rows=rows, distinct=distinct)


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MS
