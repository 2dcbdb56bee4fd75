"""Landing a batch: decoded, and committed with its offsets in one transaction, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from sqlalchemy import Engine

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.topic_ids import TopicIds
from kafka_assets.decode.contract import Reason
from kafka_assets.errors import CountsDisagree
from kafka_assets.forms import ArrowForm
from kafka_assets.ledger.leases import Lease
from kafka_assets.ledger.windows import Author
from kafka_assets.live.batch import Batch as Gathered
from kafka_assets.live.decode import Decoder
from kafka_assets.live.gathering import Part
from kafka_assets.live.limits import Limits
from kafka_assets.reasons import kind_of
from kafka_assets.records import BadRecord, Refused
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.live import Batch, Committed, LiveTable, WindowPolicy
from kafka_assets.sinks.road import road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.streams import with_demands


class Landing:
    """One consumer's road into the stream's table. Of one thread."""

    def __init__(self, engine: Engine, connection: Connection, form: ArrowForm, *, owner: str, limits: Limits) -> None:
        stream = form.stream
        self._decoder = Decoder(stream, form.function)
        self._ids = TopicIds(connection)
        table = ensure_table(
            engine,
            road_for(engine),
            name=stream.target,
            asset=stream.asset,
            schema=with_demands(stream, self._decoder.schema),
            upsert=stream.upsert,
            evolve=stream.evolve == "add_columns",
        )
        self._table = LiveTable(
            engine,
            table,
            by=Author(stream.asset, run_id=owner, code_version=form.code_version),
            bad_policy=BadPolicy(stream.on_bad, stream.max_bad_ratio, quotes=stream.preview),
            window=WindowPolicy(limits.window, stream.slices.max_records),
            lease_ms=round(limits.lease * 1000),
        )

    def land(self, parts: Sequence[Part]) -> list[Committed]:
        """Commit these parts, all of them or nothing."""
        chunks = [
            self._decoder.chunk({part.key: part.batch for part in some})
            for _, some in groupby(sorted(parts, key=lambda part: part.place), key=lambda part: part.place[0])
        ]
        ids = {part.lease.source.topic: part.lease.source.topic_id for part in parts}
        batch = Batch(chunks, fetch=partial(_fetch, parts), confirm=partial(self._ids.require, ids))
        return self._table.publish([part.lease for part in parts], batch)

    def close_windows(self, leases: Sequence[Lease]) -> None:
        """Close those that are over and that no batch came for. Of any thread."""
        self._table.close_over(leases)

    def begin(self, batch: Gathered) -> None:
        """Decode ahead what was gathered of a batch. Of the thread that gathers."""
        self._decoder.begin(batch)

    def close(self) -> None:
        """Let go of the connection. Of the thread that landed."""
        self._table.close()


def _fetch(parts: Sequence[Part], refused: Sequence[Refused]) -> Sequence[BadRecord]:
    """The bytes of records that the table refuses: they are still here."""
    reasons = {(one.topic, one.partition, one.offset): one.reason for one in refused}
    found: list[BadRecord] = []
    for part in parts:
        for columns in part.batch.parts:
            for at, offset in enumerate(columns.offsets.tolist()):
                if (reason := reasons.pop((*part.place, offset), None)) is not None:
                    kind = kind_of(reason)
                    found.append(columns.bad(at, Reason(kind.code, reason, kind.field or "")))
    if reasons:
        raise CountsDisagree(
            f"{len(reasons)} rows were refused whose records are not in the batch",
            why="the function changed kafka_partition or kafka_offset",
            cure="let both columns through as they come",
        )
    return found
