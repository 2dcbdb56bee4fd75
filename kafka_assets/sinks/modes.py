"""The two kinds of table: one that only grows, and one that holds the last row of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from kafka_assets.errors import CountsDisagree
from kafka_assets.ledger.publications import Publication
from kafka_assets.records import Chunk, Refused
from kafka_assets.sinks.accounting import Landed, landed_by_slice, places
from kafka_assets.sinks.halving import insert_halving
from kafka_assets.sinks.merge import Merge
from kafka_assets.sinks.merge_mysql import MySQLMerge
from kafka_assets.sinks.merge_postgresql import PostgreSQLMerge
from kafka_assets.sinks.road import Road, Table, slice_of
from kafka_assets.sinks.rows import delete_rows
from kafka_assets.sinks.versions import INCARNATION, PUBLICATION, completed, versioned
from kafka_assets.slices import SliceKey

Slices = Mapping[SliceKey, Publication]
_MERGES = {"postgresql": PostgreSQLMerge, "mysql": MySQLMerge, "mariadb": MySQLMerge}


class Mode(Protocol):
    """How a transaction's rows reach their table."""

    def replace(self, publication: Publication) -> None:
        """Take away what an earlier attempt committed, where the rows that come could not stand beside it."""
        ...

    def insert(self, chunk: Chunk, slices: Slices) -> Generator[Refused]:
        """Insert a chunk's rows, those of these slices, but for the records that the table refuses: yielded."""
        ...

    def settle(self, slices: Slices) -> Generator[Refused, None, dict[SliceKey, Landed]]:
        """After the last record, and after Kafka was asked again: what became of each slice's records.

        What the table refuses now it refuses under a lock that others wait for.
        """
        ...


def mode_of(connection: Connection, road: Road, table: Table) -> Mode:
    if table.upsert is not None:
        return Upserting(connection, road, table)
    return Whole(connection, road, table) if table.ordinal else Append(connection, road, table)


class Append:
    """Rows go where they belong at once: their lineage key keeps them apart."""

    def __init__(self, connection: Connection, road: Road, table: Table) -> None:
        self._connection, self._road, self._table = connection, road, table
        self._landed: Counter[SliceKey] = Counter()

    def replace(self, publication: Publication) -> None:
        delete_rows(self._connection, self._table, publication)

    def insert(self, chunk: Chunk, slices: Slices) -> Generator[Refused]:
        rows, counts = landed_by_slice(chunk, slices)
        self._landed.update(counts)
        for source_id in {slices[key].source_id for key in counts}:
            for one in insert_halving(self._connection, self._road, self._table, rows, source_id=source_id):
                self._landed[place_in(slices, one)] -= 1
                yield one

    def settle(self, slices: Slices) -> Generator[Refused, None, dict[SliceKey, Landed]]:
        yield from ()
        return {key: Landed(self._landed[key]) for key in slices}


class Whole(Append):
    """Rows of whole slices: which record went into which of them, nobody can tell.

    So the good records of a slice landed if any row came of them, and else were left out.
    """

    def __init__(self, connection: Connection, road: Road, table: Table) -> None:
        super().__init__(connection, road, table)
        self._good: Counter[SliceKey] = Counter()

    def insert(self, chunk: Chunk, slices: Slices) -> Generator[Refused]:
        """All rows or none: which record to quarantine for a row that the table refuses, nobody can tell either."""
        yield from ()
        rows, counts = landed_by_slice(chunk, slices)
        for source_id in {slices[key].source_id for key in counts}:
            self._road.insert(self._connection, self._table, rows, source_id=source_id)
        self._landed.update(counts)
        self._good.update({key: part.read - part.bad for key, part in chunk.seen.items()})

    def settle(self, slices: Slices) -> Generator[Refused, None, dict[SliceKey, Landed]]:
        yield from ()
        rows = self._landed
        return {key: Landed(self._good[key] if rows[key] else 0, rows=rows[key]) for key in slices}


