"""A slice's own rows in its target table."""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, TableClause, and_, delete, select

from kafka_assets.errors import CountsDisagree
from kafka_assets.ledger.constructs import target_clause
from kafka_assets.ledger.publications import Publication
from kafka_assets.records import OFFSET, ORDINAL, PARTITION, SOURCE
from kafka_assets.sinks.road import Table, quoted_table, road_for


def delete_rows(connection: Connection, target: Table, publication: Publication) -> None:
    """Replace begins here: without it no replay could ever commit, since the lineage key refuses doubles."""
    rows = target_clause(target.name, SOURCE, PARTITION, OFFSET, ORDINAL)
    mine = _mine(rows, publication)
    # Nobody else writes them while the publication is locked: this needs no lock, and a first attempt has none.
    if connection.execute(select(rows.c[OFFSET]).where(mine).limit(1)).first() is None:
        return
    if connection.dialect.name in {"mysql", "mariadb"}:
        _delete_by_key(connection, target, rows, mine, publication)
        return
    connection.execute(delete(rows).where(mine))
    if connection.execute(select(rows.c[OFFSET]).where(mine).limit(1)).first() is not None:
        raise left_alone(f"rows of slice {publication.key} are to be replaced in the table {target.name!r}, and stay")


def left_alone(said: str) -> CountsDisagree:
    """The error where a table does less than it was told; triggers of MySQL and MariaDB cannot."""
    return CountsDisagree(
        said,
        why="a trigger of the table leaves rows as they are without a word: RAISE(IGNORE), or RETURN NULL",
        cure="remove it, or let it raise an error; a row that it refuses to take in is quarantined then",
    )


def _mine(rows: TableClause, publication: Publication) -> ColumnElement[bool]:
    key = publication.key
    return and_(
        rows.c[SOURCE] == publication.source_id,
        rows.c[PARTITION] == key.partition,
        rows.c[OFFSET] >= key.start,
        rows.c[OFFSET] < key.end,
    )


def _delete_by_key(connection: Connection, target: Table, rows: Any, mine: Any, publication: Publication) -> None:
    """Row by row, by the whole key: a range also locks the row behind it, which a neighbour may be inserting.

    What tells the rows apart comes from a statement that locks nothing.
    A temporary table neither commits nor is seen by others.
    """
    key = (OFFSET, ORDINAL) if target.ordinal else (OFFSET,)
    there = quoted_table(road_for(connection.engine), target.name)
    wanted = select(*(rows.c[name] for name in key)).where(mine)
    # Without parameters a % is a %.
    run = partial(connection.exec_driver_sql, execution_options={"no_parameters": True})
    found = str(wanted.compile(connection, compile_kwargs={"literal_binds": True})).replace("%%", "%")
    gone, declared = "kafka_assets_replaced", ", ".join(f"{name} BIGINT" for name in key)
    run(f"CREATE TEMPORARY TABLE {gone} ({declared}, PRIMARY KEY ({', '.join(key)})) {found}")
    run(
        f"DELETE t FROM {gone} g STRAIGHT_JOIN {there} t FORCE INDEX (PRIMARY)"
        f" ON t.{SOURCE} = {publication.source_id} AND t.{PARTITION} = {publication.key.partition}"
        + "".join(f" AND t.{name} = g.{name}" for name in key)
    )
    run(f"DROP TEMPORARY TABLE {gone}")
