"""`kafka-assets doctor`: checks with cures."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from kafka_assets.cli.console import err, print_json, print_table


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Let Spark answer a query, not only accept a connection.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else on stdout.")] = False,
) -> None:
    """Check this machine, the settings and the services; exit with 1 if something is broken."""
    from kafka_assets.audit.doctor import examine

    with err.status("looking"):
        checks = list(examine(deep=deep))
    rows = [asdict(check) for check in checks]
    if as_json:
        print_json(rows)
    else:
        print_table(("status", "check", "detail", "cure"), rows)
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(1)
