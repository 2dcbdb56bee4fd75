"""`kafka-assets plan` and `run`: what the sensor does, by hand or by cron."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kafka_assets.cli.asking import AsJson, Verbose, a_duration, the_declared, the_streams
from kafka_assets.cli.collector import uncollected
from kafka_assets.cli.console import err, out, print_json, print_table
from kafka_assets.cli.stopped import ends_on_signals

Streams = Annotated[list[str] | None, typer.Argument(help="Only these streams; else all that are declared.")]


def register(app: typer.Typer) -> None:
    app.command()(plan)
    app.command()(run)


def plan(
    streams: Streams = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing, only show.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan slices of what is in the topics now, without landing them; exit with 1 if something could not be planned."""
    from kafka_assets.assets.by_hand import plan_now, preview
    from kafka_assets.broker.connection import Connection
    from kafka_assets.ledger.engine import make_engine
    from kafka_assets.settings import load_settings

    settings = load_settings()
    wanted = the_streams(settings, streams or ())
    engine = make_engine(settings.database_url)
    with err.status("planning"):
        found = (preview if dry_run else plan_now)(engine, Connection.of(settings), wanted)
    engine.dispose()
    rows = [
        {
            "stream": one.stream,
            "slice": str(one.key),
            "offsets": one.key.offsets,
            "kind": one.kind,
            "reason": one.reason,
        }
        for one in found.slices
    ]
    if as_json:
        print_json(
            {
                "slices": rows,
                "waiting": found.waiting,
                "given_up": found.given_up,
                "troubles": found.troubles,
                "written": not dry_run,
            }
        )
    else:
        if rows:
            print_table(("stream", "slice", "offsets", "kind", "reason"), rows)
        verb = "would be planned" if dry_run else "planned"
        out.print(f"{len(rows):,} slices {verb}; {sum(found.waiting.values()):,} wait to be landed")
        _say_given_up(found.given_up)
        _say_all(found.troubles)
    if found.troubles:
        raise typer.Exit(1)


def run(
    streams: Streams = None,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Go on until all that was in the topics at the beginning is committed."),
    ] = False,
    patience: Annotated[
        str,
        typer.Option(help="With --until-caught-up: give up when nothing has moved for so long (90s, 10m)."),
    ] = "5m",
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Plan and land without a daemon, for cron: exit with 1 if a slice failed, 0 if all there was is committed.

    SIGTERM and Ctrl-C end it within seconds, with 143 or 130: what was being landed is given back.
    """
    waits = a_duration("--patience", patience)
    say = err.print if as_json else out.print
    with ends_on_signals():
        with uncollected():
            from kafka_assets.assets.folder import chosen
            from kafka_assets.assets.runner import Runner
            from kafka_assets.broker.connection import require_words
            from kafka_assets.settings import load_settings

        told = partial(say, markup=False, highlight=False)
        settings = load_settings()
        assets = the_declared(settings, streams or ())
        if not chosen(assets, streams or ()):
            _say_nothing(settings.streams, as_json=as_json)
            return
        require_words(settings.kafka)
        settings.require_spark()
        with Runner(settings, only=streams or (), assets=assets, say=told, verbose=verbose) as here:
            done = here.until_caught_up(patience=waits) if until_caught_up else here.once()
            standing = here.standing()
    # One tick alone may leave what a later one lands; but nobody is told that all is well then.
    failed = not done.caught_up or bool(done.failures and not until_caught_up)
    if as_json:
        print_json({**asdict(done), "caught_up": done.caught_up, "partitions": standing})
    else:
        held = [one for one in standing if one["hanging"]]
        if standing:
            columns = ("stream", "topic", "partition", "committed_through", "end", "lag")
            print_table((*columns, "hanging") if held else columns, standing)
        out.print(f"{done.runs:,} runs · {done.remaining:,} offsets left of what was there", highlight=False)
        _say_all(done.troubles)
        _say_all(done.waits)
        _say_all(
            [
                f"{count:,} offsets of the topic {topic} were lost: it was deleted before they were read"
                " (`kafka-assets slices --state lost` lists them)"
                for topic, count in done.lost.items()
            ]
        )
        _say_all(
            [
                f"{one['hanging']:,} offsets of {one['topic']}:{one['partition']} are held back by a producer's open"
                " transaction, and land when that has ended"
                for one in held
            ]
        )
        _say_given_up(done.given_up, done.given_up_slices)
    if failed:
        raise typer.Exit(1)


def _say_nothing(folder: Path, *, as_json: bool) -> None:
    """Say that there is no stream to land, and make neither ledger nor instance for none."""
    from kafka_assets.assets.runner import Done

    done = Done()
    _say_all([f"nothing to land: {folder} declares no stream that can be read"])
    if as_json:
        print_json({**asdict(done), "caught_up": done.caught_up, "partitions": []})


def _say_given_up(given_up: Mapping[str, int], which: Mapping[str, Sequence[str]] | None = None) -> None:
    _say_all(
        [
            f"{count:,} slices of {name} failed too often, and wait for you{_some((which or {}).get(name, ()), count)}:"
            f" `kafka-assets slices {name} --state failed` says why,"
            f" `kafka-assets replay {name} --failed` lands them when that is cured"
            for name, count in given_up.items()
        ]
    )


def _some(keys: Sequence[str], count: int) -> str:
    more = f" and {count - len(keys):,} more" if count > len(keys) else ""
    return f" ({', '.join(keys)}{more})" if keys else ""


def _say_all(troubles: list[str]) -> None:
    for trouble in troubles:
        err.print(trouble, markup=False, highlight=False, soft_wrap=True)
