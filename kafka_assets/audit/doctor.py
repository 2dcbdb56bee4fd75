"""What is well and what is not, here and now: each check says what it saw, and what to do.

Nothing is changed by looking: no file, no topic, no table is made.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kafka_assets import endpoints
from kafka_assets.durations import written
from kafka_assets.errors import KafkaAssetsError
from kafka_assets.masks import masked_properties, masked_url
from kafka_assets.settings import FILE, PREFIX, Settings, load_settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

Status = Literal["ok", "info", "failed"]

PYTHONS = ((3, 11), (3, 13))
PLATFORMS = {("Linux", "x86_64"), ("Linux", "aarch64")}
TIGHT, ENOUGH = 1e9, 5e9
"""Bytes free: below the first nothing can be promised, below the second a full set of services may not fit."""
SECONDS = 5.0
UP = "run `kafka-assets up`"


@dataclass(frozen=True)
class Check:
    """`failed` is something broken; `info` is something that is not there, or not needed, yet."""

    check: str
    status: Status
    detail: str
    cure: str = ""


def examine(
    project: Path | None = None, *, deep: bool = False, environ: Mapping[str, str] | None = None
) -> Iterator[Check]:
    """All checks, one after the other, as they are done. `deep` lets Spark answer a query, which takes a while."""
    from kafka_assets.ledger.dagster_storage import refuse_storage

    env = os.environ if environ is None else environ
    yield _python()
    yield _platform()
    try:
        settings = load_settings(project, env)
    except KafkaAssetsError as error:
        yield _java(needed=False)
        yield _failed("settings", error)
        return
    yield _java(needed=settings.spark_master is not None)
    yield from _settings(settings, env)
    yield from _guarded("kafka properties", lambda: _kafka_properties(settings))
    yield from _guarded("broker", lambda: _broker(settings))
    yield from _guarded("spark", lambda: _spark(settings, deep=deep))
    yield from _guarded("database", lambda: _database(settings))
    yield from _guarded("dagster", lambda: refuse_storage(env))
    yield from _guarded("artifacts", _artifacts)
    yield _disk(settings)


def _guarded(name: str, look: Callable[[], Check | Sequence[Check] | None]) -> Iterator[Check]:
    """One check's failure is its result, and hides no other."""
    try:
        found = look()
    except (KafkaAssetsError, OSError) as error:
        found = _failed(name, error)
    if isinstance(found, Check):
        yield found
    elif found is not None:
        yield from found


def _failed(name: str, error: KafkaAssetsError | OSError) -> Check:
    if isinstance(error, KafkaAssetsError):
        return Check(name, "failed", " · ".join(part for part in (error.what, error.why) if part), error.cure)
    return Check(name, "failed", str(error))


def _python() -> Check:
    found = sys.version_info[:2]
    oldest, newest = (".".join(map(str, pair)) for pair in PYTHONS)
    fine = PYTHONS[0] <= found <= PYTHONS[1]
    return Check(
        "python",
        "ok" if fine else "failed",
        f"{platform.python_version()} ({sys.executable}), kafka-assets {version('kafka-assets')}",
        "" if fine else f"use a Python from {oldest} to {newest}",
    )


def _platform() -> Check:
    here = (platform.system(), platform.machine())
    if here in PLATFORMS:
        return Check("platform", "ok", " ".join(here))
    return Check("platform", "info", f"{' '.join(here)}: the local services do not run here", "use services elsewhere")


def _java(*, needed: bool) -> Check:
    from kafka_assets.devstack.java import find_java, java_version
    from kafka_assets.errors import ServiceError

    try:
        found = find_java()
    except ServiceError as error:
        detail = f"{error.what} · {error.why}; local services and a Spark of one's own need it"
        return Check("java", "failed" if needed else "info", detail, error.cure)
    return Check("java", "ok", f"Java {java_version(found)} ({found})")


