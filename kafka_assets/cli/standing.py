"""`kafka-assets streams`, `lag` and `slices`: where everything stands, by the ledger, and by the broker's true ends."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_assets.cli.asking import AsJson, Partition, the_connection, the_ledger, the_stream, the_streams
from kafka_assets.cli.console import err, out, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Engine

    from kafka_assets.assets.judging import Looked
    from kafka_assets.settings import Settings
    from kafka_assets.streams import Stream

Streams = Annotated[list[str] | None, typer.Argument(help="Only these streams; else all that are declared.")]


def register(app: typer.Typer) -> None:
    for command in (streams, lag, slices):
        app.command()(command)


def streams(as_json: AsJson = False) -> None:
    """List the declared streams: what they read, where it lands, and how far they are; exit 1 on trouble."""
    from kafka_assets.audit.streams import stream_standing
    from kafka_assets.ledger.engine import make_engine
    from kafka_assets.settings import load_settings

    settings = load_settings()
    wanted = the_streams(settings, ())
    engine = make_engine(settings.database_url)
    looked = _looked(settings, engine, wanted)
    rows: list[dict[str, Any]] = [{**asdict(one), "trouble": None} for one in stream_standing(engine, wanted)]
    for row in rows:
        if one := looked.get(row["stream"]):
            row |= {"lag": sum(place.lag for place in one.places), "trouble": one.trouble}
    engine.dispose()
    if as_json:
        print_json(rows)
    else:
        live = ("live",) if any(row["live"] for row in rows) else ()
        rows = [{**row, "quarantined": f"{row['quarantined']}{'+' if row['more_quarantined'] else ''}"} for row in rows]
        print_table(
            ("stream", "reads", "target", "mode", "partitions", *live, "lag", "waiting", "failed", "quarantined"), rows
        )
    _say_troubles(looked, as_json=as_json)


def lag(names: Streams = None, as_json: AsJson = False) -> None:
    """Show how far each partition is behind, as the broker is now; exit 1 on trouble."""
    from kafka_assets.audit.streams import lags
    from kafka_assets.settings import load_settings

    settings = load_settings()
    wanted = the_streams(settings, names or ())
    engine = the_ledger(settings)
    looked = _looked(settings, engine, wanted)
    rows: list[dict[str, Any]] = [asdict(one) for one in lags(engine, assets=[one.asset for one in wanted])]
    engine.dispose()
    met = {row["asset"] for row in rows}
    rows += [_unmet(one) for one in wanted if one.asset not in met]
    troubles = {one.asset: looked[one.name].trouble for one in wanted if one.name in looked}
    places = {
        (one.asset, place.topic, place.partition): place
        for one in wanted
        for place in (looked[one.name].places if one.name in looked else ())
    }
    for row in rows:
        if place := places.get((row["asset"], row["topic"], row["partition"])):
            hanging = max(0, place.high_watermark - place.last_stable)
            row |= {"last_stable": place.last_stable, "high_watermark": place.high_watermark}
            row |= {"lag": place.lag, "hanging": hanging}
        row["trouble"] = troubles.get(row["asset"])
    if as_json:
        print_json(rows)
    else:
        named = {"committed": "committed_through", "planned": "planned_through", "end": "last_stable"}
        rows = [{**row, **{short: row[name] for short, name in named.items()}} for row in rows]
        seen = min((row["observed_at"] for row in rows if row["observed_at"] is not None), default=None)
        title = f"last planned from what was there at {seen:%Y-%m-%d %H:%M:%S} UTC" if seen else None
        owned = ("owner",) if any(row["owner"] for row in rows) else ()
        print_table(("asset", "topic", "partition", *named, "lag", "hanging", *owned), rows, title=title)
    _say_troubles(looked, as_json=as_json)


def _unmet(stream: Stream) -> dict[str, Any]:
    """The line of a stream that no partition is known of."""
    from kafka_assets.audit.streams import PartitionLag
    from kafka_assets.streams import root_of

    nothing = dict.fromkeys(field.name for field in fields(PartitionLag))
    return {**nothing, "asset": stream.asset, "stream": root_of(stream), "topic": stream.reads}


def _looked(settings: Settings, engine: Engine, wanted: Sequence[Stream]) -> dict[str, Looked]:
    """What the broker says of these streams, as far as the ledger knows them; nothing where there is no ledger."""
    from kafka_assets.assets.judging import look
    from kafka_assets.ledger.schema import current_revision, require_schema

    if current_revision(engine) is None:
        return {}
    require_schema(engine)
    return look(engine, lambda: the_connection(settings), wanted)


def _say_troubles(looked: Mapping[str, Looked], *, as_json: bool) -> None:
    """Say under the table of which streams nothing is planned or lands, and why; then the command has found something.

    Where there is no table on stdout, on stderr, which names these streams in any case.
    """
    troubles = {name: one.trouble for name, one in looked.items() if one.trouble}
    for name, said in troubles.items():
        (err if as_json else out).print(f"{name}: {said}", markup=False, highlight=False, soft_wrap=True)
    if troubles:
        if not as_json:
            err.print(f"in trouble: {', '.join(troubles)}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)


def slices(
    stream: Annotated[str, typer.Argument(help="The stream.")],
    state: Annotated[
        str | None,
        typer.Option(metavar="planned|committed|failed|lost|skipped|open", help="Only those in this state."),
    ] = None,
    partition: Partition = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, the newest.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List a stream's slices, also of topics that were created again, and what became of each."""
    from kafka_assets.ledger.slice_list import Wanted, list_slices
    from kafka_assets.settings import load_settings
    from kafka_assets.streams import root_of

    settings = load_settings()
    found = the_stream(settings, stream)
    engine = the_ledger(settings)
    listed = list_slices(
        engine,
        stream=root_of(found),
        asset=found.asset,
        wanted=Wanted(partition=partition),
        state=state,
        limit=limit,
        gone=True,
    )
    engine.dispose()
    rows = [{**asdict(one), "slice": str(one.key), "offsets": one.key.offsets} for one in listed]
    if as_json:
        print_json([{name: value for name, value in row.items() if name not in ("id", "key")} for row in rows])
        return
    shown = ("slice", "state", "read", "landed", "bad", "reason")
    rows = [{**row, "read": row["records_read"], "bad": row["quarantined"]} for row in rows]
    print_table(shown, rows)
    if len(rows) == limit:
        out.print(f"the newest {limit}; --limit shows more")
