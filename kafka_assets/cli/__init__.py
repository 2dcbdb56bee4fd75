"""The command line: parse, call, print. Each command's module imports what is heavy inside its function."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Mapping, MutableMapping
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kafka_assets.cli.console import begin, end, forgive_encodings, report
from kafka_assets.errors import KafkaAssetsError, UsageError

PANELS: Mapping[str, Mapping[str, str]] = {
    "Landing": {
        "demo": "demo",
        "plan": "landing",
        "run": "landing",
        "live": "live",
        "streams": "standing",
        "lag": "standing",
        "slices": "standing",
        "replay": "moves",
        "skip": "moves",
        "import-offsets": "importing",
        "quarantine": "quarantine",
        "db": "database",
    },
    "Kafka": {
        "offsets": "topics",
        "produce": "produce",
        "consume": "consume",
        "listen": "listen",
        "topics": "topics",
        "groups": "groups",
    },
    "Services and checks": {"up": "stack", "down": "stack", "ps": "stack", "doctor": "doctor"},
    "Laboratory": {"bench": "bench", "lab": "lab"},
}
"""Each command's module, in the order in which `--help` shows the commands."""
_HOMES = {name: (panel, home) for panel, homes in PANELS.items() for name, home in homes.items()}


class Commands(TyperGroup):
    """All commands; the module of each is imported, and made ready by Typer, when somebody asks for it.

    For all of them together that takes longer than many a command.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _made(*_HOMES[cmd_name])[cmd_name] if cmd_name in _HOMES else None

    @property
    def commands(self) -> MutableMapping[str, Any]:  # type: ignore[override]
        return {name: _made(*home)[name] for name, home in _HOMES.items()}

    @commands.setter
    def commands(self, given: object) -> None:
        """Typer has none to give."""


@cache
def _made(panel: str, home: str) -> Mapping[str, Any]:
    """The commands of a module."""
    part = typer.Typer()
    import_module(f"{__name__}.{home}").register(part)
    for command in (*part.registered_commands, *part.registered_groups):
        if not isinstance(command.rich_help_panel, str):
            command.rich_help_panel = panel
    return typer.main.get_group(part).commands


app = typer.Typer(
    name="kafka-assets",
    cls=Commands,
    help="Kafka topics land in SQL tables exactly once, through Spark, as Dagster assets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
