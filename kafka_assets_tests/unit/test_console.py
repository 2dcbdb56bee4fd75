"""What is printed: nothing that a terminal obeys, no broken words, the same values in JSON."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from kafka_assets.cli import console
from kafka_assets.errors import KafkaAssetsError

HOSTILE = "\x1b]0;title\x07\x1b[2J red \x9b31m \x7f \u202egnp.exe \ud800"


def on_terminal(columns: int, show: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal of this width is sent."""
    screen = console._Screen(file=io.StringIO(), force_terminal=True, width=columns)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(console, "out", screen)
    show()
    return screen.file.getvalue()  # type: ignore[attr-defined]


def test_nothing_of_a_record_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(("value",), [{"value": HOSTILE}], title=HOSTILE)
    console.out.print(HOSTILE, markup=False)
    console.report(KafkaAssetsError(HOSTILE, why=HOSTILE, cure=HOSTILE))
    shown = capsys.readouterr()
    for told in (shown.out, shown.err):
        assert "\\x1b]0;title\\x07" in told and "\\x9b31m" in told and "\\u202egnp.exe" in told
        assert not set(told) & set("\x1b\x07\x7f\x9b\u202e\ud800")


def test_json_is_the_same_value_without_a_character_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"value": HOSTILE})
    told = capsys.readouterr().out
    assert json.loads(told) == {"value": HOSTILE}
    assert not set(told) & set("\x1b\x07\x7f\x9b\u202e\ud800")


@pytest.mark.slow
def test_a_pipe_gets_the_bytes_of_a_record_and_a_terminal_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    program = "from kafka_assets.cli.console import print_text; print_text('\\x1b[2J')"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"\x1b[2J\n"
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", program], stdout=theirs, check=True)
    assert os.read(ours, 1000) == b"\\x1b[2J\r\n"
    os.close(ours)
    os.close(theirs)


def test_a_table_has_lines_where_there_is_room_and_else_no_broken_word(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"stream": "payments_yaml", "state": "committed", "read": 20_000}

    def show() -> None:
        console.print_table(tuple(row), [row, row])

    assert "│ payments_yaml │" in on_terminal(80, show, monkeypatch)
    narrow = on_terminal(20, show, monkeypatch)
    assert narrow.splitlines() == [
        "stream         state        read",
        "payments_yaml  committed  20,000",
        "payments_yaml  committed  20,000",
    ]


def test_a_row_in_a_pipe_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    console.print_table(("why", "at"), [{"why": "one\ntwo", "at": at}, {"why": None, "at": at}])
    assert capsys.readouterr().out.splitlines() == [
        "why       at",
        "one\\ntwo  2026-01-02 03:04:05",
        "          2026-01-02 03:04:05",
    ]


def test_a_table_without_rows_has_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(("a", "b"), [])
    assert capsys.readouterr().out == "a  b\n"


def test_a_letter_that_the_terminal_cannot_show_ends_no_command() -> None:
    program = "from kafka_assets.cli import console; console.forgive_encodings(); console.print_text('\\xf6'); "
    program += "console.err.print('\\xf6')"
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, b"\\xf6\n", b"\\xf6\n")
