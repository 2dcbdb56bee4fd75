"""A slice's own rows in its target table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, TableClause, and_, column, delete, select, table

from kafka_assets.ledger.publications import Publication
from kafka_assets.records import OFFSET, ORDINAL, PARTITION, SOURCE
from kafka_assets.sinks.road import Table


def delete_rows(connection: Connection, target: Table, publication: Publication) -> None:
    """Replace begins here: without it no replay could ever commit, since the lineage key refuses doubles."""
    rows = table(target.name, column(SOURCE), column(PARTITION), column(OFFSET), column(ORDINAL))
    mine = _mine(rows, publication)
    # Nobody else writes them while the publication is locked: this needs no lock, and a first attempt has none.
    if connection.execute(select(rows.c[OFFSET]).where(mine).limit(1)).first() is None:
        return
    if connection.dialect.name in {"mysql", "mariadb"}:
        _delete_by_key(connection, rows, mine, publication, key=(OFFSET, ORDINAL) if target.ordinal else (OFFSET,))
    else:
        connection.execute(delete(rows).where(mine))


def _mine(rows: TableClause, publication: Publication) -> ColumnElement[bool]:
    key = publication.key
    return and_(
        rows.c[SOURCE] == publication.source_id,
        rows.c[PARTITION] == key.partition,
        rows.c[OFFSET] >= key.start,
        rows.c[OFFSET] < key.end,
    )


def _delete_by_key(
    connection: Connection, rows: Any, mine: Any, publication: Publication, *, key: Sequence[str]
) -> None:
    """Row by row, by the whole key: a range also locks the row behind it, which a neighbour may be inserting.

    What tells the rows apart comes from a statement that locks nothing.
    A temporary table neither commits nor is seen by others.
    """
    quote = connection.dialect.identifier_preparer.quote_identifier
    wanted = select(*(rows.c[name] for name in key)).where(mine)
    found = wanted.compile(connection, compile_kwargs={"literal_binds": True})
    gone, declared = "kafka_assets_replaced", ", ".join(f"{name} BIGINT" for name in key)
    connection.exec_driver_sql(f"CREATE TEMPORARY TABLE {gone} ({declared}, PRIMARY KEY ({', '.join(key)})) {found}")
    connection.exec_driver_sql(
        f"DELETE t FROM {gone} g STRAIGHT_JOIN {quote(rows.name)} t FORCE INDEX (PRIMARY)"
        f" ON t.{SOURCE} = {publication.source_id} AND t.{PARTITION} = {publication.key.partition}"
        + "".join(f" AND t.{name} = g.{name}" for name in key)
    )
    connection.exec_driver_sql(f"DROP TEMPORARY TABLE {gone}")
