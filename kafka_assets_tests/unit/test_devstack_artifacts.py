"""What jars.lock may say, and what the cache lets in: no JVM, no network."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kafka_assets.devstack import artifacts, fetch, ivy
from kafka_assets.devstack.artifacts import Artifact, parse_coordinates, read_lock
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.spark import SparkConnect
from kafka_assets.errors import ServiceError
from kafka_assets.settings import load_settings
from kafka_assets.spark.session import spark_config

CONTENT = b"a jar"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ONE = Artifact("org.example", "one", "1.0", SHA256, len(CONTENT))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kafka_assets"


class Repository:
    """Stands in for Ivy: puts files where Ivy would, and counts how often it was asked."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.asked: list[Artifact] = []

    def __call__(self, wanted: list[Artifact], *, cache: Path, into: Path, progress: Progress) -> None:
        cache.mkdir(parents=True, exist_ok=True)
        self.asked += wanted
        for artifact in wanted:
            file = into / artifact.relative_path
            file.parent.mkdir(parents=True)
            file.write_bytes(self.content)


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    repository = Repository()
    monkeypatch.setattr(ivy, "retrieve", repository)
    return repository


def test_the_lock_names_every_service_and_no_host() -> None:
    services = {"kafka", "kafka-tools", "postgresql", "mariadb", "registry"}
    benchmarks = {"spark-connector", "jdbc", "connect", "debezium-jdbc"}
    assert set(read_lock()) == services | benchmarks
    assert "://" not in artifacts.LOCK.read_text(encoding="utf-8")


def test_the_lock_at_the_top_is_the_one_in_the_package() -> None:
    assert (Path(__file__).parents[2] / "jars.lock").resolve() == artifacts.LOCK.resolve()


def test_what_is_started_for_runs_needs_no_jar_of_sparks_kafka_connector(tmp_path: Path) -> None:
    assert SparkConnect(tmp_path, token="").artifacts == ()
    assert "spark.jars" not in spark_config(load_settings(tmp_path, {"KAFKA_ASSETS_SPARK_MASTER": "local[2]"}))


def test_the_connector_in_the_lock_is_of_the_pyspark_that_is_installed() -> None:
    import importlib.metadata

    (connector,) = (one for one in read_lock()["spark-connector"] if one.name.startswith("spark-sql-kafka"))
    assert connector.version == importlib.metadata.version("pyspark")


def test_coordinates_carry_classifier_and_extension() -> None:
    one = parse_coordinates("io.apicurio:app:2.6:all@tar.gz")
    assert one.file_name == "app-2.6-all.tar.gz"
    assert one.coordinates == "io.apicurio:app:2.6:all@tar.gz"


@pytest.mark.parametrize("text", ["org:name", "org::1.0", "", "a:b:c:d:e"])
def test_what_is_no_coordinate_is_refused(text: str) -> None:
    with pytest.raises(ServiceError, match="not a Maven coordinate"):
        parse_coordinates(text)


@pytest.mark.parametrize(
    "text", ["[kafka]\n'org:name:1' = {bytes = 1, sha256 = 'short'}", "not toml", "[kafka]\n'o:n:1' = {bytes = 1}"]
)
def test_a_damaged_lock_is_refused_by_name(tmp_path: Path, text: str) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(text, encoding="utf-8")
    with pytest.raises(ServiceError, match=r"jars\.lock cannot be read"):
        read_lock(lock)


def test_a_file_is_fetched_once(cache: Path, repository: Repository) -> None:
    assert fetch.fetch([ONE]) == fetch.fetch([ONE]) == [cache / "artifacts" / ONE.relative_path]
    assert repository.asked == [ONE]


def test_a_wrong_checksum_is_refused_named_and_removed(cache: Path, repository: Repository) -> None:
    repository.content = b"an evil jar"
    with pytest.raises(ServiceError, match=r"org\.example:one:1\.0 is not the file that jars\.lock names"):
        fetch.fetch([ONE])
    assert not [path for path in cache.rglob("*") if path.is_file() and path.name != "fetch.lock"]


def test_a_file_that_was_damaged_in_the_cache_is_fetched_again(cache: Path, repository: Repository) -> None:
    (path,) = fetch.fetch([ONE])
    path.write_bytes(b"a jaR")
    fetch.fetch([ONE])
    assert path.read_bytes() == CONTENT
    assert len(repository.asked) == 2


def test_only_what_is_missing_is_asked_for(cache: Path, repository: Repository) -> None:
    fetch.fetch([ONE])
    other = Artifact("org.example", "other", "1.0", SHA256, len(CONTENT))
    fetch.fetch([ONE, other])
    assert repository.asked == [ONE, other]


def test_a_disk_that_is_too_full_is_said_before_anything_is_fetched(cache: Path, repository: Repository) -> None:
    with pytest.raises(ServiceError, match="the disk is too full"):
        fetch.fetch([Artifact("org.example", "huge", "1.0", SHA256, 10**18)])
    assert repository.asked == []


def test_a_file_that_does_not_exist_is_named_with_the_cure(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ivy, "_command", lambda *_, **__: ["sh", "-c", "echo 'FAILED  not found: one-1.0.jar'; exit 1"])
    with pytest.raises(ServiceError, match=r"could not be fetched.*one-1\.0\.jar.*KAFKA_ASSETS_MAVEN_REPOSITORY"):
        fetch.fetch([ONE])


def test_a_user_without_a_home_is_told_where_the_cache_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ServiceError, match="set XDG_CACHE_HOME"):
        artifacts.cache_folder()
