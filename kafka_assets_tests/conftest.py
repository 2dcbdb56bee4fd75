"""Real services for the tests: started once for all workers of a run, when the first test asks, and always stopped.

A test that stops, freezes or breaks a service takes one of another set, that is its alone while it runs: `breakable`.
A service that cannot be started fails the tests that need it; nothing here skips.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_assets import devstack
from kafka_assets.devstack import debian, locks
from kafka_assets.devstack import kafka as kafka_service
from kafka_assets.devstack import postgresql as postgresql_service
from kafka_assets.devstack import spark as spark_service
from kafka_assets_tests.java_options import QUICK_SPARK
from kafka_assets_tests.keeper import RUN, Keeper
from kafka_assets_tests.run_log import RunLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEED_SERVICES = ("integration", "acceptance")
HERE = Path(__file__).parent
NO_MYSQL = pytest.StashKey[int]()
KEEPER = pytest.StashKey[Keeper]()
LOG = pytest.StashKey[RunLog]()
SERVICES = pytest.StashKey[Path]()
KEEPS_ALL = "log.retention.ms=-1\n"
"""Else what a test dates back by years expires in the moment in which the broker looks, once in five minutes."""
QUICKLY_GREETED = ("--set", "scram_iterations=1")
"""A password that nobody is to guess is hashed 4,096 times for each connection, of which there are many thousand."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What lies under integration/ or acceptance/ needs services; what asks for MySQL needs Debian's apt."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.relative_to(HERE).parts[0] in NEED_SERVICES:
            item.add_marker("services")
    named = [arg for arg in config.args if "::" in arg]  # who names a test means it
    long = [one for one in items if one.get_closest_marker("campaign") and not _is_of(one, named)]
    if config.option.markexpr != "campaign" and long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    # In CI all four databases must run, so there a machine without apt fails.
    if debian.missing() and os.environ.get("CI") != "true" and (left_out := [one for one in items if _asks_mysql(one)]):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        config.stash[NO_MYSQL] = len(left_out)


def pytest_collection_finish() -> None:
    """What was imported stays: to look through it for garbage again and again takes a sixth of the unit tests' time."""
    gc.collect()
    gc.freeze()
    gc.enable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it puts into the background so, and tests send themselves a Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A folder for the services of this run, which its first process makes, and its workers are told of."""
    gc.disable()  # until all is imported
    if worker := getattr(config, "workerinput", None):
        config.stash[SERVICES] = Path(worker["services"])
        return
    run = config.stash[SERVICES] = Path(tempfile.mkdtemp(prefix="kafka_assets_tests-"))
    # As root, PostgreSQL runs as another user, who must be able to pass.
    run.chmod(0o711)
    os.environ[RUN] = str(run)
    temporary = config._tmp_path_factory.getbasetemp()  # nothing public tells it outside of a test
    config.stash[KEEPER] = Keeper(run, temporary=temporary)
    log = config.stash[LOG] = RunLog(config.rootpath)
    config.pluginmanager.register(log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["services"] = str(node.config.stash[SERVICES])


def pytest_unconfigure(config: pytest.Config) -> None:
    if keeper := config.stash.get(KEEPER, None):
        keeper.end()
        config.stash[LOG].close()


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


def _is_of(item: pytest.Item, named: list[str]) -> bool:
    return any(item.nodeid == one or item.nodeid.startswith((f"{one}[", f"{one}::")) for one in named)


def _asks_mysql(item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    names = getattr(item, "fixturenames", ())
    return "mysql" in parameters.values() or any(name in names for name in ("mysql_url", "mysql_database"))


@pytest.fixture(scope="session", autouse=True)
def unstamped() -> Iterator[None]:
    """A Dagster in memory is never migrated: to note the newest revision it would read all that there are, twice."""
    from dagster._core.storage.event_log import in_memory as events
    from dagster._core.storage.runs import in_memory as runs

    with pytest.MonkeyPatch.context() as patch:
        for module in (events, runs):
            patch.setattr(module, "stamp_alembic_rev", lambda *given, **more: None)
        yield


@pytest.fixture(scope="session")
def services_folder(request: pytest.FixtureRequest) -> Path:
    """The state folder of the services that all workers of this run share."""
    return _folder(request.config.stash[SERVICES] / "shared")


@pytest.fixture
def breakable(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The state folder of services that one test at a time may stop, freeze and break."""
    folder = _folder(request.config.stash[SERVICES] / "breakable")
    with locks.held(folder / "one_test_at_a_time", timeout=900, on_wait=lambda: None):
        yield folder


def _folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    path.chmod(0o711)
    return path


@pytest.fixture(scope="session")
def broker(services_folder: Path) -> str:
    """The bootstrap servers of a real broker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_service, "PROPERTIES", kafka_service.PROPERTIES + KEEPS_ALL)
        servers = devstack.up(services_folder, ["kafka"]).bootstrap_servers
    assert servers
    return servers


@pytest.fixture(scope="session")
def spark_remote(services_folder: Path) -> str:
    """The address of a warm Spark Connect server, with its token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_service, "DEFAULTS", spark_service.DEFAULTS + QUICK_SPARK)
        remote = devstack.up(services_folder, ["spark"]).spark_remote
    assert remote
    return remote


@pytest.fixture(scope="session")
def spark(spark_remote: str) -> Iterator[SparkSession]:
    """A Spark Connect session."""
    from kafka_assets.spark.session import open_session

    opened = open_session({"spark.remote": spark_remote})
    yield opened.session
    opened.close()


@pytest.fixture(scope="session")
def postgresql_url(services_folder: Path) -> str:
    """A real PostgreSQL, as a SQLAlchemy URL."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgresql_service, "INITDB", [*postgresql_service.INITDB, *QUICKLY_GREETED])
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
        name = f"test_{os.getpid()}_{next(_numbers)}"
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
