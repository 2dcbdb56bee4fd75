"""Ticks without a broker, and runs without Spark: ledger and Dagster's storage are real, the broker's words given."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.utils import make_new_run_id
from sqlalchemy import Engine, text

from kafka_assets.assets import dead_runs, planning, requesting
from kafka_assets.assets import tick as ticks
from kafka_assets.assets.run_tags import digest_of
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.offsets import Observation, PartitionOffsets, TopicOffsets
from kafka_assets.errors import KafkaAssetsError, TopicMissing
from kafka_assets.ledger import engine as doors
from kafka_assets.ledger.claims import release
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.publications import results
from kafka_assets.slices import SliceKey, digest
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.ledgers import ASSET, Attempt, rows

KEY = dg.AssetKey(ASSET)


@dataclass
class Broker:
    """What a broker would say, topic by topic; `asked` counts the conversations."""

    topics: dict[str, TopicOffsets | KafkaAssetsError] = field(default_factory=dict)
    down: KafkaAssetsError | None = None
    asked: int = 0
    before: Callable[[], object] = lambda: None
    """Called before each answer."""

    def set(self, topic: str, *ends: int, topic_id: str = "id-1", start: int = 0) -> None:
        """The topic's partitions end here."""
        parts = {number: PartitionOffsets(min(start, end), end, end) for number, end in enumerate(ends)}
        self.topics[topic] = TopicOffsets(topic, topic_id, parts)

    def observe(self, connection: Connection, topics: Sequence[str]) -> Mapping[str, Observation]:
        self.asked += 1
        self.before()
        if self.down is not None:
            raise self.down
        return {
            topic: self.topics.get(topic) or TopicMissing(f"the topic {topic!r} does not exist") for topic in topics
        }

    def observe_chosen(
        self, connection: Connection, choose: Callable[[Collection[str]], Sequence[str]]
    ) -> Mapping[str, Observation]:
        return self.observe(connection, choose(self.topics))


