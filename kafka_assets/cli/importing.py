"""`kafka-assets import-offsets`: a running system moves here, from where it is."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_assets.cli.asking import AsJson, Yes, a_group, confirm, the_connection, the_root
from kafka_assets.cli.console import out, print_json, print_table
from kafka_assets.errors import UsageError

if TYPE_CHECKING:
    from kafka_assets.streams import Stream


class Means(StrEnum):
    LAST = "last"
    NEXT = "next"


class Missing(StrEnum):
    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


def register(app: typer.Typer) -> None:
    app.command("import-offsets")(import_offsets)


def import_offsets(
    stream: Annotated[str, typer.Argument(help="The stream that goes on from there.")],
    means: Annotated[
        Means, typer.Option(help="What is stored: the last offset that was done (last), or the next to do (next).")
    ],
    group: Annotated[str | None, typer.Option(help="A consumer group in Kafka; its clients store the next.")] = None,
    table: Annotated[str | None, typer.Option(help="A table of offsets; the options below name its columns.")] = None,
    sql: Annotated[str | None, typer.Option(help="Or a query: a partition and an offset in each row.")] = None,
    database: Annotated[str | None, typer.Option(help="Where the table is, as a URL; else the ledger's own.")] = None,
    topic: Annotated[str | None, typer.Option(help="Which topic, where the stream reads several.")] = None,
    topic_column: Annotated[str, typer.Option(help="The table's column of topics.")] = "topic",
    partition_column: Annotated[str, typer.Option(help="The table's column of partitions.")] = "topic_partition",
    offset_column: Annotated[str, typer.Option(help="The table's column of offsets.")] = "next_offset",
    group_column: Annotated[str | None, typer.Option(help="The table's column of groups, with --group-is.")] = None,
    group_is: Annotated[str | None, typer.Option(help="The group whose rows count.")] = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only these partitions.")] = None,
    missing: Annotated[
        Missing, typer.Option(help="Where a partition begins for which nothing is stored.")
    ] = Missing.FAIL,
    in_use: Annotated[bool, typer.Option("--in-use", help="Although the group still has members.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Begin a stream at the offsets of another system; only where the ledger knows nothing of these partitions."""
    from kafka_assets.audit.taking_over import Columns, group_offsets, origins, sql_offsets, table_offsets
    from kafka_assets.broker.listing import topic_offsets
    from kafka_assets.ledger.engine import make_engine
    from kafka_assets.ledger.importing import import_origins
    from kafka_assets.ledger.readers import require_same
    from kafka_assets.ledger.schema import ensure_schema
    from kafka_assets.plan import Offsets
    from kafka_assets.settings import load_settings

    if sum(one is not None for one in (group, table, sql)) != 1:
        raise UsageError("say where the offsets are", cure="give one of --group, --table and --sql")
    if (group_column is None) != (group_is is None):
        raise UsageError("--group-column and --group-is belong together", cure="give both, or none")
    settings = load_settings()
    found = the_root(settings, stream)
    name = _topic(found, topic)
    connection = the_connection(settings)
    there = topic_offsets(connection, name)
    if group is not None:
        a_group(group)
        stored = group_offsets(connection, group, name, in_use=in_use)
    else:
        other = make_engine(database or settings.database_url)
        columns = Columns(topic_column, partition_column, offset_column, group_column, group_is)
        stored = table_offsets(other, table, name, columns) if table is not None else sql_offsets(other, sql or "")
        other.dispose()
    begin = origins(stored, there.partitions, means=means.value, missing=missing.value, only=tuple(partition or ()))
    rows = [
        {
            "partition": one.partition,
            "stored": one.stored,
            "origin": one.origin,
            "log_start": one.log_start,
            "end": one.end,
            "to land": max(0, one.end - max(one.origin, one.log_start)),
            "expired": one.expired,
        }
        for one in begin
    ]
    if not as_json:
        print_table(("partition", "stored", "origin", "log_start", "end", "to land", "expired"), rows, title=name)
    confirm(f"Begin the stream {stream} at these origins? They never change once they stand.", yes=yes)
    engine = make_engine(settings.database_url)
    ensure_schema(engine)
    require_same(engine, found)
    import_origins(
        engine,
        stream=found.name,
        asset=found.asset,
        topic=name,
        topic_id=there.topic_id,
        origins={one.partition: one.origin for one in begin},
        offsets={
            part: Offsets(at.log_start, at.last_stable, at.high_watermark) for part, at in there.partitions.items()
        },
    )
    engine.dispose()
    if as_json:
        print_json({"stream": stream, "topic": name, "partitions": rows})
    else:
        out.print(f"{stream} begins there; the sensor, or `kafka-assets run`, lands what comes after")


def _topic(stream: Stream, given: str | None) -> str:
    if given is not None and given not in stream.matching([given]):
        raise UsageError(
            f"the stream {stream.name!r} does not read {given!r}",
            why=f"it reads {stream.reads!r}",
            cure="give --topic one of those, or leave it out where it is one",
        )
    name = given or stream.topic
    if name is None:
        raise UsageError(f"the stream {stream.name!r} reads topics by a pattern", cure="name one with --topic")
    return name
