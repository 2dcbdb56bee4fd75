"""Projects for the acceptance tests: one of its own for each test, and one deployment that all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_assets import devstack
from kafka_assets.ledger.engine import make_engine
from kafka_assets_tests.acceptance.deployment import Deployment
from kafka_assets_tests.acceptance.project import Project
from kafka_assets_tests.commands import Commands
from kafka_assets_tests.java_options import QUICKLY_COMPILED


def _settings(patch: pytest.MonkeyPatch, folder: Path, *, broker: str, spark_remote: str) -> str:
    """What a project's processes read from the environment; returns the URL of its database."""
    url = f"sqlite:///{folder / 'warehouse.db'}"
    patch.setenv("KAFKA_ASSETS_HOME", str(folder))
    patch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", broker)
    patch.setenv("KAFKA_ASSETS_SPARK_REMOTE", spark_remote)
    patch.setenv("KAFKA_ASSETS_DATABASE_URL", url)
    patch.delenv("DAGSTER_HOME", raising=False)
    return url


@pytest.fixture
def project(tmp_path: Path, broker: str, spark_remote: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    engine = make_engine(_settings(monkeypatch, tmp_path, broker=broker, spark_remote=spark_remote))
    yield Project(folder=tmp_path, broker=broker, engine=engine)
    devstack.down(tmp_path / ".kafka_assets")
    engine.dispose()


@pytest.fixture(scope="session")
def deployment(services_folder: Path, broker: str, spark_remote: str) -> Iterator[Deployment]:
    """`dagster dev` with a stream for each test that needs no other; it ends with the services."""
    folder = services_folder.parent / "deployment"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        engine = make_engine(_settings(patch, folder, broker=broker, spark_remote=spark_remote))
        made = Deployment(folder=folder, broker=broker, engine=engine)
        made.begin(patch)
    yield made
    engine.dispose()


@pytest.fixture
def classic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands start a session of their own, `local[2]`, in a Java that is compiled as quickly as the shared server."""
    # The environment's master beats a file's endpoint.
    monkeypatch.delenv("KAFKA_ASSETS_SPARK_REMOTE", raising=False)
    monkeypatch.setenv("KAFKA_ASSETS_SPARK_MASTER", "local[2]")
    # Where this process has had a session of Spark Connect, pyspark's children would believe that they have one.
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    # Of the workers' Python: that of the session, and not the first on the PATH.
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", QUICKLY_COMPILED)


@pytest.fixture
def command(project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    """The command line in the project's folder."""
    monkeypatch.chdir(project.folder)
    return Commands(monkeypatch, capsys)
