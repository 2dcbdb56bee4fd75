"""`kafka-assets consume`: the records of a topic, to look at; no group is joined, nothing is committed."""

from __future__ import annotations

import base64
import os
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_assets.cli.asking import TIMES, Partition, Topic, milliseconds, no_partition, shown_time, the_connection
from kafka_assets.cli.console import err, print_json, print_text
from kafka_assets.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_assets.broker.connection import Connection
    from kafka_assets.broker.offsets import PartitionOffsets
    from kafka_assets.broker.read import StoredRecord


def register(app: typer.Typer) -> None:
    app.command()(consume)


def consume(
    topic: Topic,
    begin: Annotated[
        str, typer.Option("--from", help="beginning, end, or an offset (with --partition).")
    ] = "beginning",
    at: Annotated[str | None, typer.Option(help=f"Begin at this time instead: {TIMES}.")] = None,
    partition: Partition = None,
    number: Annotated[int | None, typer.Option("-n", "--number", min=1, help="At most so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Do not end where the topic ends now.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Before each value, its key.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Before each value, its headers.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Before each value, its time in UTC.")] = False,
    places: Annotated[bool, typer.Option("--offsets", help="Before each value, its partition and offset.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object for each record, one to a line.")] = False,
) -> None:
    """Print a topic's committed records: a value to a line, or with --json all that Kafka has of each.

    Where there is no value (a tombstone), or no key, it prints null, as Kafka's own tool; --json tells it from a text.
    """
    from kafka_assets.broker.consume import consume as records

    when = milliseconds(at)
    connection = the_connection()
    start, end = _range(connection, topic, begin=begin, at=when, partition=partition)
    found = records(connection, topic, start, end=None if follow else end, say=_say)
    try:
        for record in islice(found, number):
            if as_json:
                print_json(_object(record))
            else:
                shown = (places, f"{record.partition}:{record.offset}"), (timestamps, shown_time(record.timestamp_ms))
                more = (headers, _pairs(record)), (keys, _text(record.key))
                print_text("\t".join([*(text for wanted, text in (*shown, *more) if wanted), _text(record.value)]))
            if follow:
                sys.stdout.flush()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has enough, as `head` does: what the interpreter still flushes goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        found.close()


def _say(what: str) -> None:
    err.print(what, markup=False, highlight=False, soft_wrap=True)


def _range(
    connection: Connection, topic: str, *, begin: str, at: int | None, partition: int | None
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    from kafka_assets.broker.consume import check_begin
    from kafka_assets.broker.listing import topic_offsets
    from kafka_assets.broker.offsets import offsets_at

    there: Mapping[int, PartitionOffsets] = topic_offsets(connection, topic).partitions
    if partition is not None:
        if partition not in there:
            raise no_partition(topic, partition, of=len(there))
        there = {partition: there[partition]}
    end = {part: one.last_stable for part, one in there.items()}
    if at is not None:
        found = offsets_at(connection, topic, at)
        return {part: found[part] for part in there}, end
    if begin == "beginning":
        return {part: one.log_start for part, one in there.items()}, end
    if begin == "end":
        return end, end
    if not begin.isdecimal() or len(there) > 1:
        raise UsageError(
            f"{begin!r} is no place in {len(there)} partitions",
            cure="give --from beginning, --from end, or an offset with --partition",
        )
    start = dict.fromkeys(there, int(begin))
    check_begin(topic, start, there)
    return start, end


def _object(record: StoredRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp_ms < 0 else record.timestamp_ms,
        **_told("key", record.key),
        **_told("value", record.value),
        "headers": _headers(record),
    }


def _told(name: str, data: bytes | None) -> dict[str, str | None]:
    """Text where the bytes are UTF-8; else as base64, under a name that says so."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        assert data is not None
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="backslashreplace")


def _headers(record: StoredRecord) -> list[dict[str, str | None]] | None:
    from kafka_assets.broker.headers import UNREADABLE

    if record.headers is UNREADABLE:
        return None
    return [{"key": name, **_told("value", value)} for name, value in record.headers]


def _pairs(record: StoredRecord) -> str:
    from kafka_assets.broker.headers import UNREADABLE
    from kafka_assets.decode.passage import LEFT_OUT

    if record.headers is UNREADABLE:
        return f"({LEFT_OUT})"
    return ",".join(f"{name}={_text(value)}" for name, value in record.headers)
