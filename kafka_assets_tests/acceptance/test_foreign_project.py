"""A project of somebody else's, that has nothing of this one but its wheel."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, produce
from kafka_assets.broker.topics import create_topic
from kafka_assets_tests.acceptance.dg_dev import dg_dev, first_ticks, served

REPOSITORY = Path(__file__).parents[2]
PYPROJECT = """
[project]
name = "shop"
version = "0.1.0"
dependencies = ["kafka-assets"]

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
"""
DEFINITIONS = """
from pathlib import Path

import dagster as dg


@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
ORDERS = """
type: kafka_assets.KafkaTopic
attributes:
  topic: orders
  target: orders
  schema: "id BIGINT, customer STRING, amount DECIMAL(12,2), placed_at TIMESTAMP"
  start: 2026-01-01T00:00:00Z
"""


class Foreign:
    """A folder of a project, and the tools on it, with the wheel before everything else on the path."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.wheel = wheel
        self.settings: dict[str, str] = {}

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_ASSETS_")}
        return {**kept, "PYTHONPATH": f"{self.wheel}:{self.folder / 'src'}", **self.settings}

    def run(self, *command: str, out_only: bool = False) -> str:
        done = subprocess.run(
            [Path(sys.executable).with_name(command[0]), *command[1:]],
            cwd=self.folder,
            env={
                **self.env,
                "DAGSTER_HOME": "",
                "DG_CLI_DISABLE_TELEMETRY": "1",
                "COLUMNS": "200",
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + ("" if out_only else done.stderr)

    def listed(self) -> Any:
        """What `dg list defs` knows."""
        said = self.run("dg", "list", "defs", "--json")
        return json.JSONDecoder().raw_decode(said[said.index("{") :])[0]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked: this environment has all that it depends on, and its entry points."""
    folder = tmp_path_factory.mktemp("wheel")
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, names):
        if (REPOSITORY / name).exists():
            (folder / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / "copy" / name, follow_symlinks=False)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, folder / "copy"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    [built] = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", built, folder / "unpacked"], check=True)
    return folder / "unpacked"


@pytest.fixture
def foreign(tmp_path: Path, wheel: Path) -> Foreign:
    return Foreign(tmp_path, wheel)


def test_a_component_of_the_wheel_is_known_to_dg_and_gives_asset_topic_and_sensor(foreign: Foreign) -> None:
    foreign.write("pyproject.toml", PYPROJECT)
    foreign.write("src/shop/__init__.py", "")
    foreign.write("src/shop/defs/__init__.py", "")
    foreign.write("src/shop/definitions.py", DEFINITIONS)
    foreign.write("src/shop/defs/orders/defs.yaml", ORDERS)
    foreign.write("src/shop/defs/returns/defs.yaml", ORDERS.replace("target: orders", "target: returns"))
    assert str(foreign.wheel) in foreign.run("python", "-c", "import kafka_assets; print(kafka_assets.__file__)")
    assert "kafka_assets.KafkaTopic" in foreign.run("dg", "list", "components")
    listed = foreign.listed()
    assert [one["asset_key"] for one in listed["assets"]] == ["kafka/orders", "orders", "returns"]
    assert [one["name"] for one in listed["sensors"]] == ["kafka_health", "kafka_slices"]
    # The command line looks beside pyproject.toml, and never takes the wheel's own example for the project's.
    load = "from kafka_assets import load_assets; from kafka_assets.settings import load_settings as settings;"
    show = "print(sorted(one.key.to_user_string() for one in load_assets(settings().streams)))"
    with pytest.raises(AssertionError, match=r"there is no folder .*KAFKA_ASSETS_STREAMS"):
        foreign.run("python", "-c", load + show)
    foreign.write("kafka_assets.toml", 'streams = "src/shop/defs"')
    assert foreign.run("python", "-c", load + show, out_only=True) == "['orders', 'returns']\n"
    with dg_dev(foreign.folder, foreign.folder / ".dagster", foreign.env) as ask:
        found = served(ask)
        assert (found["assets"], found["sensors"]) == (
            {"kafka/orders", "orders", "returns"},
            {"kafka_health", "kafka_slices"},
        )
        [*_, first] = first_ticks(ask, found, "kafka_slices")
        assert "kafka-assets up" in first["skipReason"]


