"""The command line: parse, call, print. Each command's module imports what is heavy inside its function."""

from __future__ import annotations

import atexit
import gc
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from kafka_assets.cli import (
    bench,
    consume,
    database,
    demo,
    doctor,
    groups,
    importing,
    lab,
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
from kafka_assets.cli.console import begin, end, forgive_encodings, report
from kafka_assets.errors import KafkaAssetsError, UsageError

app = typer.Typer(
    name="kafka-assets",
    help="Kafka topics land in SQL tables exactly once, through Spark, as Dagster assets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PANELS = {
    "Landing": (demo, landing, live, standing, moves, importing, quarantine, database),
    "Kafka": (topics, groups, produce, consume, listen),
    "Services and checks": (stack, doctor),
    "Laboratory": (bench, lab),
}
for panel, modules in PANELS.items():
    for module in modules:
        module.register(app)
    for command in (*app.registered_commands, *app.registered_groups):
        if not isinstance(command.rich_help_panel, str):
            command.rich_help_panel = panel


def main() -> None:
    """Run the command line; exit with 0, 1 (a finding or a failure) or 2 (bad usage)."""
    # Python looks for garbage when it ends, in all that was imported: half a second, for what ends with the process.
    atexit.register(gc.freeze)
    forgive_encodings()
    begin()
    try:
        app(prog_name="kafka-assets")
    except SystemExit as ended:
        sys.exit(ended.code or end())
    except KafkaAssetsError as error:
        report(error)
        sys.exit(2 if isinstance(error, UsageError) else 1)


def _version(asked: bool) -> None:
    if asked:
        print(f"kafka-assets {version('kafka-assets')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and nothing else.")
    ] = False,
) -> None:
    """What stands before a command."""
