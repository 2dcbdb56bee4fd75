"""What commands refuse before they ask anybody, and what they ask before they destroy; nobody is there to answer."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from kafka_assets.broker import groups
from kafka_assets.cli.asking import confirm
from kafka_assets.errors import UsageError
from kafka_assets_tests.commands import Commands

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    """In an empty project, with a broker that is down."""
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", NOWHERE)
    monkeypatch.setenv("KAFKA_ASSETS_SPARK_REMOTE", "sc://localhost:1")
    for name in ("DATABASE_URL", "SPARK_MASTER", "STREAMS"):
        monkeypatch.delenv(f"KAFKA_ASSETS_{name}", raising=False)
    monkeypatch.setattr("kafka_assets.broker.admin.ALL_DOWN_GRACE", 0.2)
    return Commands(monkeypatch, capsys)


@pytest.mark.parametrize("arguments", [["streams"], ["lag"], ["run"], ["db", "init"], ["plan"], ["topics", "list"]])
def test_a_mistyped_setting_ends_each_command_before_it_does_anything(
    command: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str]
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_DATABSE_URL", "sqlite:///elsewhere.db")
    said = command(*arguments, code=2)
    assert "KAFKA_ASSETS_DATABSE_URL" in said.err and "write KAFKA_ASSETS_DATABASE_URL" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topics", "create", ""], "is no name of a topic"),
        (["topics", "create", "a b"], "is no name of a topic"),
        (["topics", "create", "t", "--partitions", "100001"], "Invalid value for '--partitions'"),
        (["topics", "create", "t", "--partitions", str(10**12)], "Invalid value for '--partitions'"),
        (["topics", "create", "t", "--replication-factor", "10001"], "Invalid value for '--replication-factor'"),
        (["topics", "describe", ""], "is no name of a topic"),
        (["topics", "describe", "\udcff"], "is no name of a topic"),
        (["topics", "alter", "", "--partitions", "2"], "is no name of a topic"),
        (["topics", "alter", "t", "--partitions", "100001"], "Invalid value for '--partitions'"),
        (["topics", "delete", "", "--yes"], "is no name of a topic"),
        (["offsets", ""], "is no name of a topic"),
        (["offsets", "t", "--at", "1" + "0" * 25], "is no time"),
        (["offsets", "t", "--at", "1969-12-31T23:59:59.999"], "is no time"),
        (["consume", ""], "is no name of a topic"),
        (["consume", "t", "--partition", str(2**31)], "Invalid value for '--partition'"),
        (["groups", "describe", ""], "is no name of a group"),
        (["groups", "delete", "\udcff"], "is no name of a group"),
        (["groups", "reset", "g", "", "--to", "earliest"], "is no name of a topic"),
        (["db", "sql", "--dialect", "oracle"], "is not one of"),
        (["lab", "semantics", "nonsense"], "there is no experiment 'nonsense'"),
        (["lab", "replication", "nonsense"], "there is no experiment 'nonsense'"),
        (["lab", "rebalance", "nonsense"], "there is no experiment 'nonsense'"),
        (["listen", "no.such.module"], "there is no module"),
    ],
    ids=lambda given: " ".join(given).encode("ascii", "replace").decode()[:40] if isinstance(given, list) else "",
)
def test_a_wrong_word_is_said_in_words(command: Commands, arguments: list[str], said: str) -> None:
    answer = command(*arguments, code=2)
    assert said in " ".join(answer.err.replace("│", " ").split())
    assert answer.out == ""


@pytest.mark.slow  # what they import takes a second
@pytest.mark.parametrize("benchmark", ["publish", "tick", "latency", "live"])
def test_a_benchmark_names_the_databases_that_there_are(command: Commands, benchmark: str) -> None:
    assert "there is no database 'oracle'" in command("bench", benchmark, "--database", "oracle", code=2).err
    assert "up --with mariadb" in command("bench", benchmark, "--database", "mariadb", "--json", code=2).err


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["table", "json"])
def test_removing_all_data_asks_first_and_nobody_is_no_yes(command: Commands, as_json: list[str]) -> None:
    said = command("down", "--delete", *as_json, code=2)
    assert "nothing was done" in said.err and "--yes" in said.err
    assert said.out == ""


@pytest.mark.parametrize("answer", ["y\n", "Yes\n", "y"])
def test_a_question_is_asked_on_stderr_and_only_a_yes_goes_on(
    answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    confirm("Really?", yes=False)
    shown = capsys.readouterr()
    assert (shown.out, "Really? [y/N]" in shown.err) == ("", True)
    for other in ("n\n", "\n", "yesterday\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(other))
        with pytest.raises(UsageError, match="the answer was no"):
            confirm("Really?", yes=False)
    for nobody in (io.StringIO(), None):
        monkeypatch.setattr("sys.stdin", nobody)
        with pytest.raises(UsageError, match="nobody answered"):
            confirm("Really?", yes=False)


@pytest.mark.parametrize("arguments", [["init"], ["init", "--json"], ["upgrade"]], ids=" ".join)
def test_a_database_that_is_down_is_said_in_words(command: Commands, arguments: list[str]) -> None:
    said = command("db", *arguments, "--url", f"postgresql://me:hidden@{NOWHERE}/mine", code=1)
    assert NOWHERE in said.err and "do" in said.err
    assert "hidden" not in said.err
    assert said.out == ""


def test_the_ledger_is_made_once(command: Commands, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    made = command("db", "init", "--url", url, "--json").json
    assert (made["database"], made["before"]) == (f"sqlite+pysqlite:///{tmp_path / 'new.db'}", None)
    assert command("db", "init", "--url", url, "--json").json == {**made, "before": made["revision"]}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["latency"], ["live"], ["compression", "--records", "1000"]], ids=" ".join)
def test_a_benchmark_without_its_broker_says_so(command: Commands, arguments: list[str]) -> None:
    said = command("bench", *arguments, "--json", code=1)
    assert NOWHERE in said.err and "kafka-assets up" in " ".join(said.err.split())
    assert said.out == ""


@pytest.mark.slow
def test_listeners_need_a_broker_at_the_beginning(
    command: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"listeners_of_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(
        "from kafka_assets import kafka_listener\n\n\n"
        "@kafka_listener(topics='orders', group='g')\ndef handle(record):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for more in ([], ["--idle", "1"]):
        said = command("listen", name, *more, code=1)
        assert NOWHERE in said.err and "kafka-assets up" in " ".join(said.err.split())
    assert "@kafka_listener" in command("listen", name, "nobody", code=2).err


def test_a_list_of_groups_with_holes_is_a_failure(command: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    known = groups.ListedGroups([groups.ListedGroup("g", "empty", "classic")], ["it timed out (_TIMED_OUT)"])
    monkeypatch.setattr(groups, "list_groups", lambda connection: known)
    said = command("groups", "list", "--json", code=1)
    assert [one["group"] for one in said.json] == ["g"]
    assert "a broker did not say which groups it has: it timed out" in said.err
