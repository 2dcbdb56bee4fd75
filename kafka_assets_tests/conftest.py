"""Real services for the tests: started once for a session, when the first test asks, and always stopped.

A service that cannot be started fails the tests that need it; nothing here skips.
"""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_assets import devstack
from kafka_assets.devstack import debian

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEED_SERVICES = ("integration", "acceptance")
HERE = Path(__file__).parent
_PREFIX = "kafka_assets_tests-"
NO_MYSQL = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What lies under integration/ or acceptance/ needs services; what asks for MySQL needs Debian's apt."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.relative_to(HERE).parts[0] in NEED_SERVICES:
            item.add_marker("services")
    if config.option.markexpr != "campaign" and (long := [one for one in items if one.get_closest_marker("campaign")]):
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    # In CI all four databases must run, so there a machine without apt fails.
    if debian.missing() and os.environ.get("CI") != "true" and (left_out := [one for one in items if _asks_mysql(one)]):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        config.stash[NO_MYSQL] = len(left_out)


def pytest_configure(config: pytest.Config) -> None:
    """Name the run of several workers, so that what they leave behind can be found."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.option.testrunuid = config.option.testrunuid or secrets.token_hex(4)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Interrupted, xdist ends its workers before they can stop their services."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{config.option.testrunuid}-*"):
            devstack.down(folder, delete=True)
            shutil.rmtree(folder, ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist collects, and another process says at the end what was left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["no_mysql"] = session.config.stash.get(NO_MYSQL, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[NO_MYSQL] = getattr(node, "workeroutput", {}).get("no_mysql", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say at the end what could not be tested here."""
    if count := config.stash.get(NO_MYSQL, 0):
        terminalreporter.write_line(f"MySQL was NOT tested ({count} tests): {debian.missing()}; it needs Debian's apt.")


def _asks_mysql(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    names = getattr(item, "fixturenames", ())
    return "mysql" in parameters.values() or any(name in names for name in ("mysql_url", "mysql_database"))


@pytest.fixture(scope="session")
def services_folder() -> Iterator[Path]:
    """The state folder of this test session's services; when it ends, so do they."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{run}-" if run else _PREFIX))
    # As root, PostgreSQL runs as another user, who must be able to pass.
    folder.chmod(0o711)

    def end() -> None:
        devstack.down(folder, delete=True)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)  # a teardown does not run when pytest itself breaks
    yield folder
    atexit.unregister(end)
    end()


@pytest.fixture(scope="session")
def broker(services_folder: Path) -> str:
    """The bootstrap servers of a real broker."""
    servers = devstack.up(services_folder, ["kafka"]).bootstrap_servers
    assert servers
    return servers


@pytest.fixture(scope="session")
def spark_remote(services_folder: Path) -> str:
    """The address of a warm Spark Connect server, with its token."""
    remote = devstack.up(services_folder, ["spark"]).spark_remote
    assert remote
    return remote


@pytest.fixture(scope="session")
def spark(spark_remote: str) -> Iterator[SparkSession]:
    """A Spark Connect session."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(spark_remote).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgresql_url(services_folder: Path) -> str:
    """A real PostgreSQL, as a SQLAlchemy URL."""
    return devstack.up(services_folder, ["postgresql"]).urls["postgresql"]


@pytest.fixture(scope="session")
def mariadb_url(services_folder: Path) -> str:
    """A real MariaDB, as a SQLAlchemy URL."""
    return devstack.up(services_folder, ["mariadb"]).urls["mariadb"]


@pytest.fixture(scope="session")
def mysql_url(services_folder: Path) -> str:
    """A real MySQL, as a SQLAlchemy URL."""
    return devstack.up(services_folder, ["mysql"]).urls["mysql"]


@pytest.fixture
def fresh_database() -> Iterator[Callable[[str], str]]:
    """Makes a new, empty database beside the one of a URL, for one test: `fresh_database(postgresql_url)`."""
    from sqlalchemy import create_engine, make_url, text

    made: list[tuple[str, str]] = []

    def execute(url: str, statement: str) -> None:
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()

    def make(url: str) -> str:
        name = f"test_{next(_numbers)}"
        execute(url, f"CREATE DATABASE {name}")
        made.append((url, name))
        return make_url(url).set(database=name).render_as_string(hide_password=False)

    yield make
    for url, name in made:
        # What a test left connected (a zombie, on purpose) must not keep its database.
        execute(url, f"DROP DATABASE {name}" + (" WITH (FORCE)" if url.startswith("postgresql") else ""))


_numbers = itertools.count(1)


@pytest.fixture
def postgresql_database(postgresql_url: str, fresh_database: Callable[[str], str]) -> str:
    """A new, empty PostgreSQL database for one test."""
    return fresh_database(postgresql_url)


@pytest.fixture
def mariadb_database(mariadb_url: str, fresh_database: Callable[[str], str]) -> str:
    """A new, empty MariaDB database for one test."""
    return fresh_database(mariadb_url)


@pytest.fixture
def mysql_database(mysql_url: str, fresh_database: Callable[[str], str]) -> str:
    """A new, empty MySQL database for one test."""
    return fresh_database(mysql_url)
