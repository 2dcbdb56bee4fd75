"""`kafka-assets streams`, `lag` and `slices`: where everything stands, by the ledger alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kafka_assets.cli.asking import AsJson, Partition, the_ledger, the_stream
from kafka_assets.cli.console import out, print_json, print_table

Streams = Annotated[list[str] | None, typer.Argument(help="Only these streams; else all that are declared.")]


def register(app: typer.Typer) -> None:
    for command in (streams, lag, slices):
        app.command()(command)


def streams(as_json: AsJson = False) -> None:
    """List the declared streams: what they read, where it lands, and how far they are."""
    from kafka_assets.assets.runner import chosen_streams
    from kafka_assets.audit.streams import stream_standing
    from kafka_assets.ledger.engine import make_engine
    from kafka_assets.settings import load_settings

    settings = load_settings()
    engine = make_engine(settings.database_url)
    rows = [asdict(one) for one in stream_standing(engine, chosen_streams(settings, ()))]
    engine.dispose()
    if as_json:
        print_json(rows)
    else:
        live = ("live",) if any(row["live"] for row in rows) else ()
        print_table(
            ("stream", "reads", "target", "mode", "partitions", *live, "lag", "waiting", "failed", "quarantined"), rows
        )


def lag(names: Streams = None, as_json: AsJson = False) -> None:
    """Show how far each partition is behind, as the broker was when the sensor last asked it."""
    from kafka_assets.assets.runner import chosen_streams
    from kafka_assets.audit.streams import lags
    from kafka_assets.settings import load_settings

    settings = load_settings()
    wanted = chosen_streams(settings, names or ())
    engine = the_ledger(settings)
    rows = [asdict(one) for one in lags(engine, assets=[one.asset for one in wanted])]
    engine.dispose()
    if as_json:
        print_json(rows)
        return
    named = {"committed": "committed_through", "planned": "planned_through", "end": "last_stable"}
    rows = [{**row, **{short: row[name] for short, name in named.items()}} for row in rows]
    seen = min((row["observed_at"] for row in rows), default=None)
    title = f"as seen at {seen:%Y-%m-%d %H:%M:%S} UTC" if seen else None
    owned = ("owner",) if any(row["owner"] for row in rows) else ()
    print_table(("asset", "topic", "partition", *named, "lag", "hanging", *owned), rows, title=title)


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
