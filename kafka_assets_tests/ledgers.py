"""Crafted ledgers and chunks: what the tests of the one transaction are made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from kafka_assets.ledger import planning
from kafka_assets.ledger.claims import Claim, claim
from kafka_assets.ledger.engine import read
from kafka_assets.ledger.publications import find
from kafka_assets.plan import NewSlice, Offsets
from kafka_assets.records import OFFSET, PARTITION, BadRecord, Chunk, Refused, Seen
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.publish import Published, Work, publish
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.steps import Steps
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey

ASSET = "orders"
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), (PARTITION, pa.int32()), (OFFSET, pa.int64())])


def plan(
    engine: Engine,
    *,
    slices: Sequence[tuple[int, int]],
    partition: int = 0,
    topic_id: str = "id-1",
    end: int | None = None,
) -> list[SliceKey]:
    """Observe a topic and plan these slices of one of its partitions."""
    source = planning.resolve_source(engine, stream=ASSET, topic="orders", topic_id=topic_id)
    last = slices[-1][1] if end is None else end
    progress = planning.observe(
        engine, source, offsets={partition: Offsets(0, last, last)}, origins={partition: slices[0][0]}, asset=ASSET
    )
    planned = planning.commit_plan(
        engine,
        source,
        partition,
        expected=progress[partition].planned_through,
        slices=[NewSlice(*one) for one in slices],
        asset=ASSET,
    )
    assert planned is not None
    return planned


def chunk_of(
    key: SliceKey,
    *,
    offsets: Iterable[int] | None = None,
    note: str = "a",
    bad: Iterable[int] = (),
    read_count: int | None = None,
    reason: str = "no good",
) -> Chunk:
    """A chunk in which these offsets of a slice became rows, and those were bad."""
    rows = list(range(key.start, key.end)) if offsets is None else list(offsets)
    spoiled = list(bad)
    rows = [offset for offset in rows if offset not in spoiled]
    table = pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "note": pa.array([note] * len(rows), pa.string()),
            PARTITION: pa.array([key.partition] * len(rows), pa.int32()),
            OFFSET: pa.array(rows, pa.int64()),
        }
    )
    seen = Seen(read=len(rows) + len(spoiled) if read_count is None else read_count, bad=len(spoiled))
    return Chunk(
        rows=table,
        seen={key: seen},
        bad=tuple(BadRecord(key.partition, offset, reason, None, b"\xff", (), 1) for offset in spoiled),
    )


@dataclass
class Attempt:
    """A run's attempt at some slices, step by step."""

    engine: Engine
    keys: Sequence[SliceKey]
    run_id: str = "run-1"
    replaces: bool = False
    keeps: Collection[str] = ()
    force: bool = False
    claims: list[Claim] = field(default_factory=list[Claim])
    steps: Steps = field(default_factory=Steps)

    def claim(self, *, force: bool = False, lease_ms: int = 60_000) -> Attempt:
        found = find(self.engine, asset=ASSET, keys=self.keys)
        self.claims = claim(self.engine, list(found.values()), run_id=self.run_id, force=force, lease_ms=lease_ms)
        return self

    def publish(
        self,
        *chunks: Chunk,
        confirm: Callable[[Mapping[SliceKey, Seen]], None] = lambda seen: None,
        expired: Mapping[SliceKey, int] | None = None,
        policy: BadPolicy | None = None,
        between: Callable[[], None] = lambda: None,
        table: Table | None = None,
        read: Callable[[], Iterator[Chunk]] | None = None,
    ) -> list[Published]:
        """Publish these chunks, or what is read, or whole slices; `between` is called after each chunk."""
        given = chunks or tuple(chunk_of(key) for key in self.keys)

        def one_by_one() -> Iterator[Chunk]:
            for one in given:
                yield one
                between()

        return publish(
            self.engine,
            road_for(self.engine),
            Work(
                claims=self.claims,
                table=table or target(self.engine),
                chunks=read or one_by_one,
                confirm=confirm,
                expired=expired or {},
                bad_policy=policy or BadPolicy("quarantine", 0.01),
                run_id=self.run_id,
                code_version="v1",
                replaces=self.replaces,
                keeps=self.keeps,
                fetch=fetch,
                force=self.force,
                steps=self.steps,
            ),
        )


def fetch(refused: Sequence[Refused]) -> list[BadRecord]:
    """The records of crafted chunks, as Kafka would have them."""
    return [
        BadRecord(one.partition, one.offset, one.reason, b"k%d" % one.offset, b"v", (("h", b"\xff"),), one.offset)
        for one in refused
    ]


def target(engine: Engine) -> Table:
    return ensure_table(engine, road_for(engine), name="orders", asset=ASSET, schema=SCHEMA)


def rows_of(engine: Engine) -> list[tuple[int, int, str]]:
    """Partition, offset and note of every row."""
    listed = "select kafka_partition, kafka_offset, note from orders"
    return rows(engine, f"{listed} order by kafka_source, kafka_partition, kafka_offset")


def rows(engine: Engine, statement: str) -> list[tuple[Any, ...]]:
    if engine in _looks:
        return _looks[engine].rows(statement)
    with read(engine) as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


class _Look:
    """A connection on which a test looks at a ledger, one statement at a time; it holds nothing between them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._one_at_a_time = threading.Lock()

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self._one_at_a_time:
            for again in (True, False):
                try:
                    return [tuple(row) for row in self._opened().execute(text(statement))]
                except DBAPIError as error:
                    self.close()
                    if not (again and error.connection_invalidated):  # the server ends what is idle for long
                        raise
        raise AssertionError("one of the two returns or raises")

    def _opened(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            if self._engine.dialect.name == "postgresql":
                # What it had planned would be of another test's table of that name.
                raw: Any = self._connection.connection.dbapi_connection
                raw.prepare_threshold = None
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()  # a plain close would ask a server that may have ended it
            self._connection.close()
            self._connection = None


_looks: dict[Engine, _Look] = {}


@contextmanager
def looked_at(engine: Engine) -> Generator[Engine]:
    """In this block `rows` and all that asks by it keep a connection: a new one for each look costs more than looks."""
    look = _looks[engine] = _Look(engine)
    try:
        yield engine
    finally:
        del _looks[engine]
        look.close()


def scalar(engine: Engine, statement: str) -> object:
    [[value], *_] = rows(engine, statement) or [[None]]
    return value


def quoted(engine: Engine, name: str) -> str:
    return engine.dialect.identifier_preparer.quote_identifier(name)


def committed_through(engine: Engine, partition: int = 0) -> object:
    return scalar(
        engine,
        "select c.committed_through from kafka_committed c"
        f" where c.{quoted(engine, 'partition')} = {partition} order by c.source_id desc",
    )
