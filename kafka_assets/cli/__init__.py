"""The command line: parse, call, print. Each command's module imports what is heavy inside its function."""

from __future__ import annotations

import sys

import typer

from kafka_assets.cli import (
    bench,
    consume,
    database,
    demo,
    doctor,
    groups,
    importing,
    landing,
    listen,
    live,
    moves,
    produce,
    quarantine,
    stack,
    standing,
    topics,
)
from kafka_assets.cli.console import report
from kafka_assets.errors import KafkaAssetsError, UsageError

app = typer.Typer(
    name="kafka-assets",
    help="Kafka topics land in SQL tables exactly once, through Spark, as Dagster assets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
COMMANDS = (
    *(stack, demo, database, landing, live, standing, moves, importing, quarantine),
    *(topics, groups, produce, consume, listen, doctor, bench),
)
for module in COMMANDS:
    module.register(app)


def main() -> None:
    """Run the command line; exit with 0, 1 (a finding or a failure) or 2 (bad usage)."""
    try:
        app(prog_name="kafka-assets")
    except KafkaAssetsError as error:
        report(error)
        sys.exit(2 if isinstance(error, UsageError) else 1)
