"""Each operation of a tick, a run, a live consumer, a check and a command, on a ledger with a history."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.resources import files

import pyarrow as pa
from sqlalchemy import Engine, NullPool, create_engine, make_url, text, update

from kafka_assets.audit.bench import Figure
from kafka_assets.audit.history import BUSY, DOWNSTREAM, LANDED, LIVE, RETIRED, TOPICS, History, Topic, fill
from kafka_assets.audit.rows_read import rows_read
from kafka_assets.audit.scratch import scratch_ledger
from kafka_assets.audit.streams import lags, stream_standing
from kafka_assets.ledger import planning, told
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.behind import backlogs
from kafka_assets.ledger.claims import Claim, claim, extend, release
from kafka_assets.ledger.derived import add_publications
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.health import health
from kafka_assets.ledger.janitor import end_expired, end_live
from kafka_assets.ledger.last_committed import next_offsets
from kafka_assets.ledger.leases import Lease, ready, take
from kafka_assets.ledger.observing import Looked, observe_known
from kafka_assets.ledger.publications import Publication, find, results
from kafka_assets.ledger.quarantined import quarantine_reasons, quarantined
from kafka_assets.ledger.rendering import split
from kafka_assets.ledger.requests import (
    Due,
    asked_for,
    due,
    given_up,
    live_runs,
    new_token,
    rearm,
    store_request,
    waiting,
)
from kafka_assets.ledger.slice_list import Wanted, find_slices, list_slices
from kafka_assets.ledger.sources import known_partitions, known_sources, source_in
from kafka_assets.ledger.stalls import stall, stalls
from kafka_assets.ledger.standing import ends_of, remaining
from kafka_assets.ledger.waits import waits
from kafka_assets.ledger.windows import Author
from kafka_assets.plan import NewSlice, Offsets, SkipPolicy
from kafka_assets.records import OFFSET, PARTITION, Chunk, Seen
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.batch import Batch
from kafka_assets.sinks.live import LiveTable
from kafka_assets.sinks.publish import Work, publish
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream, declare

LITTLE = 10_000
"""The history that others are compared with, in slices."""
ROUNDS = 25
SHOWN = 20
"""So many slices or records are shown by a command."""
_BATCH = 10
"""So many slices, each of another partition, are landed by one run."""
_SCHEMA = pa.schema([("id", pa.int64()), (PARTITION, pa.int32()), (OFFSET, pa.int64())])
_POLICY = BadPolicy("quarantine", 0.01)
_SKIP = SkipPolicy(records=1_000_000, age=None, keep=1_000, every=timedelta(hours=1))
_WINDOW_MS = 3_600_000

Operation = Callable[[], object]


@dataclass
class Desk:
    """Whoever works on one ledger: a sensor, runs, a live consumer, a check and an operator, one call after the other.

    `operations` are to be called in their order, as often as wanted: what one plans the next one lands, so that as
    much is open after all of them as before.
    """

    engine: Engine
    history: History
    ends: dict[str, dict[int, int]]
    orders: Table
    live: LiveTable
    leases: Sequence[Lease] = ()
    due: Sequence[Due] = ()
    found: Sequence[Publication] = ()
    claims: Sequence[Claim] = ()
    streams: Mapping[str, Stream] = field(default_factory=dict[str, Stream])

    @property
    def operations(self) -> Mapping[str, Operation]:
        """By name, first what a tick does, then a run, a live consumer, the checks, and commands."""
        return {
            "tick: sources": self._sources,
            "tick: observe 10 partitions": self._observe,
            "tick: observe all that is known": self._observe_known,
            "tick: plan 10 slices": self._plan,
            "tick: publications that assets lack": self._lacking,
            "tick: what is due": self._due,
            "tick: what waits, and what was given up": self._standing,
            "tick: a request of 10 slices": self._request,
            "tick: what was left behind": self._left_behind,
            "tick: what Dagster is told": self._told,
            "tick: how far behind": self._backlog,
            "tick: a topic created again": self._created_again,
            "run: find 10 slices": self._find,
            "run: claim 10 slices": self._claim,
            "run: extend the leases": self._extend,
            "run: commit 10 slices": self._commit,
            "live: where to begin": self._ready,
            "live: commit a batch of 10 partitions": self._live_batch,
            "check: all of a stream": self._checks,
            "command: lag": self._lag,
            "command: streams": self._streams,
            **{f"command: slices{f' --state {state}' if state else ''}": self._slices(state) for state in _STATES},
            "command: replay by offsets": self._by_offsets,
            "command: replay by key": self._by_key,
            "command: run, what is left": self._remaining,
            "command: quarantine list": self._reasons,
            "command: quarantine show": self._quarantined,
            **{f"query: {name}": self._query(query) for name, query in _queries().items()},
            "library: next offsets": lambda: next_offsets(self.engine, group=LANDED),
        }

    def _sources(self) -> None:
        known = known_sources(self.engine, sorted(self.streams))
        known_partitions(self.engine, [one.id for some in known.values() for one in some])

    def _observe(self) -> None:
        ends = self.ends[LANDED]
        new = {partition: end + _topic(LANDED).size for partition, end in ends.items()}
        at = {partition: Offsets(0, end, end) for partition, end in new.items()}
        planning.observe(self.engine, self.history.sources[LANDED], offsets=at, origins={}, asset=LANDED)

    def _observe_known(self) -> None:
        looks: list[Looked] = []
        for name, ends in self.ends.items():
            # Of every second one there are new records.
            new = {partition: end + len(looks) % 2 for partition, end in ends.items()}
            at = {partition: Offsets(0, end, end) for partition, end in new.items()}
            looks.append(Looked(self.history.sources[name], name, at))
        observe_known(self.engine, looks)

    def _plan(self) -> None:
        self.plan(LANDED, count=1)

    def plan(self, stream: str, *, count: int) -> list[SliceKey]:
        """Plan so many slices in each partition of a stream."""
        size, planned = _topic(stream).size, list[SliceKey]()
        for partition, at in self.ends[stream].items():
            new = [NewSlice(at + number * size, at + (number + 1) * size) for number in range(count)]
            source = self.history.sources[stream]
            done = planning.commit_plan(self.engine, source, partition, expected=at, slices=new, asset=stream)
            assert done is not None, "nobody else plans in a scratch ledger"
            planned += done
            self.ends[stream][partition] = new[-1].end
        return planned

    def _lacking(self) -> None:
        add_publications(self.engine, asset=LANDED, stream=LANDED, gone=False)
        add_publications(self.engine, asset=DOWNSTREAM, stream=LANDED)

    def _due(self) -> None:
        self.due = due(self.engine, asset=LANDED, topics=[LANDED], limit=_BATCH)

    def _standing(self) -> None:
        assets = sorted(self.streams)
        waiting(self.engine, assets=assets)
        given_up(self.engine, assets=assets)
        stalls(self.engine, assets=assets)
        rearm(self.engine, asset=LANDED, code_version="bench", max_attempts=5)
        live_runs(self.engine, asset=LANDED)
        asked_for(self.engine, asset=LANDED)

    def _request(self) -> None:
        stored = store_request(self.engine, self.due, token=new_token())
        assert stored, "nobody else asks in a scratch ledger"

    def _left_behind(self) -> None:
        end_expired(self.engine, log=_log)
        end_live(self.engine, log=_log)

    def _told(self) -> None:
        assets = sorted(self.streams)
        with read(self.engine) as connection:
            _, head = told.moment(connection)
            told.unfinished(connection, assets=assets)
            told.between(connection, head - 500, head, assets=assets)
            told.between(connection, head // 2, head // 2 + 100, assets=assets)
            told.those(connection, [one.publication_id for one in self.due])

    def _backlog(self) -> None:
        ends = {partition: (end, end + 10_000_000) for partition, end in self.ends[LANDED].items()}
        source = self.history.sources[LANDED]
        backlogs(self.engine, asset=LANDED, source_id=source.id, ends=ends, policy=_SKIP, young_from={})

    def _created_again(self) -> None:
        with write(self.engine) as connection:
            source_in(connection, stream=RETIRED, topic=RETIRED, topic_id="another")
            connection.rollback()

    def _find(self) -> None:
        self.found = list(find(self.engine, asset=LANDED, keys=[one.key for one in self.due]).values())

    def _claim(self) -> None:
        self.claims = claim(self.engine, self.found, run_id="bench")

    def _extend(self) -> None:
        extend(self.engine, self.claims)

    def _commit(self) -> None:
        work = Work(
            claims=self.claims,
            table=self.orders,
            chunks=lambda: (_chunk(one.publication.key) for one in self.claims),
            confirm=lambda seen: None,
            expired={},
            bad_policy=_POLICY,
            run_id="bench",
            code_version="bench",
            replaces=False,
        )
        publish(self.engine, road_for(self.engine), work)
        release(self.engine, self.claims)
        results(self.engine, [one.id for one in self.found])

    def _ready(self) -> None:
        ready(self.engine, self.leases, asset=LIVE)

    def _live_batch(self) -> None:
        ends = self.ends[LIVE]
        source = self.history.sources[LIVE]
        keys = [SliceKey(source.topic, source.incarnation, part, end, end + 1) for part, end in ends.items()]
        self.live.publish(self.leases, Batch([_chunk(key) for key in keys]))
        for part in ends:
            ends[part] += 1

    def _checks(self) -> None:
        health(self.engine, asset=LANDED, target=self.orders.name, counted=True)

    def _lag(self) -> None:
        lags(self.engine, assets=sorted(self.streams))

    def _streams(self) -> None:
        stream_standing(self.engine, list(self.streams.values()))

    def _slices(self, state: str) -> Operation:
        return lambda: list_slices(self.engine, stream=LANDED, asset=LANDED, state=state or None, limit=SHOWN)

    def _by_offsets(self) -> None:
        start = _middle(self.history)
        wanted = Wanted(topic=LANDED, partition=3, start=start + 1, end=start + 2)
        list_slices(self.engine, stream=LANDED, asset=LANDED, wanted=wanted)

    def _by_key(self) -> None:
        find_slices(self.engine, stream=LANDED, asset=LANDED, keys=[one.key for one in self.due])

    def _remaining(self) -> None:
        remaining(self.engine, ends_of(self.engine, assets=sorted(self.streams)))
        waits(self.engine, asset=LANDED, limit=SHOWN)

    def _quarantined(self) -> None:
        quarantined(self.engine, asset=LANDED, limit=SHOWN)

    def _reasons(self) -> None:
        quarantine_reasons(self.engine, assets=[LANDED], limit=SHOWN)

    def _query(self, query: str) -> Operation:
        def ask() -> None:
            with read(self.engine) as connection:
                connection.exec_driver_sql(query.replace("%", "%%")).all()

        return ask


_log = logging.getLogger(__name__)
_STATES = ("", "planned", "committed", "failed", "lost", "open")


def _queries() -> dict[str, str]:
    """The operator's queries as they stand, by their first words; but for those that say that they read everything."""
    text = (files("kafka_assets") / "sql" / "queries.sql").read_text(encoding="utf-8")
    queries = [one.rpartition("\n\n")[2] for one in split(text)]  # the file's own comment stands above the first
    return {
        query.removeprefix("-- ").partition("\n")[0].partition("?")[0].partition(".")[0]: query
        for query in queries
        if "Reads all" not in query
    }