def test_functions_of_several_files_in_a_project_of_dg_refer_to_each_other(foreign: Foreign) -> None:
    foreign.write("pyproject.toml", PYPROJECT)
    foreign.write("src/shop/__init__.py", "")
    foreign.write("src/shop/defs/__init__.py", "")
    foreign.write("src/shop/definitions.py", DEFINITIONS)
    for name in ("orders.py", "order_totals.py"):
        foreign.write(f"src/shop/defs/{name}", (REPOSITORY / "kafka_assets" / "defs" / name).read_text())
    # A component beside them brings the resources and the sensors.
    foreign.write("src/shop/defs/returns/defs.yaml", ORDERS.replace("orders", "returns"))
    assert "loaded successfully" in foreign.run("dg", "check", "defs")
    listed = foreign.listed()
    shown = {one["asset_key"]: one["dependency_keys"] for one in listed["assets"]}
    assert {"orders", "order_totals", "returns", "kafka/returns"} <= shown.keys()
    assert len(shown) == len(listed["assets"]), "an asset that another file imports is there once"
    assert shown["order_totals"] == ["orders"]
    assert [one["name"] for one in listed["sensors"]] == ["kafka_health", "kafka_slices"]


def readmes_stream(foreign: Foreign) -> None:
    """The README's stream, cut out of it, in an empty project."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    [stream] = re.findall(r"^```python\n(.*?)^```$", readme, flags=re.MULTILINE | re.DOTALL)
    foreign.write("kafka_assets.toml", "")
    foreign.write("defs/payments.py", stream)


def test_the_readmes_example_loads_as_it_stands_in_an_empty_project(foreign: Foreign) -> None:
    readmes_stream(foreign)
    said = foreign.run("dagster", "definitions", "validate", "-m", "kafka_assets.definitions")
    assert "All code locations passed validation" in said
    found = foreign.run(
        "python", "-c",
        "from kafka_assets.definitions import defs; r = defs().get_repository_def();"
        "print(sorted(key.to_user_string() for key in r.asset_graph.get_all_asset_keys()),"
        "sorted(sensor.name for sensor in r.sensor_defs))",
    )  # fmt: skip
    assert "['kafka/payments', 'payments'] ['kafka_health', 'kafka_slices']" in found


def test_the_readmes_example_lands_its_topic(foreign: Foreign, broker: str, spark_remote: str) -> None:
    readmes_stream(foreign)
    foreign.settings = {"KAFKA_ASSETS_BOOTSTRAP_SERVERS": broker, "KAFKA_ASSETS_SPARK_REMOTE": spark_remote}
    create_topic(Connection(broker), "payments", partitions=2)
    costs = (
        b'{"id": %d, "method": "card", "amount": %d, "paid_at": "2026-01-01T00:00:00Z"}' % (n, n) for n in range(9)
    )
    produce(Connection(broker), "payments", (Record(value=value) for value in (*costs, b"{cut")))
    done = json.loads(foreign.run("kafka-assets", "run", "--until-caught-up", "--json", out_only=True))
    assert done["caught_up"] is True
    with closing(sqlite3.connect(foreign.folder / ".kafka_assets" / "kafka_assets.db")) as ledger:
        assert ledger.execute("select count(*), sum(amount) from payments").fetchone() == (8, 36)
        assert ledger.execute("select count(*) from kafka_quarantine").fetchone() == (1,)
        assert ledger.execute("select sum(filtered) from kafka_publication").fetchone() == (1,)
