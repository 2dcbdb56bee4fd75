"""What the commands print with: tables to read, JSON for programs, errors on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kafka_assets.errors import KafkaAssetsError

out = Console()
err = Console(stderr=True)


def report(error: KafkaAssetsError) -> None:
    """Print an error as what happened, why, and what to do."""
    err.print(f"[bold red]error[/] {escape(error.what)}", soft_wrap=True, highlight=False)
    if error.why:
        err.print(f"  [dim]why[/] {escape(error.why)}", soft_wrap=True, highlight=False)
    if error.cure:
        err.print(f"  [green]do [/] {escape(error.cure)}", soft_wrap=True, highlight=False)


def print_json(value: Any) -> None:
    """Print plain JSON: no colour, no wrapping, nothing else on stdout."""
    print(json.dumps(value, default=str, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, title: str | None = None) -> None:
    """Print rows under their columns; numbers stand to the right."""
    table = Table(title=title, title_justify="left")
    listed = list(rows)
    for column in columns:
        numeric = bool(listed) and all(isinstance(row.get(column), int | float) for row in listed)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    out.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return escape(str(value))
