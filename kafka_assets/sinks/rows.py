"""A slice's own rows in its target table."""

from __future__ import annotations

from sqlalchemy import Connection, column, delete, table

from kafka_assets.ledger.publications import Publication
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.sinks.road import Table


def delete_rows(connection: Connection, target: Table, publication: Publication) -> int:
    """Replace begins here: without it no replay could ever commit, since the lineage key refuses doubles."""
    rows = table(target.name, column(SOURCE), column(PARTITION), column(OFFSET))
    key = publication.key
    return connection.execute(
        delete(rows).where(
            rows.c[SOURCE] == publication.source_id,
            rows.c[PARTITION] == key.partition,
            rows.c[OFFSET] >= key.start,
            rows.c[OFFSET] < key.end,
        )
    ).rowcount
