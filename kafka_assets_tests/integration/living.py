"""Live consumers of one stream in this process, beside what the sensor and its runs do, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from kafka_assets.broker.admin import admin
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic
from kafka_assets.forms import ArrowForm
from kafka_assets.ledger.engine import make_engine, read
from kafka_assets.ledger.schema import current_revision
from kafka_assets.live.consumer import LiveConsumer
from kafka_assets.live.limits import Limits
from kafka_assets.settings import Settings
from kafka_assets.streams import Stream, declare
from kafka_assets_tests.integration.groups import TIMES, fresh

QUICK = {"heartbeat.interval.ms": "300", "topic.metadata.refresh.interval.ms": "1000"}
"""A member hears of a rebalance with its next heartbeat, and of partitions when it looks for them."""


@dataclass
class Living:
    """One stream on one ledger."""

    broker: str
    database_url: str
    folder: Path
    stream: Stream
    function: Callable[[Any], Any] | None = None
    consumers: list[LiveConsumer] = field(default_factory=list[LiveConsumer])

    def __post_init__(self) -> None:
        self.connection = Connection(self.broker, {})
        self.engine: Engine = make_engine(self.database_url)
        self.settings = Settings(
            project=self.folder,
            streams=self.folder,
            bootstrap_servers=self.broker,
            database_url=self.database_url,
            kafka=QUICK,
        )

    @property
    def form(self) -> ArrowForm:
        return ArrowForm(self.stream, "v1", self.function)

    def consumer(self, *, limits: Limits | None = None, tell_kafka: bool = False, **membership: Any) -> LiveConsumer:
        made = LiveConsumer(
            self.form,
            settings=self.settings,
            membership=Membership(self.stream.asset, **{**TIMES, **membership}),
            limits=limits or Limits(delay=0.05, window=60),
            tell_kafka=tell_kafka,
        )
        self.consumers.append(made)
        return made

    @contextmanager
    def consuming(self, count: int = 1, **more: Any) -> Generator[list[LiveConsumer]]:
        """So many consumers run while the block does; what one of them raises is raised at its end."""
        made = [self.consumer(**more) for _ in range(count)]
        errors: list[BaseException] = []

        def run(one: LiveConsumer) -> None:
            try:
                one.run()
            except BaseException as error:  # noqa: BLE001 raised below
                errors.append(error)

        threads = [threading.Thread(target=run, args=(one,)) for one in made]
        for thread in threads:
            thread.start()
        try:
            yield made
        finally:
            for one in made:
                one.stop()
            for thread in threads:
                thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        if errors:
            raise errors[0]

    def described(self) -> Any:
        """Its group, as the coordinator has it: with the assignor, and the members' instance ids."""
        with admin(self.connection) as asking:
            return next(iter(asking.answers(asking.client.describe_consumer_groups([self.stream.asset])).values()))

    def topic(self, partitions: int = 1, *, name: str | None = None, **config: str) -> None:
        create_topic(self.connection, name or self.stream.reads, partitions=partitions, config=config)

    def produce(self, *values: bytes | None, partition: int = 0, topic: str | None = None) -> None:
        records = (Record(value=value, partition=partition) for value in values)
        produce(self.connection, topic or self.stream.reads, records)

    def ids(self, first: int, last: int, partition: int = 0, topic: str | None = None) -> None:
        values = (b'{"id": %d, "note": "n"}' % number for number in range(first, last))
        self.produce(*values, partition=partition, topic=topic)

    def sql(self, statement: str) -> Any:
        with read(self.engine) as connection:
            return connection.scalar(text(statement))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with read(self.engine) as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    @property
    def begun(self) -> bool:
        """Whether there is a ledger yet."""
        return current_revision(self.engine) is not None

    @property
    def count(self) -> int:
        """The rows that are there; none where there is no table yet."""
        with read(self.engine) as connection:
            if not connection.dialect.has_table(connection, self.stream.target):
                return 0
            return int(connection.scalar(text(f"select count(*) from {self.stream.target}")) or 0)

    def exact(self) -> bool:
        """Whether no offset is in no slice, or in two; and no row is there twice."""
        twice = (
            f"select count(*) from (select kafka_source, kafka_partition, kafka_offset from {self.stream.target}"
            " group by kafka_source, kafka_partition, kafka_offset having count(*) > 1) d"
        )
        return self.sql("select count(*) from kafka_gap") == 0 and self.sql(twice) == 0


def waited(until: Callable[[], object], patience: float = 120.0, *, also: Callable[[], object] = lambda: None) -> None:
    """Until that is so."""
    deadline = time.monotonic() + patience
    while not until():
        assert time.monotonic() < deadline, "it never came"
        also()
        time.sleep(0.05)


def orders(**attributes: Any) -> Stream:
    """A stream of a name that nobody has used; its topic and table have the same."""
    name = fresh("live")
    declared: dict[str, Any] = {
        "name": name,
        "target": name,
        "schema": "id BIGINT NOT NULL, note STRING",
        "slices": {"max_delay": "0ms"},
        **({} if "topics" in attributes else {"topic": name}),
        **attributes,
    }
    return declare(**declared)
