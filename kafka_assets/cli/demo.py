"""`demo`: the whole idea at work on this machine, in a minute."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_assets.cli.console import err, out, print_table
from kafka_assets.cli.stack import Narration
from kafka_assets.errors import KafkaAssetsError, Permanent, UsageError
from kafka_assets.settings import PREFIX, Settings, load_settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from kafka_assets.audit.demo import Verdict
    from kafka_assets.broker.connection import Connection

SERVICE = "dagster"
STALLED = 240.0
"""Seconds without a row, while some are due, until the demo gives up."""
PRODUCE_SECONDS = 12.0


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    records: Annotated[int, typer.Option(min=1, help="How many records the topic is to have.")] = 200_000,
    exit_: Annotated[bool, typer.Option("--exit", help="Verify, stop Dagster and end; the services stay up.")] = False,
) -> None:
    """Land a sample topic through the sensor, and show that every record is there once."""
    from kafka_assets import devstack

    # The demo lands its own stream, whatever this project declares.
    os.environ[f"{PREFIX}STREAMS"] = str(Path(__file__).parents[1] / "defs")
    state = load_settings().state
    there = {one.name for one in devstack.status(state) if one.state == "ready"}
    done = False
    try:
        with Narration() as narration:
            running = devstack.up(state, [*devstack.DEFAULT, SERVICE], progress=narration)
        url = running.urls[SERVICE]
        verdict = _land(_local(running.bootstrap_servers), records)
        _show(verdict, url=url)
        done = True
        if not exit_:
            out.print(f"\n[bold]Look around at {url}[/]; Ctrl-C stops what this demo started.")
            _wait_for_interrupt()
    finally:
        # The services stay only where --exit promises it; what ran before is never stopped.
        ours = [SERVICE] if exit_ and done else _started(there)
        with Narration() as narration:
            devstack.down(state, only=ours, progress=narration)
    if exit_:
        out.print(
            "Dagster is stopped. The services stay up: `kafka-assets ps` lists them, `kafka-assets down` ends them."
        )
    if not verdict.exact:
        raise typer.Exit(1)


def _local(bootstrap_servers: str | None) -> Settings:
    """The settings, if they mean the services of this project: a demo writes into no other cluster."""
    settings = load_settings()
    if settings.bootstrap_servers != bootstrap_servers:
        raise UsageError(
            f"the settings name the broker {settings.bootstrap_servers}, and the demo runs on this project's own",
            why="it creates a topic and writes records into it",
            cure=f"unset {PREFIX}BOOTSTRAP_SERVERS for the demo, or run it in another folder",
        )
    return settings


def _started(there: set[str]) -> list[str]:
    from kafka_assets import devstack

    return [one.name for one in devstack.status(load_settings().state) if one.name not in there]


def _land(settings: Settings, records: int) -> Verdict:
    from kafka_assets.audit.demo import PARTITIONS, TOPIC, count_produced, produce_customers, produce_to, verdict
    from kafka_assets.audit.standing import standing
    from kafka_assets.broker.connection import Connection
    from kafka_assets.broker.topics import create_topic
    from kafka_assets.ledger.engine import make_engine
    from kafka_assets.ledger.schema import ensure_schema

    connection = Connection.of(settings)
    engine = make_engine(settings.database_url)
    ensure_schema(engine)
    create_topic(connection, TOPIC, partitions=PARTITIONS)
    produce_customers(connection)
    before = count_produced(connection)
    if before >= records:
        out.print(f"The topic {TOPIC!r} has {before:,} records already; --records asks for more.")

    given_up = threading.Event()

    def landing() -> bool:
        return given_up.is_set() or any(one.landed for one in standing(engine, asset=TOPIC))

    with ThreadPoolExecutor(1, thread_name_prefix="producer") as pool:
        producing = pool.submit(produce_to, connection, total=records, seconds=PRODUCE_SECONDS, landing=landing)
        try:
            _watch(engine, connection, producing, total=max(records, before))
        finally:
            given_up.set()  # a producer that waits for rows would else keep a demo that failed from ending
    return verdict(engine, connection)


def _watch(engine: Engine, connection: Connection, producing: Future[None], *, total: int) -> None:
    """Show the landing until everything that was produced is committed, or nothing moves any more."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from kafka_assets.audit.demo import TOPIC, count_produced
    from kafka_assets.audit.standing import failures, standing

    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    moved, last = time.monotonic(), -1
    with Progress(*columns, console=out) as progress:
        tasks = {name: progress.add_task(name, total=total) for name in ("produced", "landed")}
        tasks |= {name: progress.add_task(name, total=None) for name in ("quarantined", "lag")}
        while True:
            produced = count_produced(connection)
            now = standing(engine, asset=TOPIC)
            through = sum(one.committed_through for one in now)
            landed, quarantined = sum(one.landed for one in now), sum(one.quarantined for one in now)
            shown = {"produced": produced, "landed": landed, "quarantined": quarantined, "lag": produced - through}
            for name, value in shown.items():
                progress.update(tasks[name], completed=value)
            if producing.done():
                producing.result()
                if now and through == produced:
                    progress.update(tasks["landed"], total=landed)
                    return
            if through + produced != last:
                moved, last = time.monotonic(), through + produced
            elif time.monotonic() - moved > STALLED:
                raise _stalled(failures(engine, asset=TOPIC))
            time.sleep(0.5)


def _stalled(reasons: list[str]) -> KafkaAssetsError:
    return Permanent(
        f"nothing landed for {STALLED:.0f} seconds",
        why=reasons[-1] if reasons else "the ledger knows of no failure: the sensor may not be running",
        cure="look into .kafka_assets/logs/dagster.log",
    )


def _show(verdict: Verdict, *, url: str) -> None:
    rows = [
        {
            "partition": one.partition,
            "offsets": f"{one.origin:,} – {verdict.ends.get(one.partition, one.end):,}",
            "rows": one.landed,
            "quarantined": one.quarantined,
            "committed_through": one.committed_through,
            "rows/s": one.rows_per_second,
        }
        for one in verdict.partitions
    ]
    print_table(list(rows[0]), rows, title="orders")
    sign = "=" if verdict.produced == verdict.rows + verdict.quarantined else "≠"
    out.print(
        f"produced {verdict.produced:,} {sign} rows {verdict.rows:,} + quarantined {verdict.quarantined:,}"
        f" · distinct {verdict.distinct:,} · gaps {verdict.gaps}"
    )
    out.print(f"committed_through {'=' if verdict.caught_up else '≠'} end offset of every partition")
    out.print(f"database {load_settings().database_url}", soft_wrap=True, highlight=False)
    out.print(f"UI {url}", highlight=False)
    if not verdict.exact:
        err.print("[bold red]not exact[/]: please keep the state folder, and report this")


def _wait_for_interrupt() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        out.print("stopping")