@contextmanager
def desk(engine: Engine, *, slices: int, say: Callable[[str], None] = lambda what: None) -> Generator[Desk]:
    """An empty ledger, filled with so many slices of history, and with what is open on any day."""
    history = fill(engine, slices=slices, say=say)
    road = road_for(engine)
    streams = {
        name: declare(name=name, topic=name, target=name, schema="id BIGINT") for name in sorted(history.sources)
    }
    live = LiveTable(
        engine,
        ensure_table(engine, road, name=LIVE, asset=LIVE, schema=_SCHEMA),
        by=Author(LIVE, run_id="bench", code_version="bench"),
        bad_policy=_POLICY,
        lease_ms=_WINDOW_MS,
    )
    orders = ensure_table(engine, road, name=LANDED, asset=LANDED, schema=_SCHEMA)
    with write(engine) as connection:
        # One row, in the middle of its slice, that the operator's queries ask for.
        connection.execute(
            text(f"INSERT INTO {LANDED} (kafka_source, kafka_partition, kafka_offset, id) VALUES (1, 3, 120000, 7)")
        )
    ends = {name: dict(mine) for name, mine in history.ends.items()}
    made = Desk(engine, history, ends, orders, live, streams=streams)
    stall(engine, asset=BUSY, failure="the table cannot be made", code_version="bench")
    for stream in (LANDED, BUSY, RETIRED):
        planned = made.plan(stream, count=2)
        _give_up(engine, planned[5], asset=stream)
    places = [(history.sources[LIVE], partition) for partition in history.ends[LIVE]]
    made.leases = take(engine, places, owner="bench", lease_ms=_WINDOW_MS).leases
    try:
        yield made
    finally:
        live.close()