class Upserting:
    """Rows and deletes go into a temporary table, and are merged at the end.

    A replay takes nothing away: the same version wins again, and a later one stays.
    """

    def __init__(self, connection: Connection, road: Road, table: Table) -> None:
        self._connection, self._road, self._table = connection, road, table
        self._merge: Merge | None = None
        self._waiting: Table | None = None
        self._given: Counter[SliceKey] = Counter()
        self._deletes = 0

    def replace(self, publication: Publication) -> None:
        """Nothing: see the class."""

    def insert(self, chunk: Chunk, slices: Slices) -> Generator[Refused]:
        yield from self._insert(chunk.rows, chunk, slices, deleted=False)
        if chunk.deletes is not None and chunk.deletes.num_rows:
            yield from self._insert(completed(chunk.deletes, chunk.rows.schema), chunk, slices, deleted=True)
        elif any(part.deleted for part in chunk.seen.values()):
            raise _missing(sum(part.deleted for part in chunk.seen.values()), 0)

    def settle(self, slices: Slices) -> Generator[Refused, None, dict[SliceKey, Landed]]:
        if self._merge is None:
            return dict.fromkeys(slices, Landed())
        self._merge.reduce()
        self._merge.lock()
        topics = {publication.source_id: key.topic for key, publication in slices.items()}
        won = yield from self._merge.settle(deletes=self._deletes > 0, topics=topics)
        landed: dict[SliceKey, Landed] = {}
        for key, publication in slices.items():
            rows, deletes = won.get((publication.id, False), 0), won.get((publication.id, True), 0)
            landed[key] = Landed(rows, superseded=self._given[key] - rows - deletes, tombstoned=deletes)
        return landed

    def _insert(self, rows: pa.Table, chunk: Chunk, slices: Slices, *, deleted: bool) -> Generator[Refused]:
        assert self._table.upsert is not None
        found = places(rows, chunk.seen)
        waiting = self._temporary(next(iter(slices.values())).asset)
        rows = versioned(rows, self._table.upsert, deleted=deleted)
        for source_id in {slices[key].source_id for key in found if key in slices}:
            publications = np.zeros(rows.num_rows, dtype=np.int64)
            incarnations = np.zeros(rows.num_rows, dtype=np.int32)
            for key, inside in found.items():
                if key not in slices or slices[key].source_id != source_id:
                    continue
                publications[inside] = slices[key].id
                incarnations[inside] = key.incarnation
                count = int(inside.sum())
                if deleted and count != chunk.seen[key].deleted:
                    raise _missing(chunk.seen[key].deleted, count)
                self._given[key] += count
                self._deletes += count if deleted else 0
            marked: Any = rows.append_column(PUBLICATION, cast("Any", pa.array(publications)))
            marked = marked.append_column(INCARNATION, pa.array(incarnations)).filter(pa.array(publications > 0))
            for one in insert_halving(self._connection, self._road, waiting, marked, source_id=source_id):
                self._given[place_in(slices, one)] -= 1
                yield one

    def _temporary(self, asset: str) -> Table:
        if self._merge is None or self._waiting is None:
            kind = _MERGES.get(self._connection.dialect.name, Merge)
            self._merge = kind(self._connection, self._road, self._table, asset=asset)
            self._waiting = self._merge.prepare()
        return self._waiting


def settled(
    connection: Connection, road: Road, table: Table, mode: Mode, slices: Slices
) -> Generator[Refused, None, dict[SliceKey, Landed]]:
    """What became of each slice's records; yields those that the table refuses now, or only COMMIT would."""
    landed = yield from mode.settle(slices)
    for topic in sorted({key.topic for key in slices}):
        mine = [(one.source_id, key) for key, one in slices.items() if key.topic == topic]
        yield from (replace(one, topic=topic) for one in road.overdue(connection, table, mine))
    return landed


def place_in(slices: Iterable[SliceKey], refused: Refused) -> SliceKey:
    """The slice of a refused record."""
    mine = tuple(key for key in slices if refused.topic in {"", key.topic})
    key = slice_of(mine, partition=refused.partition, offset=refused.offset)
    assert key is not None
    return key


def _missing(counted: int, given: int) -> CountsDisagree:
    return CountsDisagree(
        f"{counted} records delete their key, and {given} of them arrived",
        why="the source counted them in one read and fetched their keys in another",
        cure="run the slice again",
    )
