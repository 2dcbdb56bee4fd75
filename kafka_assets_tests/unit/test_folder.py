"""A file that cannot be read stops no other: it is told with its line, and why, wherever streams are looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from kafka_assets import build_definitions, load_assets
from kafka_assets.assets.folder import broken_in, streams_in
from kafka_assets.cli import doctor
from kafka_assets_tests.commands import Commands

HEAD = """type: kafka_assets.KafkaTopic
attributes:
  topic: t
"""
GOOD = (
    HEAD
    + """  target: t
  schema: "id BIGINT"
"""
)
PYTHON = """from kafka_assets import kafka_asset


@kafka_asset(topic="p", target="p", schema="id BIGINT"{more})
def p(records):
    return records
"""


@pytest.mark.parametrize(
    ("text", "line", "what", "cure"),
    [
        ("a:\n  b: c: d\n", 2, "mapping values are not allowed", "correct it there"),
        (HEAD + "  target: t\n  shcema: x\n", 5, "no attribute 'shcema' · did you mean 'schema'?", "known attributes"),
        (HEAD + "  target: t\n", 2, "the attribute 'schema' is missing", "write schema:"),
        (GOOD + "  slices: {max_records: lots}\n", 6, "slices.max_records: Input should be a valid integer", "correct"),
        (GOOD + "  slices:\n    max_recs: 5\n", 7, "no attribute 'slices.max_recs'", "max_records"),
        (GOOD + "  skip_when_behind: {records: 5}\n", 6, "'skip_when_behind.keep' is missing", "write keep:"),
        (GOOD + "  mode: upsrt\n", 6, "mode: Input should be 'append' or 'upsert' · it is 'upsrt'", "correct 'mode'"),
        (GOOD + "  mode: upsert\n", 6, "mode upsert needs key", "correct"),
        (GOOD + "  mode: upsert\n  key: [ident]\n", 7, "the schema has no field 'ident'", "name one of these"),
        (GOOD.replace("BIGINT", "BIGIT"), 5, "'BIGIT' is no type", "column list"),
        (GOOD + "  description: '{{ nothing.x }}'\n", 6, "'nothing' not found in scope", "correct the template"),
        (
            "# ours\n\n" + GOOD + "post_processing: {}\n",
            8,
            "'post_processing' stands beside `attributes`",
            "take it out",
        ),
        (GOOD + "  target: u\n", 4, "'target' stands here twice", "take one"),
        (GOOD + "  start: 2024-13-45\n", 6, "month must be in 1..12", "correct it there"),
        (GOOD + f"  max_attempts: {'9' * 5000}\n", 6, "Exceeds the limit", "correct it there"),
        (GOOD + "  owners: &us [*us]\n", 2, "cannot be read as a stream", "references to itself"),
        (GOOD + "  max_lag: -1\n", 6, "between nothing and 36500d", "correct 'max_lag'"),
        (GOOD + f"  keep_keys: {'9' * 400}d\n", 6, "between nothing and 36500d", "correct 'keep_keys'"),
        (GOOD + "---\n" + GOOD.replace("target: t", "target: a.b.c"), 10, "no table; write a name", "target"),
    ],
)
def test_a_yaml_file_is_refused_in_words_at_the_line_that_is_meant(
    tmp_path: Path, text: str, line: int, what: str, cure: str
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    [broken] = broken_in(load_assets(tmp_path))
    said = str(broken.error)
    assert said.startswith(f"{path}, line {line}")
    assert what in said
    assert cure in broken.error.cure
    assert "Traceback" not in said
    assert "pydantic" not in said


@pytest.mark.slow
def test_what_no_text_can_be_had_of_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "gone.py").write_text("import sys\ndel sys.modules[__name__]\n1 / 0\n")
    found = load_assets(tmp_path)
    assert [stream.name for stream in streams_in(found)] == ["t"]
    assert {one.path.name for one in broken_in(found)} == {
        "gone.yaml", "deep.yaml", "bytes.yaml", "bytes.py", "gone.py",
    }  # fmt: skip


def test_folders_and_what_begins_with_a_dot_are_no_files_of_streams(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / ".#good.yaml").symlink_to("somebody@somewhere.4711")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "good-checkpoint.yaml").write_text(GOOD)
    (tmp_path / "old.yaml").mkdir()
    found = load_assets(tmp_path)
    assert (len(streams_in(found)), broken_in(found)) == (1, [])


@pytest.mark.parametrize(
    ("text", "line", "what", "cure"),
    [
        ("import os\n\ndef broken(:\n", 3, "invalid syntax · def broken(:", "correct it there"),
        ("import nosuchmodule\n", 1, "ModuleNotFoundError: No module named 'nosuchmodule'", "install it"),
        ("def f():\n    return 1 / 0\n\nf()\n", 2, "ZeroDivisionError", "correct the file"),
        (PYTHON.format(more=", modus=1"), 4, "there is no attribute 'modus'", "known attributes"),
        (
            PYTHON.format(more=", modee='append'"),
            4,
            "'modee' · did you mean 'mode'? · known",
            "group_name, owners, tags",
        ),
        (PYTHON.format(more=", poool='a'"), 4, "'poool' · did you mean 'pool'? · known", "pool, freshness"),
        (PYTHON.format(more="").replace("def p(records)", "def p(rows)"), 4, "takes (rows)", "declare it as (records)"),
        ("from .missing import x\n", 1, "No module named", "install it"),
        ("raise SystemExit('enough')\n", 1, "SystemExit: enough", "correct the file"),
    ],
)
def test_a_python_file_is_refused_in_words_at_the_line_that_is_meant(
    tmp_path: Path, text: str, line: int, what: str, cure: str
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(text)
    [broken] = broken_in(load_assets(tmp_path))
    assert str(broken.error).startswith(f"{path}, line {line}: ")
    assert what in str(broken.error)
    assert cure in broken.error.cure


def test_the_other_files_go_on_and_dagster_shows_the_broken_one(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "wrong.yaml").write_text(GOOD.replace("BIGINT", "BIGIT").replace("target: t", "target: x"))
    (tmp_path / "wrong.py").write_text("import nosuchmodule\n")
    found = load_assets(tmp_path)
    assert [stream.name for stream in streams_in(found)] == ["t"]
    repository = build_definitions(found).get_repository_def()
    assert dg.AssetKey("t") in repository.asset_graph.get_all_asset_keys()
    red = [one for one in repository.sensor_defs if one.name.startswith("unread_wrong")]
    assert len(red) == 2
    for one in red:
        assert one.default_status is dg.DefaultSensorStatus.RUNNING
        with pytest.raises(dg.Failure, match=r"wrong\.(py|yaml), line \d"):
            one(dg.build_sensor_context())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good stream and a file that cannot be read."""
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs" / "good.yaml").write_text(GOOD)
    (tmp_path / "defs" / "wrong.yaml").write_text(HEAD + "  target: wrong\n")
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", f"sqlite:///{tmp_path / 'ledger.db'}")
    return tmp_path


