"""`kafka-assets quarantine`: records that could not become rows."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Annotated, Any

import typer

from kafka_assets.cli.asking import MOST_OFFSET, AsJson, Partition, the_ledger, the_stream, the_streams
from kafka_assets.cli.console import print_json, print_table

quarantine = typer.Typer(help="Records that could not become rows.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(quarantine, name="quarantine")


@quarantine.command("list")
def list_(
    streams: Annotated[list[str] | None, typer.Argument(help="Only these streams; else all.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many kinds of reasons.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Count the newest records in quarantine by the kind of reason and the field, with an example of each."""
    from kafka_assets.ledger.quarantined import quarantine_reasons
    from kafka_assets.settings import load_settings

    settings = load_settings()
    wanted = the_streams(settings, streams or ())
    engine = the_ledger(settings)
    rows = [asdict(one) for one in quarantine_reasons(engine, assets=[one.asset for one in wanted], limit=limit)]
    engine.dispose()
    if as_json:
        print_json(rows)
    else:
        rows = [{**row, "records": f"{row['records']:,}{'+' if row['more_records'] else ''}"} for row in rows]
        print_table(("asset", "code", "field", "records", "example", "first_at", "last_at"), rows)


@quarantine.command()
def show(
    stream: Annotated[str, typer.Argument(help="The stream.")],
    partition: Partition = None,
    offset: Annotated[int | None, typer.Option(min=0, max=MOST_OFFSET, help="Begin at this offset.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show bad records with their reason, bytes and headers."""
    from kafka_assets.ledger.quarantined import quarantined
    from kafka_assets.settings import load_settings

    settings = load_settings()
    asset = the_stream(settings, stream).asset
    engine = the_ledger(settings)
    found = quarantined(engine, asset=asset, partition=partition, offset=offset, limit=limit)
    engine.dispose()
    if as_json:
        print_json([{**asdict(one), **_told("key", one.key), **_told("value", one.value)} for one in found])
        return
    rows = [
        {**asdict(one), "place": f"{one.topic}:{one.partition}:{one.offset}", "value": _text(one.value)}
        for one in found
    ]
    print_table(("place", "reason", "value", "quarantined_at"), rows)


def _told(name: str, data: bytes | None) -> dict[str, Any]:
    """Text where the bytes are UTF-8, and else as base64 beside it."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        assert data is not None
        return {name: None, f"{name}_base64": base64.b64encode(data).decode()}


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="backslashreplace")