@dataclass
class Desk:
    """One sensor of the stream `orders`: its ledger, its Dagster, its cursor."""

    engine: Engine
    instance: dg.DagsterInstance
    broker: Broker
    stream: Stream
    others: list[Stream] = field(default_factory=list[Stream])
    cursor: str | None = None
    version: str = "v1"
    """The stream's code."""
    spark: Callable[[], object] | None = None
    """Whether any Spark is known, as a sensor asks."""

    def tick(self, *, here: bool = False, again: bool = False) -> ticks.Tick:
        """A tick that Dagster hears to its end, as its daemon does: events first, then the cursor."""
        found = self.evaluate(here=here, again=again)
        for event in found.events:
            self.instance.report_runless_asset_event(event)
        self.cursor = found.cursor
        return found

    def evaluate(self, *, here: bool = False, again: bool = False) -> ticks.Tick:
        """A tick of which Dagster hears nothing: killed after its last step."""
        return ticks.tick(
            [self.stream, *self.others],
            engine=self.engine,
            connection=Connection("nowhere:1"),
            instance=self.instance,
            log=logging.getLogger("test"),
            cursor=self.cursor,
            caller=ticks.Caller(here=here, again=again, versions={self.stream.name: self.version}, spark=self.spark),
        )

    def store(self, request: dg.RunRequest, status: dg.DagsterRunStatus) -> dg.DagsterRun:
        """What Dagster's storage has of the request: a run in this state, of which nothing more comes."""
        origin = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "assets"), "landing")
        return self.instance.add_run(
            dg.DagsterRun(
                job_name="landing",
                run_id=make_new_run_id(),
                tags=request.tags,
                status=status,
                remote_job_origin=origin,
            )
        )

    def hold_no_longer(self) -> None:
        """The time is over for which what was asked for, or failed, is left alone."""
        with write(self.engine) as connection:
            connection.execute(text("update kafka_claim set not_before = 0"))

    def later(self, monkeypatch: pytest.MonkeyPatch, *, minutes: int) -> None:
        """What Dagster did lies so long back."""
        then = datetime.now(UTC) + timedelta(minutes=minutes)
        for module in (requesting, dead_runs):
            monkeypatch.setattr(module, "now", lambda: then)

    def keys_of(self, request: dg.RunRequest) -> list[SliceKey]:
        """What a run over the request's range gets; none where it is not what was meant, since such a run refuses."""
        known = list(self.instance.get_dynamic_partitions(self.stream.partitions_name))
        first, last = (known.index(request.tags[f"dagster/asset_partition_range_{end}"]) for end in ("start", "end"))
        keys = known[first : last + 1]
        return [SliceKey.parse(key) for key in keys] if digest_of(request.tags) == digest(keys) else []

    def land(self, *requests: dg.RunRequest, tells: bool = True) -> list[SliceKey]:
        """Carry these runs out; without `tells` each dies between its COMMIT and its events."""
        landed: list[SliceKey] = []
        for request in requests:
            if keys := self.keys_of(request):
                landed += self.publish(keys, run_id=str(request.run_key), tells=tells)
        return landed

    def publish(
        self, keys: Sequence[SliceKey], *, run_id: str = "by hand", tells: bool = True, replaces: bool = False
    ) -> Sequence[SliceKey]:
        attempt = Attempt(self.engine, keys, run_id=run_id, replaces=replaces).claim()
        published = attempt.publish()
        release(self.engine, attempt.claims)
        if tells:
            self.tell(*(one.publication.id for one in published))
        return keys

    def tell(self, *publications: int) -> None:
        for row in results(self.engine, publications).values():
            [[topic, partition]] = rows(
                self.engine,
                "select r.topic, s.partition from kafka_slice s join kafka_source r on r.id = s.source_id"
                f" where s.id = {row.slice_id}",
            )
            key = str(SliceKey(topic, 1, partition, row.start_offset, row.end_offset))
            metadata: dict[str, Any] = {"attempt": row.committed_attempt}
            self.instance.report_runless_asset_event(
                dg.AssetMaterialization(asset_key=KEY, partition=key, metadata=metadata)
            )

    def settle(self, ticks: int = 50) -> list[ticks.Tick]:
        """Tick and land until there is nothing to do."""
        done: list[Any] = []
        for _ in range(ticks):
            done.append(self.tick())
            self.land(*done[-1].requests)
            if not done[-1].requests and not done[-1].events and not done[-1].planned:
                return done
        raise AssertionError("it never settles")

    @property
    def told(self) -> set[str]:
        return set(self.instance.get_materialized_partitions(KEY))

    @property
    def keys(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions(self.stream.partitions_name))


def orders(**attributes: Any) -> Stream:
    """The stream whose slices `kafka_assets_tests.ledgers` can land."""
    declared: dict[str, Any] = {
        "name": ASSET,
        "target": ASSET,
        "schema": "id BIGINT, note STRING",
        **({} if "topics" in attributes else {"topic": "orders"}),
        **attributes,
    }
    declared["slices"] = {"max_records": 10, "max_delay": "0ms", **attributes.get("slices", {})}
    return declare(**declared)


def answering(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker that every tick of this test asks."""
    broker = Broker()
    monkeypatch.setattr(ticks, "observe", broker.observe)
    monkeypatch.setattr(ticks, "observe_chosen", broker.observe_chosen)
    monkeypatch.setattr(planning, "observe", broker.observe)
    return broker


class Killed(BaseException):
    """The sensor's process is gone."""


def at_commits(monkeypatch: pytest.MonkeyPatch, then: Callable[[int], None], *, after: bool) -> None:
    """Do something at each commit to the ledger; `then` is told which it is."""
    commit, count = doors._commit, 0

    def counted(connection: Any) -> None:
        nonlocal count
        count += 1
        number = count
        if not after:
            then(number)
        commit(connection)
        if after:
            then(number)

    monkeypatch.setattr(doors, "_commit", counted)


def killing(wanted: int) -> Callable[[int], None]:
    """For `at_commits`: the process dies there."""

    def then(number: int) -> None:
        if number == wanted:
            raise Killed

    return then
