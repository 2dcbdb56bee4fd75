"""`kafka-assets produce`, used wrongly: nothing is sent, and it says what to do instead. No broker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kafka_assets import cli
from kafka_assets.cli import produce
from kafka_assets.errors import Permanent


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    Path("lines.txt").write_text("1\n")


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["kafka-assets", "produce", "orders", "lines.txt", *arguments])
    with pytest.raises(SystemExit) as exited:
        cli.main()
    return exited.value.code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--key-separator", ""), "--key-separator is empty"),
        (("--timeout", "inf"), "at most 2147483"),
        ((".",), "there is no file '.'"),
    ],
)
def test_bad_usage_ends_with_2_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert ended(monkeypatch, *arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_file_that_this_user_may_not_read_is_bad_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != "lines.txt")  # root may read everything
    assert ended(monkeypatch) == 2
    assert "'lines.txt' cannot be read" in capsys.readouterr().err


def test_a_wrong_time_in_the_settings_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__MESSAGE_TIMEOUT_MS", "abc")
    assert ended(monkeypatch) == 1
    assert "message.timeout.ms" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_on_is_said_by_its_name(tmp_path: Path) -> None:
    lines = produce._lines(["lines.txt", str(tmp_path)])
    assert next(lines) == (b"1", "lines.txt", 1)
    with pytest.raises(Permanent, match="cannot be read on"):
        next(lines)