def _give_up(engine: Engine, key: SliceKey, *, asset: str) -> None:
    [one] = find(engine, asset=asset, keys=[key]).values()
    with write(engine) as connection:
        connection.execute(update(t.publication).where(t.publication.c.id == one.id).values(state="failed"))


def _topic(stream: str) -> Topic:
    return next(one for one in reversed(TOPICS) if one.stream == stream)


def _middle(history: History) -> int:
    """An offset in the middle of a partition's history, where a slice begins."""
    size = _topic(LANDED).size
    return history.ends[LANDED][3] // size // 2 * size


def _chunk(key: SliceKey) -> Chunk:
    """One record, at the beginning of a slice."""
    row = {"id": key.start, PARTITION: key.partition, OFFSET: key.start}
    rows = pa.Table.from_pylist([row], schema=_SCHEMA)
    return Chunk(rows=rows, seen={key: Seen(read=1)})


def reads_of(one: Desk) -> dict[str, int]:
    """How many rows each operation reads, on connections of its own; on SQLite steps of its machine."""
    for operation in one.operations.values():  # what is met for the first time is met before
        operation()
    found: dict[str, int] = {}
    with rows_read(one.engine) as reads:
        for name, operation in one.operations.items():
            one.live.close()
            before = reads.count
            operation()
            one.live.close()
            found[name] = reads.count - before
    return found


