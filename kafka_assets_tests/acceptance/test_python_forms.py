"""What users write in Python reaches Spark's workers, in each form of docs/assets.md, on both kinds of session."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.produce import Record, produce
from kafka_assets_tests.acceptance.project import Project

PAGE = Path(__file__).parents[2] / "docs" / "assets.md"
COUNTRIES = 'PREFIXES = {"+44": "GB", "+49": "DE"}\n'


@pytest.fixture(params=["connect", pytest.param("classic", marks=pytest.mark.campaign)])
def session(request: pytest.FixtureRequest, project: Project, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kind of session that the project's runs have; test_classic_spark.py has the other one in each run of all."""
    if request.param == "classic":
        request.getfixturevalue("classic")
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return request.param


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("kafka-assets"))
    return subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_the_example_of_the_docs_lands(project: Project, session: str) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Python on Spark's workers")[2].partition("\n## ")[0]
    payments, cleaning = re.findall(r"^```python\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    assert f"`{COUNTRIES.strip()}`" in section
    topic = f"payments_{session}"
    defs = project.folder / "defs"
    defs.mkdir()
    (defs / "payments.py").write_text(payments.replace('topic="payments"', f'topic="{topic}"'))
    (defs / "cleaning.py").write_text(cleaning)
    (defs / "countries.py").write_text(COUNTRIES)
    project.topic(topic, partitions=1)
    given = ['{"id": 1, "phone": "+44 20 1", "amount": 1.25}', '{"id": 2, "phone": "+49 30 2", "amount": 2}']
    given += ['{"id": 3, "phone": "+44 20 3", "amount": 0.5}', "{broken", '{"id": 4, "phone": "0", "amount": 3}']
    produce(Connection(project.broker, {}), topic, [Record(value=one.encode(), partition=0) for one in given])
    done = command(project.folder, "run", "--until-caught-up", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["caught_up"] is True
    rows = "select group_concat(id || ':' || phone || ':' || cents || ':' || country, ' ') from payments"
    assert project.sql(rows) == "1:+44201:125:GB 2:+49302:200:DE 3:+44203:50:GB 4:0:300:?"
    sums = "select group_concat(country || ':' || cents, ' ') from (select * from payments_by_country order by country)"
    assert project.sql(sums) == "?:300 DE:200 GB:175"
