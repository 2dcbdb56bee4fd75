"""`kafka-assets doctor`: checks with cures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_assets.cli.console import err, print_json, print_table

if TYPE_CHECKING:
    from kafka_assets.audit.doctor import Check


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
        checks = [*examine(deep=deep), *_streams()]
    rows = [asdict(check) for check in checks]
    if as_json:
        print_json(rows)
    else:
        print_table(("status", "check", "detail", "cure"), rows)
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(1)


def _streams() -> Iterator[Check]:
    """Whether the project's files can be read, each by itself."""
    from kafka_assets.assets.folder import broken_in, load_assets, streams_in
    from kafka_assets.audit.doctor import Check
    from kafka_assets.errors import SettingsError
    from kafka_assets.settings import load_settings

    try:
        folder = load_settings().streams
    except SettingsError:
        return  # told by a check of its own
    if not folder.is_dir():
        return
    declared = load_assets(folder)
    names = [stream.name for stream in streams_in(declared)]
    yield Check(
        "streams", "ok" if names else "info", f"{len(names)} are declared: {', '.join(sorted(names)) or 'none'}"
    )
    for one in broken_in(declared):
        error = one.error
        said = " · ".join(part for part in (error.what, error.why) if part)
        yield Check("streams", "failed", said, error.cure)
