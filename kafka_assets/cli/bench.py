"""`kafka-assets bench`: benchmarks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kafka_assets.cli.console import err, print_json, print_table
from kafka_assets.settings import load_settings

bench = typer.Typer(help="Benchmarks: each figure beside its limit, measured in the same run.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(bench, name="bench")


@bench.command()
def publish(
    database: Annotated[
        str | None,
        typer.Option(
            help="sqlite, postgresql, mariadb or mysql of the local services, or a SQLAlchemy URL; "
            "else the database in the settings."
        ),
    ] = None,
    records: Annotated[
        int, typer.Option(min=1_000, max=10_000_000, help="How many records of about 200 bytes the slice has.")
    ] = 500_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else on stdout.")] = False,
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