def bench_ledger(
    url: str, *, slices: int, rounds: int = ROUNDS, say: Callable[[str], None] = lambda what: None
) -> list[Figure]:
    """What each operation takes, and how many rows it reads, with so much history beside what it does with little.

    Both ledgers are asked in turns, operation by operation, and not always the same one first: what the machine does
    beside this slows both. The first round warms up and is not counted; of the others the least is: what else the
    machine does only ever adds to it, and of a millisecond it may add the half. What is slow only now and then reads
    more rows. Rows are counted once as the history was loaded, and once when the server knows its statistics, as it
    does of a ledger that grew: the greater number counts.
    """
    with ExitStack() as stack:
        desks = {
            size: stack.enter_context(desk(stack.enter_context(scratch_ledger(url)), slices=size, say=say))
            for size in (LITTLE, slices)
        }
        reads: dict[int, dict[str, int]] = {}
        for size, one in desks.items():
            say(f"counting rows with {size:,} slices")
            loaded = reads_of(one)
            analyze(one.engine)
            known = reads_of(one)
            reads[size] = {name: max(loaded[name], known[name]) for name in loaded}
        took: dict[int, dict[str, list[float]]] = {size: {name: [] for name in reads[size]} for size in desks}
        for number in range(rounds + 1):
            say(f"round {number} of {rounds}" if number else "warming up")
            for name in reads[LITTLE]:
                for size in sorted(desks, reverse=number % 2 == 1):
                    operation = desks[size].operations[name]
                    began = time.perf_counter()
                    operation()
                    if number:
                        took[size][name].append(time.perf_counter() - began)
    unit = "steps" if make_url(url).get_backend_name() == "sqlite" else "rows"
    figures: list[Figure] = []
    for name in reads[LITTLE]:
        few, many = (min(took[size][name]) * 1000 for size in desks)
        figures += _pair(name, few, many, "ms", slices)
        figures += _pair(f"{name}, read", reads[LITTLE][name], reads[slices][name], unit, slices)
    return figures


def _pair(name: str, few: float, many: float, unit: str, slices: int) -> list[Figure]:
    against = f"{name}, {LITTLE} slices"
    ratio = round(many / few, 3) if few else None
    return [
        Figure(against, round(few, 2), unit),
        Figure(f"{name}, {slices} slices", round(many, 2), unit, against, ratio),
    ]


def analyze(engine: Engine) -> None:
    """Let a server gather its statistics; SQLite has none unless somebody asks for them, and nobody does."""
    if engine.dialect.name == "sqlite":
        return
    names = ", ".join(table.name for table in t.metadata.sorted_tables)
    asking = create_engine(engine.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with asking.connect() as connection:
        connection.exec_driver_sql(f"ANALYZE {'TABLE ' if engine.dialect.name != 'postgresql' else ''}{names}")
