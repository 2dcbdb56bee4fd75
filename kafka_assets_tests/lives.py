"""Live consumers without a broker: leases, batches and windows are real, the records crafted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.ledger import owning, planning
from kafka_assets.ledger.backends import backend_of
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.leases import Lease, Ready, extend, give_back, ready, take
from kafka_assets.ledger.sources import Source
from kafka_assets.ledger.windows import Author
from kafka_assets.plan import Offsets
from kafka_assets.records import Chunk
from kafka_assets.sinks import live as transaction
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.batch import Batch, Committed, WindowPolicy
from kafka_assets.sinks.live import LiveTable
from kafka_assets.sinks.road import Table
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import ASSET, chunk_of, fetch, rows, target

HOUR_MS = 3_600_000
LENIENT = BadPolicy("quarantine", 0.01)


def meet(
    engine: Engine, *, partitions: int = 1, end: int = 100, topic_id: str = "id-1", topic: str = "orders"
) -> Source:
    """A topic that begins at 0 and ends there, observed for the first time or again."""
    source = planning.resolve_source(engine, stream=ASSET, topic=topic, topic_id=topic_id)
    at = dict.fromkeys(range(partitions), Offsets(0, end, end))
    planning.observe(engine, source, offsets=at, origins=dict.fromkeys(at, 0), asset=ASSET)
    return source


class Live:
    """A live consumer of one source."""

    def __init__(
        self,
        engine: Engine,
        source: Source,
        name: str = "live-1",
        *,
        table: Table | None = None,
        policy: BadPolicy = LENIENT,
        window: WindowPolicy | None = None,
    ) -> None:
        self.engine, self.source, self.name = engine, source, name
        self.leases: list[Lease] = []
        self.table = LiveTable(
            engine,
            table or target(engine),
            by=Author(ASSET, name, "v1"),
            bad_policy=policy,
            window=window,
            lease_ms=HOUR_MS,
        )

    def take(self, *partitions: int, lease_ms: int = HOUR_MS) -> Live:
        """Take these partitions, or fail where one is refused."""
        wanted = [(self.source, partition) for partition in partitions or (0,)]
        taken = take(self.engine, wanted, owner=self.name, lease_ms=lease_ms)
        for error in taken.refused.values():
            raise error
        self.leases += taken.leases
        return self

    def key(self, start: int, end: int, partition: int = 0) -> SliceKey:
        return SliceKey(self.source.topic, self.source.incarnation, partition, start, end)

    def land(self, start: int, end: int, partition: int = 0, **crafted: Any) -> list[Committed]:
        """Commit [start, end) of a partition; `crafted` as for `chunk_of`."""
        return self.publish(chunk_of(self.key(start, end, partition), **crafted))

    def publish(self, *chunks: Chunk, confirm: Callable[[], None] = lambda: None) -> list[Committed]:
        return self.table.publish(self.leases, Batch(chunks, fetch=fetch, confirm=confirm))

    def ready(self, partition: int = 0) -> Ready:
        found = ready(self.engine, self.leases, asset=ASSET)
        return next(at for lease, at in found.items() if lease.partition == partition)

    def extend(self, *, lease_ms: int = HOUR_MS) -> list[Lease]:
        return extend(self.engine, self.leases, lease_ms=lease_ms)

    def give_back(self) -> None:
        give_back(self.engine, self.leases)
        self.leases = []
        self.table.close()


@contextmanager
def unlooked() -> Iterator[None]:
    """The plain look at where partitions stand says that all is well: only what is decided under a lock is left."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (owning, transaction):
            patch.setattr(module, "require_standing", _all_is_well)
        yield


def _all_is_well(connection: Any, moves: Any) -> set[str | None]:
    return {backend_of(connection)}


def windows(engine: Engine) -> list[tuple[Any, ...]]:
    """Each slice: partition, start, end, whether it is open, its publication's state and records."""
    return [
        (*row[:3], bool(row[3]), *row[4:])
        for row in rows(
            engine,
            "select s.partition, s.start_offset, s.end_offset, s.is_open, p.state, p.records_read from kafka_slice s"
            " left join kafka_publication p on p.slice_id = s.id order by s.source_id, s.partition, s.start_offset",
        )
    ]


def owners(engine: Engine) -> list[str | None]:
    """Who owns each partition."""
    return [row[0] for row in rows(engine, "select p.owner from kafka_progress p order by p.source_id, p.partition")]


def whole(engine: Engine) -> bool:
    """Whether the ledger's own question finds nothing."""
    return rows(engine, "select problem from kafka_gap") == []


def end_leases(engine: Engine) -> None:
    """Time goes by: the lease of every owner has ended."""
    with write(engine) as connection:
        connection.exec_driver_sql("update kafka_progress set owner_lease_until = 1 where owner is not null")


def landed(engine: Engine, partition: int = 0) -> Sequence[int]:
    """The offsets that rows in the table have."""
    found = rows(engine, f"select kafka_offset from orders where kafka_partition = {partition} order by kafka_offset")
    return [row[0] for row in found]
