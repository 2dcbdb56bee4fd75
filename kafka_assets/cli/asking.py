"""What several commands ask and understand: a yes before something is destroyed, a time, a stream."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_assets.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from kafka_assets.broker.connection import Connection
    from kafka_assets.settings import Settings
    from kafka_assets.streams import Stream

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Partition = Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition.")]

TIMES = "2026-01-31T12:00 (UTC, unless it ends in a zone as +02:00), or milliseconds since 1970"


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr; anything but a yes ends the command, and so does nobody being there to answer."""
    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort as aborted:
        raise UsageError(
            "nothing was done", why="nobody answered", cure="give --yes to go on without asking"
        ) from aborted
    if not agreed:
        raise UsageError("nothing was done", why="the answer was no")


def milliseconds(text: str | None) -> int | None:
    """A time as Kafka has it."""
    if text is None:
        return None
    try:
        if text.isdecimal():
            return int(text)
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no time", why=str(error), cure=f"write {TIMES}") from error
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def a_duration(option: str, text: str) -> timedelta:
    """A time span, as a stream's declaration writes it."""
    from kafka_assets.streams import duration

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


def the_stream(settings: Settings, name: str) -> Stream:
    from kafka_assets.assets.runner import chosen_streams

    [found] = chosen_streams(settings, [name])
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
