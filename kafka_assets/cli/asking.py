"""What several commands ask and understand: a yes before something is destroyed, a time, a stream."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_assets.cli.console import ends_with, report
from kafka_assets.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from kafka_assets.assets.folder import Declared
    from kafka_assets.broker.connection import Connection
    from kafka_assets.settings import Settings
    from kafka_assets.streams import Stream

MOST_PARTITION = 2**31 - 1
MOST_OFFSET = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def a_topic(name: str) -> str:
    """A name that a topic can have: with others the client ends the process, or asks for ever."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise UsageError(
            f"{name!r} is no name of a topic",
            why="it is made of letters, digits, '.', '_' and '-', 249 of them at most",
            cure="`kafka-assets topics list` names those that there are",
        )
    return name


def no_partition(topic: str, partition: int, *, of: int) -> UsageError:
    """For who asked for a partition that the topic, with so many `of` them, does not have."""
    return UsageError(
        f"the topic {topic!r} has no partition {partition}",
        why=f"it has {of}",
        cure=f"give --partition from 0 to {of - 1}, or leave it out for all",
    )


def a_group(name: str) -> str:
    """A name that a group can have: any text, but some."""
    if not name or not name.isprintable():
        raise UsageError(
            f"{name!r} is no name of a group", cure="`kafka-assets groups list` names those that there are"
        )
    return name


Topic = Annotated[str, typer.Argument(help="The topic.", callback=a_topic)]
Group = Annotated[str, typer.Argument(help="The group.", callback=a_group)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else on stdout.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Dagster's own log of each run, too.")]
Database = Annotated[
    str | None,
    typer.Option(
        help="sqlite, postgresql, mariadb or mysql of the local services, or a SQLAlchemy URL; "
        "else the database in the settings."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Partition = Annotated[int | None, typer.Option("--partition", min=0, max=MOST_PARTITION, help="Only this partition.")]

TIMES = "2026-01-31T12:00 (UTC, unless it ends in a zone as +02:00), or milliseconds since 1970"


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr; anything but a yes ends the command, and so does nobody being there to answer."""
    if yes:
        return
    # Not typer.confirm, which leaves a blank on stdout wherever it asks.
    typer.echo(f"{question} [y/N]: ", nl=False, err=True)
    answer = sys.stdin.readline() if sys.stdin else ""  # closed by whoever started this
    if not answer.endswith("\n"):
        typer.echo(err=True)
    if not answer:
        raise UsageError("nothing was done", why="nobody answered", cure="give --yes to go on without asking")
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was done", why="the answer was no", cure="answer y to go on, or give --yes")


def milliseconds(text: str | None) -> int | None:
    """A time as Kafka has it; one before 1970 would be taken for a word of its own, as -1 for the end."""
    if text is None:
        return None
    try:
        if text.isdecimal():
            found = int(text)
        else:
            read = datetime.fromisoformat(text)
            found = ((read if read.tzinfo else read.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    except ValueError as error:
        raise UsageError(f"{text!r} is no time", why=str(error), cure=f"write {TIMES}") from error
    if not 0 <= found <= MOST_OFFSET:
        raise UsageError(
            f"{text!r} is no time of a record", why="Kafka counts milliseconds since 1970", cure=f"write {TIMES}"
        )
    return found


def shown_time(milliseconds: int) -> str:
    """A record's time in UTC; empty where it has none. A producer may have written another unit: then the number."""
    if milliseconds < 0:
        return ""
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(milliseconds)


def a_duration(option: str, text: str) -> timedelta:
    """A time span, as a stream's declaration writes it."""
    from kafka_assets.durations import duration

    try:
        found: Any = duration(text)
    except ValueError as error:
        raise UsageError(str(error), cure=f"write for example {option} 5m") from error
    if not isinstance(found, timedelta):
        raise UsageError(f"{text!r} is no duration", cure=f"write for example {option} 5m")
    return found


def the_connection(settings: Settings | None = None) -> Connection:
    from kafka_assets.broker.connection import Connection
    from kafka_assets.settings import load_settings

    return Connection.of(settings or load_settings())


def the_ledger(settings: Settings) -> Engine:
    """The database in the settings, which must have a ledger."""
    from kafka_assets.ledger.engine import make_engine
    from kafka_assets.ledger.schema import require_schema

    engine = make_engine(settings.database_url)
    require_schema(engine)
    return engine


def the_declared(settings: Settings, only: Sequence[str]) -> list[Declared]:
    """What the project declares. Files that cannot be read are told on stderr.

    They end the command with 1 where all streams are asked for: theirs, too.
    """
    from kafka_assets.assets.folder import broken_in, load_assets

    declared = load_assets(settings.streams)
    for one in broken_in(declared):
        report(one.error)
        if not only:
            ends_with(1)
    return declared


def the_streams(settings: Settings, only: Sequence[str]) -> list[Stream]:
    """The declared streams, or those of them that are named."""
    from kafka_assets.assets.folder import chosen

    return chosen(the_declared(settings, only), only)


def the_stream(settings: Settings, name: str) -> Stream:
    [found] = the_streams(settings, [name])
    return found


def the_root(settings: Settings, name: str) -> Stream:
    """A stream that reads topics itself: slices are its own to move."""
    from kafka_assets.streams import Derived

    found = the_stream(settings, name)
    if isinstance(found, Derived):
        raise UsageError(
            f"{name!r} reads no topic: it shares the slices of {found.root!r}",
            why="what is skipped or begun elsewhere is so for all assets on the same slices",
            cure=f"name {found.root!r} instead",
        )
    return found
