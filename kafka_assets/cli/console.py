"""What the commands print with: tables to read, JSON for programs, errors on stderr.

Records come from anybody. What a terminal would obey in them (escape sequences that set its title or its clipboard,
marks that turn the reading direction) is shown as its escape, and never sent.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kafka_assets.errors import KafkaAssetsError

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, marks of direction, and halves of surrogate pairs."""
_ALARMING = ("dead", "failed", "silent", "lost")
_BORDERS = 3
"""What a column of a boxed table is wider than its text, with its share of the lines."""


def printable(text: str) -> str:
    """The text without what a terminal obeys: each such character as its escape, \\x1b or \\u202e."""
    return _OBEYED.sub(lambda found: _escaped(found[0]), text)


def _escaped(letter: str) -> str:
    return f"\\x{ord(letter):02x}" if ord(letter) < 256 else f"\\u{ord(letter):04x}"


class _Screen(Console):
    """A console on which no text can move the cursor."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **options)


out = _Screen()
err = _Screen(stderr=True)


def forgive_encodings() -> None:
    """Let a letter that the terminal's encoding lacks be its escape there, not the end of the command."""
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")


_worst = 0
"""How the command ends at the best."""


def ends_with(code: int) -> None:
    """Have the command end with this, and go on: what else it does is done all the same."""
    global _worst  # noqa: PLW0603 - a command is a process
    _worst = max(_worst, code)


def begin() -> None:
    """Nothing was found yet that a command must end with."""
    global _worst  # noqa: PLW0603
    _worst = 0


def end() -> int:
    """What a command ends with that has done its work."""
    return _worst


def report(error: KafkaAssetsError) -> None:
    """Print an error as what happened, why, and what to do."""
    err.print(f"[bold red]error[/] {escape(error.what)}", soft_wrap=True, highlight=False)
    if error.why:
        err.print(f"  [dim]why[/] {escape(error.why)}", soft_wrap=True, highlight=False)
    if error.cure:
        err.print(f"  [green]do [/] {escape(error.cure)}", soft_wrap=True, highlight=False)


def print_json(value: Any) -> None:
    """Print plain JSON: no colour, no wrapping, nothing else on stdout; it is the same value, safely spelt."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    print(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def print_text(text: str) -> None:
    """Print a line of data: to a pipe as it is, to a terminal without what that would obey."""
    print(printable(text) if sys.stdout.isatty() else text)


def print_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, title: str | None = None) -> None:
    """Print rows under their columns; numbers stand to the right.

    With lines around them where a terminal has room for it; else, and in a pipe, without, each row on a line of its
    own: no word is broken.
    """
    listed = list(rows)
    cells = [[_cell(row.get(column)) for column in columns] for row in listed]
    right = [bool(listed) and all(isinstance(row.get(column), int | float) for row in listed) for column in columns]
    lines = [[line for cell in column for line in cell.splitlines() or [""]] for column in zip(*cells, strict=True)]
    widths = [
        max(map(cell_len, [name, *column]))
        for name, column in zip(columns, lines or [[] for _ in columns], strict=True)
    ]
    if out.is_terminal and sum(widths) + _BORDERS * len(widths) + 1 <= out.width:
        _print_boxed(columns, cells, right, title=title)
    else:
        _print_plain(columns, cells, right, title=title)


def _print_boxed(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], *, title: str | None
) -> None:
    table = Table(title=title and escape(title), title_justify="left")
    for column, numeric in zip(columns, right, strict=True):
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(f"[red]{cell}[/]" if cell in _ALARMING else escape(cell) for cell in row))
    out.print(table)


def _print_plain(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], *, title: str | None
) -> None:
    flat = [list(columns), *([cell.replace("\n", "\\n") for cell in row] for row in cells)]
    widths = [max(map(cell_len, column)) for column in zip(*flat, strict=True)]
    if title:
        out.print(title, markup=False, highlight=False, soft_wrap=True)
    for row in flat:
        padded = [
            " " * (width - cell_len(cell)) + cell if numeric else cell + " " * (width - cell_len(cell))
            for cell, width, numeric in zip(row, widths, right, strict=True)
        ]
        out.print("  ".join(padded).rstrip(), markup=False, highlight=False, soft_wrap=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC) if value.tzinfo else value:%Y-%m-%d %H:%M:%S}"
    return printable(str(value))
