"""What all roads of a benchmark have in common: the topic that they begin from, and empty tables in which they end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine, text

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import produce
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.errors import CountsDisagree
from kafka_assets.lab.bench.hand_loops import OFFSETS
from kafka_assets.lab.bench.record_function import GIVES, write_products
from kafka_assets.lab.bench.record_shapes import CHUNK, PARTITIONS, Produced, Shape
from kafka_assets.lab.bench.table_content import Content, of_function, of_produced, of_table
from kafka_assets.ledger.engine import write
from kafka_assets.live.decode import Decoder
from kafka_assets.records import OFFSET, PARTITION, SOURCE
from kafka_assets.schema import declared, fields_of
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.streams import declare


@dataclass(frozen=True)
class Landing:
    """What came of one landing: the table, and its seconds by clock; most roads have one clock, without a name.

    `merged`: what the table must have, where that is not every record in a row of its own. `fixed`: seconds of a clock
    in which nothing lands, by what they are; they are the same for few records as for many.
    """

    table: str
    seconds: Mapping[str, float]
    merged: Content | None = None
    fixed: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Course:
    """From a topic to tables of a database; `expected` is what each of them must have in the end.

    `products`: each road lands what the function makes of the records, which joins them with this file.
    """

    connection: Connection
    engine: Engine
    topic: str
    records: Produced
    expected: Content
    products: Path | None = None

    @property
    def rows(self) -> Shape:
        """The columns of the tables."""
        return self.records.shape if self.products is None else GIVES

    def empty_table(self) -> Table:
        """A new table, as a stream of these records has it."""
        name = new_name()
        stream = declare(name=name, topic=self.topic, target=name, schema=self.rows.schema)
        schema = Decoder(stream).schema
        return ensure_table(self.engine, road_for(self.engine), name=name, asset=name, schema=schema)

    def keyed_table(self) -> str:
        """A new table whose key is the id."""
        return self.table_by_hand({SOURCE: "BIGINT", PARTITION: "INTEGER", OFFSET: "BIGINT"}, key=["id"])

    def table_by_hand(self, places: Mapping[str, str], *, key: Sequence[str]) -> str:
        """A new table as somebody makes it by hand: columns for a record's place before those of the records."""
        name, road = new_name(), road_for(self.engine)
        kinds = {one.name: one.type for one in fields_of(declared(self.records.shape.schema, "json"))}
        columns = [f"{column} {kind}" for column, kind in places.items()]
        columns += [f"{column} {road.column_type(kind)}" for column, kind in kinds.items()]
        with write(self.engine) as connection:
            connection.exec_driver_sql(
                f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(key)})){road.table_options}"
            )
        return name

    def finish(self, landing: Landing, *, road: str) -> None:
        """See that the table has what was produced, and drop it; CountsDisagree where it has something else."""
        expected = landing.merged or self.expected
        found = of_table(self.engine, landing.table, self.rows, places=landing.merged is None)
        if differences := expected.differences(found):
            raise CountsDisagree(
                f"the road {road!r} landed something else than was produced",
                why="; ".join(differences[:5]),
                cure="please report this: it is a bug of the benchmark, or of what it measures",
            )
        with write(self.engine) as connection:
            connection.execute(text(f"DROP TABLE {landing.table}"))


@contextmanager
def course(
    connection: Connection,
    engine: Engine,
    records: Produced,
    *,
    products: Path | None = None,
    say: Callable[[str], None],
) -> Generator[Course]:
    """These records in a new topic, which goes again; `products`: for the function, the file that is made for it."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    create_topic(connection, topic, partitions=PARTITIONS)
    try:
        for number, chunk in enumerate(records.messages()):
            say(f"producing: {number * CHUNK:,} of {records.records:,} records")
            produce(connection, topic, chunk)
        say("adding up what was produced")
        if products is not None:
            write_products(products)
        expected = of_produced(records) if products is None else of_function(records)
        yield Course(connection, engine, topic, records, expected, products)
    finally:
        delete_topic(connection, topic)


def new_name() -> str:
    """Of a table, an asset or a stream that nobody had before."""
    return f"bench_{uuid.uuid4().hex[:8]}"


def with_offsets(engine: Engine, table: str) -> None:
    """The rows in which hand-written loops keep how far they are with this table."""
    with write(engine) as connection:
        connection.execute(
            text(
                f"CREATE TABLE IF NOT EXISTS {OFFSETS} (target VARCHAR(40), topic_partition INTEGER,"
                " next_offset BIGINT, PRIMARY KEY (target, topic_partition))"
            )
        )
    with write(engine) as connection:
        connection.execute(
            text(f"INSERT INTO {OFFSETS} VALUES (:target, :topic_partition, 0)"),
            [{"target": table, "topic_partition": partition} for partition in range(PARTITIONS)],
        )
