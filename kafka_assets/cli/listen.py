"""`kafka-assets listen`: runs the listeners of a module until it is stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka_assets.cli.console import err
from kafka_assets.errors import UsageError


def register(app: typer.Typer) -> None:
    app.command()(listen)


def listen(
    module: Annotated[str, typer.Argument(help="A module with functions under @kafka_listener, as my.listeners.")],
    names: Annotated[list[str] | None, typer.Argument(help="Only these functions of it.")] = None,
    idle: Annotated[
        float | None, typer.Option(help="End when all was read, and no more came in so many seconds")
    ] = None,
) -> None:
    """Run functions that are declared with @kafka_listener; SIGTERM and Ctrl-C end them after what is in hand."""
    from kafka_assets.live.listening import run_listeners

    listeners = _listeners(module, names or [])
    err.print(f"listening: {', '.join(sorted(listeners))}")
    run_listeners(*listeners.values(), idle=idle)


def _listeners(module: str, names: list[str]) -> dict[str, Any]:
    from importlib import import_module

    from kafka_assets.live.listener import Listener

    sys.path.insert(0, str(Path.cwd()))
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"there is no module {module!r}", why=str(error), cure="name it as `import` does, from this folder"
        ) from error
    there = {name: one for name, one in vars(found).items() if isinstance(one, Listener)}
    if missing := [name for name in names if name not in there]:
        raise UsageError(
            f"{module} has no listener {missing[0]!r}",
            why=f"it has {', '.join(sorted(there)) or 'none'}",
            cure="name one of those, or none for all of them; a listener is a function with @kafka_listener",
        )
    if not there:
        raise UsageError(f"{module} has no listener", cure="declare a function with @kafka_listener")
    return {name: one for name, one in there.items() if not names or name in names}
