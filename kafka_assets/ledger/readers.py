"""What of a declaration the ledger refuses: above all records of another stream or topic than an asset's rows are of.

An asset's rows are those of one stream, and in mode upsert of one topic.
A stream's progress is kept under the stream's name, and its results under the asset's: where the two came apart,
everything would be landed again beside what stands. Versions of two topics do not compare.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, Engine, select

from kafka_assets.errors import StreamError
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.engine import read
from kafka_assets.streams import Derived, Stream, root_of, table_parts


def refused(engine: Engine, streams: Sequence[Stream]) -> dict[str, StreamError]:
    """By name the streams of which nothing may be planned, and why; one question for all."""
    with read(engine) as connection:
        known = sources_of(connection, [stream.asset for stream in streams])
    found: dict[str, StreamError] = {}
    for stream in streams:
        try:
            require_place(engine, stream.target)
            _require_reader(stream, known[stream.asset])
        except StreamError as error:
            found[stream.name] = error
    return found


def require_place(engine: Engine, target: str) -> None:
    """Refuse a target in a schema where the database has none: SQLite's belong to a connection, not to the file."""
    schema, name = table_parts(target)
    if engine.dialect.name == "sqlite" and schema not in {None, "main"}:
        raise StreamError(
            f"the target {target!r} names a schema, and SQLite has none",
            why="a file is one schema; PostgreSQL has them, and MySQL and MariaDB take another database for one",
            cure=f"declare another target, for example {schema}_{name}, or land in another database",
        )


def require_same(engine: Engine, stream: Stream) -> None:
    """Refuse the stream where its asset has rows of another one; before anything of it is planned or landed."""
    for error in refused(engine, [stream]).values():
        raise error


def sources_of(connection: Connection, assets: Collection[str]) -> dict[str, set[tuple[str, str]]]:
    """By asset the streams and topics that it has results of, or waits for."""
    d, r = t.committed.c, t.source.c
    asked = select(d.asset, r.stream, r.topic).join_from(t.committed, t.source, d.source_id == r.id)
    known: dict[str, set[tuple[str, str]]] = {asset: set() for asset in assets}
    for asset, stream, topic in connection.execute(asked.where(d.asset.in_(sorted(known))).distinct()):
        known[asset].add((stream, topic))
    return known


def _require_reader(stream: Stream, known: Collection[tuple[str, str]]) -> None:
    root = root_of(stream)
    if others := sorted({name for name, _ in known if name != root}):
        raise _another_stream(stream, others[0])
    if stream.upsert is not None and (others := sorted({topic for _, topic in known if topic != stream.topic})):
        raise StreamError(
            f"stream {stream.name!r} of mode upsert reads the topic {stream.topic!r}, "
            f"and its table has rows of {others[0]!r}",
            why="offsets of two topics do not compare: newer records would lose against older ones, without a word",
            cure=f"keep the topic {others[0]!r}, or declare the new one under a new name and target",
        )


def _another_stream(stream: Stream, other: str) -> StreamError:
    if isinstance(stream, Derived):
        return StreamError(
            f"{stream.name!r} is declared on the slices of {root_of(stream)!r}, and has landed those of {other!r}",
            why="all that there is would be landed beside the rows that stand: twice, where it is the same topic",
            cure=f"declare it on {other!r} again, or under a new name and target",
        )
    return StreamError(
        f"stream {stream.name!r} has the group {stream.asset!r}, under which the stream {other!r} has landed",
        why="progress is kept under the stream's name: all that is in the topic would be landed again, "
        "beside the rows that stand",
        cure=f"give the stream the name {other!r} again, or another group and another target",
    )
