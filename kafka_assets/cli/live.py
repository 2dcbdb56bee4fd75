"""`kafka-assets live`: a stream consumed as it comes, without Spark, on the same ledger."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from kafka_assets.cli.asking import AsJson, a_duration, the_declared
from kafka_assets.cli.console import err, out, print_json
from kafka_assets.errors import KafkaAssetsError, Retryable, UsageError

if TYPE_CHECKING:
    from kafka_assets.live.figures import Figures

MOST = 64


def register(app: typer.Typer) -> None:
    app.command()(live)


def live(
    stream: Annotated[str, typer.Argument(help="The stream.")],
    processes: Annotated[int, typer.Option(min=1, max=MOST, help="So many processes, watched from here.")] = 1,
    threads: Annotated[int, typer.Option(min=1, max=MOST, help="So many consumers in each of them.")] = 1,
    group: Annotated[str | None, typer.Option(help="The consumer group; else the stream's name in the ledger.")] = None,
    assignor: Annotated[
        str | None,
        typer.Option(
            help="range, roundrobin or cooperative-sticky (the default); with the new protocol uniform or range."
        ),
    ] = None,
    group_protocol: Annotated[
        str, typer.Option(help="classic, or consumer: the new one (KIP-848), for brokers from 4.0 on.")
    ] = "classic",
    instance_id: Annotated[
        str | None,
        typer.Option(help="Static membership: who comes back under it in time gets the same partitions, at once."),
    ] = None,
    window: Annotated[str, typer.Option(help="A slice, and its Dagster key, for so much time of a partition.")] = "60s",
    batch_records: Annotated[int, typer.Option(min=1, max=1_000_000, help="At most so many in one commit.")] = 50_000,
    max_delay: Annotated[str, typer.Option(help="No record waits longer for others to be committed with.")] = "500ms",
    tell_kafka: Annotated[
        bool,
        typer.Option(
            "--tell-kafka", help="Also commit offsets to Kafka, after the ledger: only for tools that show lag by them."
        ),
    ] = False,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when all that was there at the beginning is committed.")
    ] = False,
    patience: Annotated[
        str, typer.Option(help="With --until-caught-up: give up when nothing has moved for so long.")
    ] = "5m",
    as_json: AsJson = False,
    child: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Consume a stream in a group, each batch committed with its offsets; SIGTERM and Ctrl-C drain, and end with 0."""
    from kafka_assets.assets.folder import chosen_asset
    from kafka_assets.broker.membership import Membership
    from kafka_assets.forms import form_of
    from kafka_assets.live.collecting import seldom_collected
    from kafka_assets.live.consumer import LiveConsumer
    from kafka_assets.live.crew import Crew, member
    from kafka_assets.live.limits import Limits
    from kafka_assets.settings import load_settings

    settings = load_settings()
    asset = chosen_asset(the_declared(settings, [stream]), stream)
    form = form_of(asset)
    name = group or (form.stream.asset if form else stream)
    membership = Membership(
        name,
        assignor=assignor,
        protocol=cast("Literal['classic', 'consumer']", group_protocol),
        instance_id=instance_id,
    )
    limits = Limits(
        records=batch_records, delay=_seconds("--max-delay", max_delay), window=_seconds("--window", window)
    )
    waits = timedelta(seconds=_seconds("--patience", patience))
    _refuse_many_writers(settings.database_url, processes * threads)
    consumers = [
        LiveConsumer(
            asset,
            settings=settings,
            membership=member(membership, (child or 0) * threads + number, processes * threads),
            limits=limits,
            tell_kafka=tell_kafka,
        )
        for number in range(threads)
    ]
    _log_to_stderr()
    say, end = _tellers(as_json)
    if processes > 1 and child is None:
        _supervise(processes, say, end, as_json=as_json)
        return
    crew = Crew(consumers)
    _drain_on_signals(crew.stop)
    if child is not None:
        _end_with_the_parent(crew.stop)
    try:
        with seldom_collected():
            crew.run(until_caught_up=until_caught_up, patience=waits, say=say, say_every=1.0 if as_json else 10.0)
    except KafkaAssetsError as error:
        if child is not None:
            print_json({"error": str(error), "retryable": isinstance(error, Retryable)})
        elif crew.figures.commits:
            end(crew.figures)
        raise
    end(crew.figures)


def _supervise(
    processes: int, say: Callable[[Figures], None], end: Callable[[Figures], None], *, as_json: bool
) -> None:
    from kafka_assets.live.processes import Processes

    given = [*sys.argv[1:], *([] if as_json else ["--json"])]
    begin = [sys.executable, "-c", "from kafka_assets.cli import main; main()", *given]
    family = Processes(lambda number: [*begin, "--child", str(number)], processes, say=say)
    _drain_on_signals(family.stop)
    failure = family.run()
    end(family.figures)
    if failure is not None:
        err.print(f"a process gave up: {failure}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1)


def _tellers(as_json: bool) -> tuple[Callable[[Figures], None], Callable[[Figures], None]]:
    """Say how it stands, and what it has done when it has ended."""
    from kafka_assets.live.figures import Figures, last_line, line

    before = Figures()

    def say(now: Figures) -> None:
        nonlocal before
        if as_json:
            print_json(now.as_dict())
            sys.stdout.flush()
        else:
            out.print(line(now, before), markup=False, highlight=False, soft_wrap=True)
        before = Figures(**now.as_dict())

    def end(done: Figures) -> None:
        if as_json:
            print_json(done.as_dict())
        else:
            out.print(last_line(done), markup=False, highlight=False, soft_wrap=True)

    return say, end


def _refuse_many_writers(url: str, count: int) -> None:
    if count > 1 and url.startswith("sqlite"):
        raise UsageError(
            f"{count} consumers cannot land in a SQLite file",
            why="it has one writer at a time: they would only wait for each other",
            cure="take one, which is as fast; or land in PostgreSQL, MariaDB or MySQL",
        )


def _drain_on_signals(stop: Callable[[], None]) -> None:
    def drain(number: int, frame: Any) -> None:
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, drain)


def _end_with_the_parent(stop: Callable[[], None]) -> None:
    """The parent says nothing on this pipe; it ends when the parent does, in whatever way."""

    def wait() -> None:
        # Not sys.stdin: Python cannot end while a thread waits in it.
        while os.read(0, 1024):
            pass
        stop()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("kafka_assets")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _seconds(option: str, text: str) -> float:
    return a_duration(option, text).total_seconds()