@pytest.mark.slow
def test_commands_tell_the_broken_file_and_do_the_rest(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Commands(monkeypatch, capsys)
    run("db", "init")
    told = f"{project / 'defs' / 'wrong.yaml'}, line 2: the attribute 'schema' is missing"
    # Of all streams, one could not be listed; of a good one that is asked for by its name, nothing is wrong.
    said = run("quarantine", "list", "--json", code=1)
    assert said.json == []
    assert told in said.err
    assert told in run("slices", "t").err
    assert run("slices", "t", "--json").json == []
    missing = run("slices", "wrong", code=1)
    assert "there is no stream 'wrong' in the files that can be read" in missing.err
    assert [(one.status, told in one.detail) for one in doctor._streams()] == [("ok", False), ("failed", True)]
    (project / "defs" / "wrong.yaml").unlink()
    run("quarantine", "list")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("top", "cure"),
    [
        ("from helper import clean", "write `from . import helper`"),
        ("from nowhere_at_all import clean", "install it where kafka-assets is installed"),
        ("from pyspark.sql import functions as F\nBIG = F.col('id') > 9", "write it inside the asset's function"),
    ],
)
def test_what_stops_a_file_for_want_of_a_module_or_a_session_has_its_cure(tmp_path: Path, top: str, cure: str) -> None:
    (tmp_path / "helper.py").write_text("def clean(v): return v")
    (tmp_path / "p.py").write_text(f"{top}\n{PYTHON.format(more='')}")
    program = f"""
from pathlib import Path
from kafka_assets import load_assets
from kafka_assets.assets.folder import broken_in
[broken] = broken_in(load_assets(Path({str(tmp_path)!r})))
print(broken.error.cure)
"""
    # Another process: this one may have a session.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=_bare())
    assert cure in done.stdout, done.stdout + done.stderr


def _bare() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "SPARK_CONNECT_MODE_ENABLED"}
