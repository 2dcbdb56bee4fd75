"""Commands that SIGTERM and Ctrl-C end within seconds, and say so."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import typer

from kafka_assets.cli.console import report
from kafka_assets.errors import Permanent


@contextmanager
def ends_on_signals() -> Generator[None]:
    """Landing in this process: a signal ends it, with 128 and the signal's number, and nothing counts against a slice.

    What is imported in the block may be interrupted, too, and is of no use afterwards.
    """
    from kafka_assets.assets.ending import ended_by_signals
    from kafka_assets.broker.stopping import Stopped

    try:
        with ended_by_signals():
            yield
    except Stopped as stopped:
        report(
            Permanent(
                f"stopped by {stopped.number.name}",
                why="what is committed stays; what was being landed was given back, and counts as no failure",
                cure="run it again when it suits you: it goes on from there",
            )
        )
        raise typer.Exit(128 + stopped.number) from None