def _settings(settings: Settings, env: Mapping[str, str]) -> Iterator[Check]:
    in_file = _in_file(settings.project / FILE)
    for name in ("bootstrap_servers", "database_url", "spark_remote", "spark_master", "spark_patience", "streams"):
        value = getattr(settings, name)
        if value is None:
            continue
        if isinstance(value, timedelta):
            value = written(value)
        if env.get(PREFIX + name.upper()):
            origin = f"environment, {PREFIX}{name.upper()}"
        elif in_file.get(name):
            origin = FILE
        elif name in ("database_url", "spark_patience", "streams"):
            origin = "default"
        else:
            origin = "services that `kafka-assets up` started"
        yield Check(f"setting {name}", "ok", f"{_shown(name, str(value))} ({origin})")
    yield Check("project", "ok", str(settings.project))
    if not settings.streams.is_dir():
        cure = f"make it, or set {PREFIX}STREAMS to the folder with the streams"
        yield Check("streams", "info", f"the folder {settings.streams} is not there", cure)


def _in_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _shown(name: str, value: str) -> str:
    """A setting without its secrets; what is no URL in the place of one may be a secret as a whole."""
    if name in ("spark_remote", "spark_master"):
        return endpoints.shown(value)
    return masked_url(value) if name == "database_url" else value


def _kafka_properties(settings: Settings) -> Check | None:
    from kafka_assets.broker.connection import require_words

    if not settings.kafka:
        return None
    require_words(settings.kafka)
    shown = ", ".join(f"{name}={value}" for name, value in sorted(masked_properties(settings.kafka).items()))
    return Check("kafka properties", "ok", shown)


def _broker(settings: Settings) -> Check:
    from kafka_assets.broker.cluster import describe_cluster
    from kafka_assets.broker.connection import Connection

    if settings.bootstrap_servers is None:
        return Check("broker", "info", "none is set, and none was started", f"{UP}, or set {PREFIX}BOOTSTRAP_SERVERS")
    cluster = describe_cluster(Connection.of(settings), timeout=SECONDS)
    return Check("broker", "ok", f"cluster {cluster.cluster_id}: {', '.join(cluster.brokers)}")


def _spark(settings: Settings, *, deep: bool) -> Sequence[Check]:
    from kafka_assets.audit.spark_checks import spark_checks

    return spark_checks(settings, deep=deep)


def _database(settings: Settings) -> Check:
    from kafka_assets.ledger.engine import make_engine, parse_url, shown
    from kafka_assets.ledger.schema import REVISION, current_revision

    url = parse_url(settings.database_url)
    engine = make_engine(url)
    found = current_revision(engine)
    if found is None:
        absent = url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists()
        detail = f"{url.database} is not there yet" if absent else f"{shown(url)} has no ledger yet"
        return Check("database", "info", detail, "run `kafka-assets db init`, or let the sensor make it")
    if found != REVISION:
        detail = f"the ledger in {shown(url)} is at revision {found}; this code needs {REVISION}"
        return Check("database", "failed", detail, "run `kafka-assets db upgrade`, or use the code of its revision")
    return Check("database", "ok", f"ledger at revision {found} in {shown(url)}{_packets(engine)}")


def _packets(engine: Engine) -> str:
    """What a statement may hold, where the server says that: a record beyond it does not land by INSERT."""
    from kafka_assets.ledger.drivers import packet_limit
    from kafka_assets.ledger.engine import read

    if engine.dialect.name not in {"mysql", "mariadb"}:
        return ""
    with read(engine) as connection:
        return f", max_allowed_packet {packet_limit(connection):,}"


def _artifacts() -> Check:
    from kafka_assets.devstack.artifacts import cache_folder, group
    from kafka_assets.devstack.fetch import absent

    needed = group("kafka")
    missing = absent(needed)
    if missing:
        size = sum(artifact.size for artifact in missing) / 1e6
        detail = f"{len(missing)} of {len(needed)} files are not in {cache_folder()} yet ({size:.0f} MB)"
        return Check("artifacts", "info", detail, "`kafka-assets up` fetches them, once for this user")
    return Check("artifacts", "ok", f"{len(needed)} files in {cache_folder()}, as jars.lock has them")


def _disk(settings: Settings) -> Check:
    free = shutil.disk_usage(settings.project).free
    detail = f"{free / 1e9:.1f} GB free at {settings.project}"
    if free < TIGHT:
        return Check("disk", "failed", detail, "make room")
    return Check("disk", "ok" if free >= ENOUGH else "info", detail, "" if free >= ENOUGH else "make room soon")
