"""Members of a live group that join and are killed while records are produced; and what must stand in the end."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text

from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.read import read_range
from kafka_assets.ledger.engine import read
from kafka_assets.settings import Settings
from kafka_assets_tests.forked import Forked
from kafka_assets_tests.integration import live_member
from kafka_assets_tests.integration.groups import TIMES
from kafka_assets_tests.integration.living import Living

RECORDS = int(os.environ.get("KAFKA_ASSETS_TESTS_CAMPAIGN_LIVE_RECORDS", "1000000"))
SECONDS = float(os.environ.get("KAFKA_ASSETS_TESTS_CAMPAIGN_LIVE_SECONDS", "600"))
_PRODUCED_AT_ONCE = 2_000


@dataclass
class Chaos:
    """Members as processes; how often which of them was begun, killed and drained."""

    living: Living
    folder: Path
    limits: dict[str, float] = field(default_factory=lambda: {"records": 5_000, "delay": 0.1, "lease": 3.0})
    begun: int = 0
    killed: int = 0
    drained: int = 0

    def __post_init__(self) -> None:
        self.dead: set[int] = set()
        self.members: list[Forked] = []
        self.log = self.folder / "members.log"
        self._random = random.Random(7)

    def join(self) -> None:
        settings: Settings = self.living.settings
        self.members.append(
            live_member.begin(settings, self.living.stream, self.log, limits=self.limits, membership=TIMES)
        )
        self.begun += 1

    def kill(self) -> None:
        """SIGKILL one, whatever it is at."""
        gone = self.members.pop(self._random.randrange(len(self.members)))
        assert gone.poll() is None, self.said()
        gone.kill()
        gone.wait()
        self.dead.add(gone.pid)
        self.killed += 1

    def leave(self) -> None:
        """SIGTERM one, and see it end well."""
        gone = self.members.pop(self._random.randrange(len(self.members)))
        gone.send_signal(signal.SIGTERM)
        assert gone.wait(240) == 0, self.said()
        self.drained += 1

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-5_000:]

    @contextmanager
    def going(self, count: int) -> Iterator[None]:
        for _ in range(count):
            self.join()
        try:
            yield
            while self.members:
                self.leave()
        finally:
            for one in self.members:
                one.kill()
                one.wait()


@dataclass
class Producing:
    """Records over all partitions, from a thread, at least so many; `keys` recur, so that an upsert has work."""

    living: Living
    records: int
    partitions: int
    per_second: int
    keys: int | None = None
    sent: int = 0

    def __enter__(self) -> Producing:
        self._stop, self._enough, self._error = threading.Event(), threading.Event(), list[BaseException]()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        if self._error:
            raise self._error[0]

    def finish(self) -> None:
        """End with the records that were wanted, or with those that came while members were killed."""
        self._enough.set()
        self._thread.join()

    @property
    def done(self) -> bool:
        return (self.sent >= self.records and self._enough.is_set()) or bool(self._error)

    def _run(self) -> None:
        try:
            begun = time.monotonic()
            while not self.done and not self._stop.is_set():
                # A second's worth: in longer silences, whoever's turn it is would find nothing to land.
                some = range(self.sent, self.sent + min(_PRODUCED_AT_ONCE, self.per_second))
                produce(self.living.connection, self.living.stream.reads, (self._record(one) for one in some))
                self.sent = some.stop
                ahead = self.sent / self.per_second - (time.monotonic() - begun)
                self._stop.wait(max(0.0, ahead))
        except BaseException as error:  # noqa: BLE001 raised where the block ends
            self._error.append(error)

    def _record(self, number: int) -> Record:
        # A key keeps to its partition: an upsert by offset needs that.
        key = number if self.keys is None else number % self.keys
        return Record(value=value_of(key, f"n{number}"), partition=key % self.partitions)


def value_of(key: int, note: str) -> bytes:
    return b'{"id": %d, "note": "%s"}' % (key, note.encode())


def ends(living: Living) -> dict[int, int]:
    """Where Kafka says that the topic's partitions end."""
    found = observe(living.connection, [living.stream.reads])[living.stream.reads]
    assert isinstance(found, TopicOffsets)
    return {partition: at.last_stable for partition, at in found.partitions.items()}


def committed(living: Living) -> dict[int, int]:
    quote = living.engine.dialect.identifier_preparer.quote_identifier
    rows = living.rows(f"select {quote('partition')}, committed_through from kafka_committed")
    return {int(partition): int(through) for partition, through in rows}


def check(living: Living, *, dead: Collection[int] = ()) -> dict[str, int]:
    """The table against an independent read of Kafka, and the ledger against itself.

    `dead` are the processes that were killed: of a partition that nobody took after them the ledger names them still.
    """
    table = living.stream.target
    assert living.sql("select count(*) from kafka_gap") == 0
    assert committed(living) == ends(living)
    expected: dict[Any, Any] = {}
    read_records = 0
    for partition, end in ends(living).items():
        digest, offsets = hashlib.sha256(), 0
        for record in read_range(living.connection, living.stream.reads, partition, 0, end):
            assert record.value is not None
            if living.stream.mode == "upsert":
                key, _, note = record.value.partition(b', "note": ')
                expected[int(key.partition(b": ")[2])] = note[1:-2].decode()
            else:
                digest.update(b"%d:%s;" % (record.offset, record.value))
            offsets += 1
        expected.setdefault(("digest", partition), (offsets, digest.hexdigest()))
        read_records += offsets
    if living.stream.mode == "upsert":
        found: dict[Any, Any] = dict(living.rows(f"select id, note from {table}"))
        assert found == {key: note for key, note in expected.items() if isinstance(key, int)}
    else:
        assert _digests(living) == {part: of for (_, part), of in expected.items()}
    counts = living.rows(
        "select sum(records_read), sum(landed + superseded), sum(holes), sum(expired), sum(quarantined)"
        " from kafka_publication where state = 'committed'"
    )[0]
    assert [int(one) for one in counts] == [read_records, read_records, 0, 0, 0]
    owners = [str(owner) for (owner,) in living.rows("select owner from kafka_progress where owner is not null")]
    assert [owner for owner in owners if int(owner.split(":")[2]) not in dead] == []
    return {"records": read_records, "slices": int(living.sql("select count(*) from kafka_slice"))}


def _digests(living: Living) -> dict[int, tuple[int, str]]:
    found: dict[int, Any] = defaultdict(hashlib.sha256)
    offsets: dict[int, int] = dict.fromkeys(ends(living), 0)
    statement = (
        f"select kafka_partition, kafka_offset, id, note from {living.stream.target}"
        " order by kafka_partition, kafka_offset"
    )
    with read(living.engine) as connection:
        for partition, offset, key, note in connection.execution_options(stream_results=True).execute(text(statement)):
            found[partition].update(b"%d:%s;" % (offset, value_of(key, note)))
            offsets[partition] += 1
    return {partition: (count, found[partition].hexdigest()) for partition, count in offsets.items()}
