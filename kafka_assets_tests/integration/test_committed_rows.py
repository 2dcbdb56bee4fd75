"""Committed rows read back on real servers: the suite that all databases share, and types that no stream delivers."""

from __future__ import annotations

import pyarrow as pa
from sqlalchemy import Engine

from kafka_assets.ledger.engine import write
from kafka_assets.records import OFFSET, PARTITION
from kafka_assets_tests.committed_rows_contract import CommittedRowsContract, all_of, landed


class TestCommittedRowsOnServers(CommittedRowsContract):
    """The engine is of each server."""

    def test_a_column_that_somebody_added_is_left_out_where_no_stream_could_deliver_it(self, engine: Engine) -> None:
        landed(engine, "value", pa.array([1, 2]), bad={})
        kind = "POINT" if engine.dialect.name == "postgresql" else "GEOMETRY"
        with write(engine) as connection:
            connection.exec_driver_sql(f"ALTER TABLE orders ADD COLUMN place {kind}")
        # Neither what lands beside it nor what reads it minds.
        landed(engine, "value", pa.array([3]), bad={}, partition=1)
        [found] = all_of(engine)
        assert sorted(found.column_names) == sorted(["id", "value", PARTITION, OFFSET])
