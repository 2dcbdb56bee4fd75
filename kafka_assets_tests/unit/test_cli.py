"""The command line's edge: exit codes, and errors that are no tracebacks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kafka_assets import cli


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["kafka-assets", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    for name in ("BOOTSTRAP_SERVERS", "SPARK_REMOTE", "SPARK_MASTER", "DATABASE_URL", "STREAMS"):
        monkeypatch.delenv(f"KAFKA_ASSETS_{name}", raising=False)


@pytest.mark.parametrize(
    "wrong", [["nonsense"], ["up", "--brokers", "many"], ["up", "--with", "oracle"], ["demo", "--records", "0"]]
)
def test_bad_usage_exits_with_two_and_no_traceback(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *wrong) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert shown.err.strip()
    assert shown.out == ""


def test_an_error_says_what_happened_and_what_to_do_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "db", "init", "--url", "oracle://x/y") == 1
    shown = capsys.readouterr()
    assert "error" in shown.err
    assert "sqlite" in shown.err
    assert shown.out == ""


def test_json_is_json_and_nothing_else(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "ps", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_demo_writes_into_no_cluster_but_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kafka_assets.cli import demo
    from kafka_assets.errors import UsageError

    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "production:9092")
    with pytest.raises(UsageError, match="production"):
        demo._local("127.0.0.1:1")  # pyright: ignore[reportPrivateUsage]
