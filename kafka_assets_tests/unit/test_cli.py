"""The command line's edge: exit codes, and errors that are no tracebacks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from kafka_assets import cli
from kafka_assets_tests.commands import signals_kept


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["kafka-assets", *arguments])
    with signals_kept(), pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those of a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    for name in ("BOOTSTRAP_SERVERS", "SPARK_REMOTE", "SPARK_MASTER", "DATABASE_URL", "STREAMS"):
        monkeypatch.delenv(f"KAFKA_ASSETS_{name}", raising=False)


def test_every_command_of_a_module_is_listed() -> None:
    made = [
        name for panel, homes in cli.PANELS.items() for home in set(homes.values()) for name in cli._made(panel, home)
    ]
    assert sorted(made) == sorted(cli._HOMES)


def test_a_command_waits_for_no_other_ones_module() -> None:
    program = "import sys; from kafka_assets import cli; cli._made('Landing', 'landing'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    there = {name.rpartition(".")[2] for name in done.stdout.split() if name.startswith("kafka_assets.cli.")}
    assert "landing" in there
    assert there.isdisjoint({"bench", "lab", "live"})


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


@pytest.mark.parametrize(
    ("written", "variable", "said"),
    [
        ("kafak = 1", "", "write kafka,"),
        ("bootstrap_servers = ", "", r"kafka_assets\.toml cannot be read"),
        ("[kafka]\n'security.protcol' = 'ssl'", "", r"security\.protcol.*did you mean 'security\.protocol'"),
        ("[kafka]\n'security.protocol' = 'sll'", "", r"librdkafka does not accept.*sll"),
        ("[kafka]\n'no.such.thing' = '1'", "", r"no\.such\.thing"),
        ("[kafka]\n'ssl.protocol' = 'TLS'", "", "the Java client's name"),
        ("spark_patience = 'long'", "", "'spark_patience' is not valid"),
        ("streams = 7", "", "'streams' is not valid"),
        ("", "SASL_PASWORD", r"sasl\.pasword.*did you mean 'sasl\.password'"),
    ],
)
def test_whatever_is_set_wrongly_exits_with_two(
    written: str, variable: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "kafka_assets.toml").write_text(written)
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    if variable:
        monkeypatch.setenv(f"KAFKA_ASSETS_KAFKA__{variable}", "CANARY")
    assert run(monkeypatch, "topics", "list") == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert re.search(said, shown), shown
    assert "CANARY" not in shown


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


@pytest.mark.slow  # what they import takes a second
@pytest.mark.parametrize(
    "command",
    [
        ["ps"], ["doctor"], ["streams"], ["lag"], ["slices", "orders"], ["quarantine", "list"], ["plan", "--dry-run"],
        ["replay", "orders", "--failed"], ["run"], ["down"], ["ps", "--url", "spark"], ["topics", "list"],
    ],
)  # fmt: skip
def test_a_command_that_finds_no_project_leaves_none_behind(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KAFKA_ASSETS_HOME")
    run(monkeypatch, *command)
    assert list(tmp_path.iterdir()) == []
    # With streams, too: a ledger is made by who lands, or by `db init`.
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs" / "orders.yaml").write_text(
        "type: kafka_assets.KafkaTopic\nattributes: {topic: orders, target: orders, schema: id BIGINT}\n"
    )
    if command != ["run"]:
        run(monkeypatch, *command)
        assert [one.name for one in tmp_path.rglob("*") if "__pycache__" not in one.parts] == ["defs", "orders.yaml"]


def test_the_version_is_printed_and_h_helps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"kafka-assets {version('kafka-assets')}\n"
    assert run(monkeypatch, "topics", "list", "-h") == 0
    assert "List topics" in capsys.readouterr().out


TYPO = "type: kafka_assets.KafkaTopc\nattributes: {topic: orders, target: orders, schema: id BIGINT}\n"
GOOD = "type: kafka_assets.KafkaTopic\nattributes: {topic: orders, target: orders, schema: id BIGINT}\n"


@pytest.mark.slow
@pytest.mark.parametrize("spark", [None, "sc://localhost:1"])
@pytest.mark.parametrize("how", [[], ["--until-caught-up"], ["--json"]])
@pytest.mark.parametrize(("declared", "code"), [(None, 0), (TYPO, 1)])
def test_a_run_of_no_stream_says_that_nothing_is_to_land_and_makes_nothing(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    declared: str | None,
    code: int,
    how: list[str],
    spark: str | None,
) -> None:
    if spark:
        monkeypatch.setenv("KAFKA_ASSETS_SPARK_REMOTE", spark)
    (tmp_path / "defs").mkdir()
    if declared:
        (tmp_path / "defs" / "orders.yaml").write_text(declared)
    assert run(monkeypatch, "run", *how) == code
    shown = capsys.readouterr()
    assert f"nothing to land: {tmp_path / 'defs'} declares no stream" in shown.err.replace("\n", "")
    assert ("KafkaTopc" in shown.err) is (declared is not None)
    assert "Spark" not in shown.err
    if "--json" in how:
        told = json.loads(shown.out)
        assert (told["runs"], told["partitions"]) == (0, [])
    else:
        assert shown.out == ""
    assert [one.name for one in tmp_path.iterdir()] == ["defs"]


@pytest.mark.slow
@pytest.mark.parametrize("command", [["run", "paymnts"], ["replay", "paymnts", "--failed"], ["plan", "paymnts"]])
def test_a_name_that_no_stream_has_is_told_before_services_that_are_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs" / "orders.yaml").write_text(GOOD)
    assert run(monkeypatch, *command) == 2
    shown = capsys.readouterr().err
    assert "there is no stream 'paymnts'" in shown
    assert "known" not in shown


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_told_before_a_spark_that_is_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs" / "orders.yaml").write_text(GOOD)
    (tmp_path / "defs" / "wrong.yaml").write_text(TYPO)
    assert run(monkeypatch, "run") == 1
    shown = capsys.readouterr().err
    assert 0 <= shown.index("KafkaTopc") < shown.index("no Spark is known")


@pytest.mark.slow
@pytest.mark.parametrize("command", [["run"], ["plan"], ["plan", "--dry-run"], ["topics", "list"], ["live", "orders"]])
def test_a_property_that_is_none_is_told_before_services_that_are_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs" / "orders.yaml").write_text(GOOD)
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__LINGER_MSS", "5")
    assert run(monkeypatch, *command) in {1, 2}
    shown = capsys.readouterr().err
    assert "linger.mss" in shown
    assert "known" not in shown


@pytest.mark.slow
def test_a_preview_refuses_a_database_whose_folder_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs" / "orders.yaml").write_text(GOOD)
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", f"sqlite:///{tmp_path}/nofolder/x.db")
    for command in (["plan", "--dry-run"], ["streams"], ["lag"], ["slices", "orders"], ["quarantine", "list"]):
        assert run(monkeypatch, *command) == 1
        shown = capsys.readouterr().err.replace("\n", " ")
        assert "nofolder for the database is not there" in shown, command
