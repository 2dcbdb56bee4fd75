"""Rows that only the database refuses: found by halving what it refused, under savepoints.

What it takes stays; what it does not is rolled back to its savepoint and halved, until single rows are named
with the database's own words. Busy, deadlocked or gone is no refusal: that retries the whole transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, select
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from kafka_assets.errors import RowsRefused
from kafka_assets.ledger.constructs import target_clause
from kafka_assets.ledger.trouble import code_of, translate
from kafka_assets.records import OFFSET, PARTITION, SOURCE, Refused
from kafka_assets.sinks.road import Road, Table

_PIECE = "kafka_piece"
_REASON_CHARACTERS = 1000
_REFUSALS: frozenset[int | str | None] = frozenset(
    {
        # PostgreSQL: a key too long for its index, a view's check option, and RAISE or ASSERT in a trigger.
        *("54000", "44000", "P0001", "P0004", "45000"),
        # MySQL's and MariaDB's that the driver calls neither an IntegrityError nor a DataError: CHECKs, a column
        # without its value, JSON that is none, a value that does not parse or has a wrong encoding, SIGNAL.
        *(3819, 4025, 1364, 3140, 3141, 1264, 1292, 1300, 1366, 1411, 1644),
    }
)


def culprits(
    connection: Connection, count: int, take: Callable[[int, int], None]
) -> Generator[tuple[int, RowsRefused]]:
    """Have `take` take the rows [0, count), or all of them but those that the database refuses: these are yielded.

    In their order, so that of two rows which exclude each other the earlier one stays.
    """
    waiting = [(0, count)] if count else []
    while waiting:
        first, end = waiting.pop()
        refused = _refused(connection, lambda first=first, end=end: take(first, end))
        if refused is None:
            continue
        if end - first == 1:
            yield first, refused
        else:
            middle = (first + end) // 2
            waiting += [(middle, end), (first, middle)]


def insert_halving(
    connection: Connection, road: Road, into: Table, rows: pa.Table, *, source_id: int
) -> Generator[Refused]:
    """Insert rows, all but those that the database refuses; a record's second row fails the slice."""

    def take(first: int, end: int) -> None:
        road.insert(connection, into, rows.slice(first, end - first), source_id=source_id)

    looked = False
    for number, refused in culprits(connection, rows.num_rows, take):
        if not looked:
            refuse_doubles(rows, into)
            looked = True
        place = Refused(
            partition=rows.column(PARTITION)[number].as_py(),
            offset=rows.column(OFFSET)[number].as_py(),
            reason=refused.why,
        )
        if _stands(connection, into, source_id, place):
            raise _twice(into, place.partition, place.offset, refused.why)
        yield place


def refuse_doubles(rows: pa.Table, into: Table) -> None:
    """A record may become one row: whatever of its rows the table refuses, it is not the record's fault."""
    places = np.stack([np.asarray(rows.column(PARTITION), dtype=np.int64), np.asarray(rows.column(OFFSET))], axis=1)
    found, counts = np.unique(places, axis=0, return_counts=True)
    for partition, offset in found[counts > 1][:1]:
        raise _twice(into, int(partition), int(offset), "its lineage key would stand twice")


def refusal(error: RowsRefused | DBAPIError) -> RowsRefused | None:
    """The database's refusal of rows, in its own words; None for trouble that is not the rows'."""
    if isinstance(error, RowsRefused):
        return error
    if translate(error) is not None:
        return None
    if not isinstance(error, (IntegrityError, DataError)) and code_of(error) not in _REFUSALS:
        return None
    return RowsRefused("the table refuses rows", why=_said(error))


def _said(error: DBAPIError) -> str:
    """Without a NUL, which PostgreSQL could not keep as a reason, and without a message's worth of value."""
    return str(error.orig).strip().replace("\0", "\\0")[:_REASON_CHARACTERS]


def _refused(connection: Connection, take: Callable[[], None]) -> RowsRefused | None:
    connection.exec_driver_sql(f"SAVEPOINT {_PIECE}")
    refused = None
    try:
        take()
    except (RowsRefused, DBAPIError) as error:
        # After a deadlock the savepoint is gone, and what follows would be another transaction.
        refused = refusal(error)
        if refused is None:
            raise
        connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {_PIECE}")
    connection.exec_driver_sql(f"RELEASE SAVEPOINT {_PIECE}")
    return refused


def _stands(connection: Connection, into: Table, source_id: int, place: Refused) -> bool:
    """Whether a row of the same record is in the table already: replacing took away those of earlier attempts."""
    c = target_clause(into.name, SOURCE, PARTITION, OFFSET).c
    mine = (c[SOURCE] == source_id, c[PARTITION] == place.partition, c[OFFSET] == place.offset)
    return connection.execute(select(c[OFFSET]).where(*mine).limit(1)).first() is not None


def _twice(into: Table, partition: int, offset: int, why: str) -> RowsRefused:
    return RowsRefused(
        f"two rows of the record at offset {offset} of partition {partition} were refused by the table {into.name!r}",
        why=why,
        cure="a transform may give at most one row per record",
    )
