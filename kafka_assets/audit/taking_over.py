"""Offsets of another system, read from where it keeps them: a consumer group in Kafka, or a table of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from sqlalchemy import BigInteger, Engine, Executable, String, column, select, table, text
from sqlalchemy.exc import SQLAlchemyError, StatementError
from sqlalchemy.types import TypeEngine

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.groups import describe_group
from kafka_assets.broker.offsets import PartitionOffsets
from kafka_assets.errors import BrokerRefused, SettingsError, UsageError
from kafka_assets.ledger.engine import read

Means = Literal["last", "next"]
Missing = Literal["fail", "earliest", "latest"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(?:\.[A-Za-z_][A-Za-z0-9_$]*)?")


@dataclass(frozen=True)
class Columns:
    """How an offset table calls what it keeps; `group` with its value where it keeps several groups."""

    topic: str = "topic"
    partition: str = "topic_partition"
    offset: str = "next_offset"
    group: str | None = None
    group_is: str | None = None


@dataclass(frozen=True)
class Origin:
    """Where a partition begins here, and what was stored for it."""

    partition: int
    stored: int | None
    origin: int
    log_start: int
    end: int

    @property
    def expired(self) -> int:
        """Offsets that the other system had not done, and Kafka has no more."""
        return max(0, self.log_start - self.origin)


def group_offsets(connection: Connection, group: str, topic: str, *, in_use: bool = False) -> dict[int, int]:
    """What a group has committed of a topic; refused while it has members, unless that is meant."""
    found = describe_group(connection, group)
    if found.in_use and not in_use:
        raise BrokerRefused(
            f"the group {group!r} is in use by {len(found.members)} members",
            why="what they commit after this would be done twice: there and here",
            cure="stop its consumers first; --in-use imports all the same, for a trial",
        )
    return {part: offset for (name, part), offset in found.offsets.items() if name == topic}


def table_offsets(engine: Engine, name: str, topic: str, columns: Columns) -> dict[int, int]:
    """What an offset table has of a topic; each partition once."""
    for word in filter(None, (name, columns.topic, columns.partition, columns.offset, columns.group)):
        if not _NAME.fullmatch(word):
            raise UsageError(f"{word!r} is no name of a table or column", cure="use --sql for what is not as simple")
    schema, _, bare = name.rpartition(".")
    names = [columns.topic, columns.partition, columns.offset, *filter(None, (columns.group,))]
    texts = (columns.topic, columns.group)
    kinds: list[TypeEngine[Any]] = [String() if one in texts else BigInteger() for one in names]
    listed = [column(one, kind) for one, kind in zip(names, kinds, strict=True)]
    kept = table(bare, *listed, schema=schema or None)
    statement = select(kept.c[columns.partition], kept.c[columns.offset]).where(kept.c[columns.topic] == topic)
    if columns.group is not None:
        statement = statement.where(kept.c[columns.group] == columns.group_is)
    return _asked(engine, statement, f"the table {name!r}")


def sql_offsets(engine: Engine, statement: str) -> dict[int, int]:
    """What a query says: a partition and an offset in each row."""
    return _asked(engine, text(statement), "the query")


def origins(
    stored: Mapping[int, int],
    there: Mapping[int, PartitionOffsets],
    *,
    means: Means,
    missing: Missing,
    only: tuple[int, ...] = (),
) -> list[Origin]:
    """Where each partition of the topic begins here: at the next offset, whichever of the two was stored."""
    wanted = {part: at for part, at in there.items() if not only or part in only}
    if strangers := sorted((set(only) or stored.keys()) - there.keys()):
        raise UsageError(
            f"the topic has no partition {', '.join(map(str, strangers))}",
            why=f"it has {len(there)}, and offsets of others are " + ("asked for" if only else "stored"),
            cure="check topic and broker: these may be another cluster's offsets",
        )
    if missing == "fail" and (lacking := sorted(set(wanted) - set(stored))):
        raise UsageError(
            f"no offset is stored of partitions {', '.join(map(str, lacking))}",
            why="where they begin would be a guess",
            cure="say so with --missing earliest or --missing latest, or choose partitions with --partition",
        )
    return [_origin(part, stored.get(part), at, means=means, missing=missing) for part, at in sorted(wanted.items())]


def _origin(part: int, stored: int | None, at: PartitionOffsets, *, means: Means, missing: Missing) -> Origin:
    if stored is None:
        begin = at.log_start if missing == "earliest" else at.last_stable
    else:
        begin = stored + (means == "last")
    if begin < 0 or begin > at.high_watermark:
        raise UsageError(
            f"partition {part} would begin at {begin}, and Kafka has it from {at.log_start} to {at.high_watermark}",
            why=f"{stored} is stored, and --means {means} was given",
            cure="check --means, the topic and the broker: offsets of another cluster, or of the topic before it was "
            "created again, do not count here",
        )
    return Origin(part, stored, begin, at.log_start, at.last_stable)


def _asked(engine: Engine, statement: Executable, what: str) -> dict[int, int]:
    found: dict[int, int] = {}
    try:
        with read(engine) as connection:
            rows: list[tuple[object, ...]] = [tuple(row) for row in connection.execute(statement)]
    except SQLAlchemyError as error:  # also of a statement that gives no rows, and of a name after a colon
        raise UsageError(
            f"{what} could not be read",
            why=str((error.orig if isinstance(error, StatementError) else None) or error),
            cure="check the names, and --database; let --sql give a partition and an offset in each row, "
            r"and write a colon before a name as \:",
        ) from error
    for row in rows:
        if len(row) != 2 or any(not isinstance(one, int) or isinstance(one, bool) for one in row):
            raise UsageError(
                f"{what} gives {row!r}, and not a partition and an offset",
                cure="let it give two whole numbers, the partition first",
            )
        part, offset = cast(tuple[int, int], row)
        if found.get(part, offset) != offset:
            raise SettingsError(
                f"{what} has two offsets of partition {part}: {found[part]} and {offset}",
                why="it may keep several groups, or its history",
                cure="choose one group with --group-column and --group-is, or write the query with --sql",
            )
        found[part] = offset
    return found
