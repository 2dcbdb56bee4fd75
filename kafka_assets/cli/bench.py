"""`kafka-assets bench`: benchmarks."""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kafka_assets.cli.asking import AsJson, Database
from kafka_assets.cli.console import err, print_json, print_table
from kafka_assets.settings import load_settings

if TYPE_CHECKING:
    from kafka_assets.services import Services
    from kafka_assets.settings import Settings

NewDatabase = Annotated[
    Literal["sqlite", "postgresql", "mariadb", "mysql"], typer.Option(help="Which; a new one is started.")
]
Shape = Annotated[
    Literal["plain", "decimals", "wide"],
    typer.Option("--record", help="200 bytes of JSON; the same with DECIMAL(12,2) and two times; 40 fields."),
]

bench = typer.Typer(help="Benchmarks: each figure beside its limit, measured in the same run.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(bench, name="bench")


@bench.command()
def publish(
    database: Database = None,
    records: Annotated[
        int, typer.Option(min=1_000, max=10_000_000, help="How many records of about 200 bytes the slice has.")
    ] = 500_000,
    as_json: AsJson = False,
) -> None:
    """Publish a generated slice, and compare with what the database takes at most; in a scratch database."""
    from kafka_assets.audit.bench import bench_publish, database_url

    url = database_url(load_settings(), database)
    with err.status("preparing") as status:
        figures = bench_publish(url, records=records, say=status.update)
    if as_json:
        print_json([asdict(figure) for figure in figures])
        return
    rows = [{**asdict(figure), "value": int(figure.value)} for figure in figures]
    print_table(("name", "value", "unit", "ratio", "against"), rows, title=f"{records:,} records, medians")


@bench.command()
def tick(
    database: Database = None,
    keys: Annotated[int, typer.Option(min=200, max=1_000_000, help="How many slices were landed before.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=3, max=1000, help="How many ticks of each kind.")] = 40,
    as_json: AsJson = False,
) -> None:
    """Tick the sensor with many landed slices behind it, and with 100; in scratch ledgers and scratch Dagsters."""
    from kafka_assets.assets.bench import ticking
    from kafka_assets.audit.bench import Figure, database_url
    from kafka_assets.audit.scratch import scratch_ledger

    url = database_url(load_settings(), database)
    took: dict[tuple[int, int], list[float]] = {(new, size): [] for new in (0, 1) for size in (100, keys)}
    with err.status("preparing") as status, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sensors = {
            size: stack.enter_context(ticking(stack.enter_context(scratch_ledger(url)), folder / str(size), keys=size))
            for size in (100, keys)
        }
        for new in (0, 1):  # idle ones first: what is planned between them would be told apart from history
            for number in range(1, rounds + 1):
                status.update(f"round {number} of {rounds}")
                for size, sensor in sensors.items():  # in turns: the machine's neighbours favour neither
                    took[new, size].append(sensor(new))
    figures: list[Figure] = []
    for new, what in ((0, "idle tick"), (1, "tick with a new slice")):
        few, many = (statistics.median(took[new, size]) * 1000 for size in (100, keys))
        against = f"{what}, 100 keys"
        figures.append(Figure(against, round(few, 1), "ms"))
        figures.append(Figure(f"{what}, {keys} keys", round(many, 1), "ms", against, round(many / few, 3)))
    if as_json:
        print_json([asdict(figure) for figure in figures])
        return
    print_table(
        ("name", "value", "unit", "ratio", "against"), [asdict(figure) for figure in figures], title="best of all"
    )


@bench.command()
def ledger(
    database: Database = None,
    slices: Annotated[
        int, typer.Option(min=20_000, max=20_000_000, help="How many slices were landed before.")
    ] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="How often each operation is measured.")] = 25,
    as_json: AsJson = False,
) -> None:
    """Ask a ledger all that is ever asked of it, with so much history and with 10,000 slices; in scratch ledgers."""
    from kafka_assets.audit.bench import database_url
    from kafka_assets.audit.bench_ledger import bench_ledger

    url = database_url(load_settings(), database)
    with err.status("preparing") as status:
        figures = bench_ledger(url, slices=slices, rounds=rounds, say=status.update)
    if as_json:
        print_json([asdict(figure) for figure in figures])
        return
    rows = [
        {
            "operation": few.name.rpartition(",")[0],
            "unit": few.unit,
            "10,000": few.value,
            f"{slices:,}": many.value,
            "ratio": many.ratio,
        }
        for few, many in zip(figures[::2], figures[1::2], strict=True)
    ]
    said = f"the least of {rounds} rounds, both ledgers in turns, after one that warmed up; and the rows that were read"
    print_table(list(rows[0]), rows, title=said)


@bench.command()
def latency(
    records: Annotated[int, typer.Option(min=1, max=10_000, help="How many records, one after the other.")] = 20,
    every: Annotated[
        float, typer.Option(min=0.0, max=3600.0, help="Seconds from one to the next, on average: half of it, or more.")
    ] = 6.0,
    max_delay: Annotated[str, typer.Option(help="The stream's slices.max_delay.")] = "1s",
    together: Annotated[
        int, typer.Option(min=1, max=50_000, help="So many of about 200 bytes at once; the last of them is followed.")
    ] = 1,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Land a trickle by a sensor and runs, in a scratch topic, ledger and Dagster: record produced → row committed.

    And what each run cost: processor seconds, and memory of its own.
    """
    from kafka_assets.audit.bench import database_url
    from kafka_assets.lab.bench.latency import costs_of, figures_of, parts_of
    from kafka_assets.lab.bench.trickle import measure

    settings = load_settings()
    url = database_url(settings, database)
    with err.status("preparing") as status:
        found = measure(
            settings, url, records=records, every=every, max_delay=max_delay, together=together, say=status.update
        )
    parts, costs = parts_of(found.ways), costs_of(found.costs, found.seconds)
    if as_json:
        print_json([asdict(figure) for figure in (*figures_of(parts), *costs)])
        return
    rows = [
        {
            "part": part.name,
            "median s": round(part.median / 1000, 2),
            "p95 s": round(part.p95 / 1000, 2),
            "of the whole": f"{part.median / parts[0].median:.0%}",
            "records": part.records,
        }
        for part in parts
    ]
    said = f"{records} records" if together == 1 else f"{records} times {together:,} records"
    print_table(list(rows[0]), rows, title=f"{said}, max_delay {max_delay}")
    print_table(("name", "value", "unit"), [asdict(one) for one in costs], title=f"{len(found.costs)} runs")


@bench.command()
def compression(
    records: Annotated[
        int, typer.Option(min=1_000, max=5_000_000, help="How many JSON records of about 190 bytes.")
    ] = 200_000,
    as_json: AsJson = False,
) -> None:
    """Produce the same records with each compression: rate and bytes on the wire; in a topic that is deleted again."""
    from kafka_assets.audit.compression import bench_compression
    from kafka_assets.broker.connection import Connection

    with err.status("preparing") as status:
        figures = bench_compression(Connection.of(load_settings()), records=records, say=status.update)
    if as_json:
        print_json([asdict(figure) for figure in figures])
        return
    print_table(
        ("name", "value", "unit", "ratio", "against"),
        [asdict(figure) for figure in figures],
        title=f"{records:,} records, medians",
    )


@bench.command("live")
def live_(
    database: Database = None,
    records: Annotated[
        int, typer.Option(min=1_000, max=10_000_000, help="How many JSON records of about 200 bytes, in 2 partitions.")
    ] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each road is taken, in turns.")] = 3,
    batch_records: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Live mode's most records in one commit; else its own.")
    ] = None,
    record: Shape = "plain",
    as_json: AsJson = False,
) -> None:
    """Land a topic live, and by loops written by hand; in a scratch topic and a scratch database."""
    from kafka_assets.audit.bench import Figure, database_url
    from kafka_assets.audit.scratch import scratch_ledger
    from kafka_assets.broker.connection import Connection
    from kafka_assets.lab.bench.live_roads import bench_live

    settings = load_settings()
    url = database_url(settings, database)
    with err.status("preparing") as status, scratch_ledger(url) as engine:
        measured = bench_live(
            Connection.of(settings),
            engine,
            records=records,
            rounds=rounds,
            shape=record,
            batch=batch_records,
            say=status.update,
        )
    figures: list[Figure] = []
    for road in measured.rates:
        value, rival = measured.median(road), measured.against.get(road)
        ratio = None if rival is None else round(value / measured.median(rival), 3)
        figures.append(Figure(road.name, round(value), "rows/s", rival and rival.name, ratio))
    if as_json:
        print_json([asdict(figure) for figure in figures])
        return
    rows = [{**asdict(figure), "value": int(figure.value)} for figure in figures]
    title = f"{records:,} records, medians of {rounds} rounds"
    print_table(("name", "value", "unit", "ratio", "against"), rows, title=title)


@bench.command("run")
def run_(
    database: NewDatabase = "sqlite",
    records: Annotated[int, typer.Option(min=1_000, max=10_000_000, help="How many records, in 2 partitions.")] = (
        1_000_000
    ),
    record: Annotated[
        Literal["plain", "decimals", "wide"] | None,
        typer.Option(help="As for `bench live`; plain, or decimals for a function.", show_default=False),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="How often each road is taken, after those that warm up.")
    ] = 3,
    warm_ups: Annotated[
        int,
        typer.Option(
            min=0, max=100, help="How often before: Java's compiler is at work in the first rounds of a Spark."
        ),
    ] = 1,
    mode: Annotated[
        Literal["append", "upsert"],
        typer.Option(help="append: beside loops written by hand and others; upsert: of ids that come twice."),
    ] = "append",
    function: Annotated[
        bool,
        typer.Option("--function", help="Each road filters, joins a table of 10,000 rows, and calculates decimals."),
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.svg", dir_okay=False, writable=True, help="Draw the figures, too."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Land a topic by `kafka-assets run`, by loops written by hand and by what else there is, in turns.

    Broker, Spark and database are started in a folder of their own, and ended. What each road landed is compared with
    what was produced.
    """
    from kafka_assets.lab.bench.figure_plot import plot
    from kafka_assets.lab.bench.run_roads import Asked, bench_run, machine_load
    from kafka_assets.lab.ending import put_back
    from kafka_assets.services import local_services

    shape = record or ("decimals" if function else "plain")
    if function and (mode, shape) != ("append", "decimals"):
        raise typer.BadParameter(
            "the function takes records of --record decimals, in mode append", param_hint="--function"
        )
    if picture is not None and not picture.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {picture.parent}", param_hint="--plot")
    before = machine_load()
    asked = Asked(records=records, shape=shape, rounds=rounds, mode=mode, function=function, warm_ups=warm_ups)
    said = err.status("starting a broker, Spark and a database")
    with said as status, local_services() as services, put_back(services.stop):
        settings = _own_settings(services, database)
        figures = bench_run(
            settings, settings.database_url, asked, state=services.folder, before=before, say=status.update
        )
    what = f"{mode}, a function" if function else mode
    title = f"{database}, {records:,} records ({shape}), {what}: medians of {rounds} rounds, and their spread"
    if picture is not None:
        picture.write_text(plot(figures, title=title), encoding="utf-8")
    if as_json:
        print_json([asdict(figure) for figure in figures])
        return
    print_table(("name", "value", "unit", "ratio", "against"), [asdict(figure) for figure in figures], title=title)


@bench.command()
def load(
    streams: Annotated[int, typer.Option(min=1, max=1000, help="How many, each of one partition.")] = 4,
    rate: Annotated[
        float, typer.Option(min=0.1, max=10_000, help="Records a second of each stream, of about 200 bytes.")
    ] = 50,
    minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="How long, after the warm-up.")] = 5,
    warm_up: Annotated[
        float, typer.Option(min=0, max=3600, help="Seconds before: their records are landed, and in no figure of time.")
    ] = 60,
    max_delay: Annotated[
        str | None,
        typer.Option(help="The streams' slices.max_delay; else they declare none.", show_default=False),
    ] = None,
    database: NewDatabase = "sqlite",
    as_json: AsJson = False,
) -> None:
    """Produce into streams all the time, and land them as in use: record produced → row committed, and CPU by part.

    What `up --with dagster` starts is started in a folder of its own, and ended. Each record counts, but those of the
    first minute, which warms up. Exit 1 where a row is missing or there twice in the end.
    """
    from kafka_assets.lab.bench.load_figures import figures_of
    from kafka_assets.lab.bench.run_figures import Load, averages_of
    from kafka_assets.lab.bench.run_roads import machine_load
    from kafka_assets.lab.bench.stream_load import MINUTE, StreamLoad, bench_load
    from kafka_assets.lab.ending import put_back
    from kafka_assets.services import local_services

    before = machine_load()
    asked = StreamLoad(streams, rate, seconds=minutes * MINUTE, warm_up=warm_up, max_delay=max_delay)
    said = err.status("starting a broker, Spark and a database")
    with said as status, local_services() as services, put_back(services.stop):
        settings = _own_settings(services, database)
        measured = bench_load(
            settings,
            settings.database_url,
            asked,
            state=services.folder,
            say=status.update,
            tell=lambda line: err.print(line, markup=False, highlight=False, soft_wrap=True),
        )
    figures = [*figures_of(measured), *averages_of(Load(before, machine_load()))]
    if as_json:
        print_json([asdict(figure) for figure in figures])
    else:
        delay = "" if max_delay is None else f", max_delay {max_delay}"
        title = f"{database}, {streams} streams of {rate:g} records/s, {minutes:g} minutes{delay}"
        print_table(("name", "value", "unit", "ratio", "against"), [asdict(one) for one in figures], title=title)
    if measured.falls_behind:
        err.print(f"it falls behind: {measured.why_behind}", highlight=False, soft_wrap=True)
    if not measured.check.exact:
        raise typer.Exit(1)


def _own_settings(services: Services, database: Literal["sqlite", "postgresql", "mariadb", "mysql"]) -> Settings:
    """Of a project in the services' folder, with a new database."""
    from kafka_assets.settings import Settings

    project = services.folder / "project"
    project.mkdir()
    return Settings(
        project=project,
        streams=project / "defs",
        bootstrap_servers=services.bootstrap_servers,
        database_url=services.database(database),
        spark_remote=services.spark_remote,
    )
