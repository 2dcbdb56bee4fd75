"""`up`, `down` and `ps`: the local services of this project."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from kafka_assets.cli.asking import AsJson, Yes, confirm
from kafka_assets.cli.console import err, print_json, print_table
from kafka_assets.errors import UsageError
from kafka_assets.masks import masked_address
from kafka_assets.settings import load_settings, state_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from kafka_assets.devstack import ServiceStatus


DATABASES = ("postgresql", "mariadb", "mysql")


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(down)
    app.command()(ps)


class Narration:
    """Tells on stderr what the devstack does: a line for each event, a bar while it fetches."""

    def __init__(self) -> None:
        columns = (TextColumn("fetching"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Progress(*columns, console=err, transient=True)
        self._task = self._bar.add_task("fetching", total=None, visible=False)

    def __enter__(self) -> Narration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def say(self, message: str) -> None:
        err.print(f"· {message}", markup=False, highlight=False, soft_wrap=True)

    def fetched(self, done: int, total: int) -> None:
        # Started by the first news: a bar that was never shown leaves an empty line.
        self._bar.start()
        self._bar.update(self._task, completed=done, total=total, visible=done < total)


def up(
    with_: Annotated[
        str,
        typer.Option(
            "--with", metavar="dagster|postgresql|mariadb|mysql|registry", help="More services, with commas between."
        ),
    ] = "",
    brokers: Annotated[int | None, typer.Option(metavar="1|3", help="As it was, where there is a cluster.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start the local services: a broker and a warm Spark where the settings name no other, and what --with names."""
    from kafka_assets import devstack

    more = [name.strip() for name in with_.split(",") if name.strip()]
    settings = load_settings()
    needed = [*devstack.needed(settings), *(["kafka"] if brokers else [])]
    for name in devstack.DEFAULT:
        if name not in (*needed, *more):
            err.print(f"· {name} is not started: the settings name another (--with {name} starts one)", markup=False)
    with Narration() as narration:
        running = devstack.up(settings.state, [*needed, *more], brokers=brokers, progress=narration)
    _print(running.services, as_json=as_json)
    for name in more:
        if name in DATABASES and running.urls[name] != settings.database_url:
            err.print(
                f"· to land in it: export KAFKA_ASSETS_DATABASE_URL=$(kafka-assets ps --url {name})", markup=False
            )


def down(
    delete: Annotated[bool, typer.Option("--delete", help="Remove their data, too.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Stop the local services; their data stays unless --delete is given."""
    from kafka_assets import devstack

    state = state_folder()
    if delete:
        confirm(f"Remove all topics and databases of the services in {state}?", yes=yes)
    with Narration() as narration:
        stopped = devstack.down(state, delete=delete, progress=narration)
    if as_json:
        print_json({"stopped": stopped, "deleted": delete})
    elif not stopped:
        err.print("no services were up")


def ps(
    url: Annotated[
        str | None, typer.Option("--url", metavar="SERVICE", help="Only its whole URL, with its password or token.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the local services; exit 1 when one of them is dead, silent or slow."""
    from kafka_assets import devstack

    services = devstack.status(load_settings().state, asked=url is None)
    if url is not None:
        print(_one(services, url).url)
        return
    _print(services, as_json=as_json)
    if any(service.state in ("dead", "silent", "slow") for service in services):
        raise typer.Exit(1)


def _print(services: Sequence[ServiceStatus], *, as_json: bool) -> None:
    if as_json:
        print_json([{**asdict(service), "url": masked_address(service.url)} for service in services])
        return
    rows = [_row(service) for service in services]
    if rows:
        print_table(["service", "state", "pid", "address", "log"], rows)
    else:
        err.print("no services are up; `kafka-assets up` starts them")


def _one(services: Sequence[ServiceStatus], name: str) -> ServiceStatus:
    for service in services:
        if service.name == name:
            return service
    raise UsageError(
        f"there is no service {name!r} here",
        why=f"there are: {', '.join(service.name for service in services) or 'none'}",
        cure=f"`kafka-assets up --with {name}` starts it" if name in DATABASES else "name one of them",
    )


def _row(service: ServiceStatus) -> dict[str, Any]:
    return {
        "service": service.name,
        "state": service.state,
        "address": masked_address(service.url),
        "pid": str(service.pid),
        "log": _near(service.log),
    }


def _near(path: Path) -> str:
    """A path as short as it can be typed here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
