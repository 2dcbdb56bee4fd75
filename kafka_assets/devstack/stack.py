"""`up`, `down` and `status`: the services of one project, in one state folder."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from kafka_assets.devstack import artifacts, catalogue, fetch, ports, processes, starting
from kafka_assets.devstack.kafka import Kafka
from kafka_assets.devstack.locks import held
from kafka_assets.devstack.progress import Progress, Silent
from kafka_assets.devstack.service import Service
from kafka_assets.devstack.state import Record, State, StateFile
from kafka_assets.errors import KafkaAssetsError, ServiceError
from kafka_assets.settings import Settings, make_private

LONGEST_UP = 30 * 60.0
LEAST_SPACE = 500_000_000
"""What empty services and their logs may take; with less, they die of it one by one, each in its own words."""


@dataclass(frozen=True)
class ServiceStatus:
    """One service as it is now: `ready`, `starting`, `slow` (answers no question in time), `silent` (accepts
    no connection) or `dead`."""

    name: str
    state: str
    pid: int
    born: str
    """Of two processes that had this pid one after the other, says which: see :func:`birth`."""
    started: datetime
    ports: dict[str, int]
    url: str = field(repr=False)
    """How a client reaches it, with its password or token."""
    log: Path


@dataclass(frozen=True)
class Running:
    """What `up` leaves: every asked service, ready."""

    bootstrap_servers: str | None
    spark_remote: str | None = field(repr=False)
    urls: dict[str, str] = field(repr=False)
    services: tuple[ServiceStatus, ...]


def up(
    state_dir: Path,
    services: Sequence[str] = catalogue.DEFAULT,
    *,
    brokers: int | None = None,
    progress: Progress | None = None,
) -> Running:
    """Start what of these services does not run yet, side by side; return when all answered a real request."""
    progress = progress or Silent()
    file = StateFile(state_dir.resolve())
    with _disk_errors(file.folder), _alone(file, progress):
        wanted = catalogue.resolve(file, services, brokers=brokers)
        _start_missing(wanted, file, progress)
    state = file.read()
    return Running(
        bootstrap_servers=state.endpoints.get("bootstrap_servers"),
        spark_remote=state.endpoints.get("spark_remote"),
        urls={service.name: state.services[service.name].url for service in wanted},
        services=tuple(_status(service.name, state.services[service.name]) for service in wanted),
    )


def needed(settings: Settings) -> list[str]:
    """Of the services that `up` starts by default those that the settings do not name another one for."""
    return catalogue.needed(StateFile(settings.state.resolve()), settings)


def down(
    state_dir: Path, *, only: Sequence[str] | None = None, delete: bool = False, progress: Progress | None = None
) -> list[str]:
    """Stop everything of this project, or only what is named, clients of others first; return what was stopped."""
    progress = progress or Silent()
    folder = state_dir.resolve()
    if not folder.exists():
        return []
    file = StateFile(folder)
    with _alone(file, progress):
        try:
            known, records = catalogue.known(file), file.read().services
        except ServiceError as error:
            progress.say(f"{error.what}; ending what carries this project's mark")
            file.forget()
            known, records = [], {}
        asked = [name for name in records if only is None or name in only]
        stopped = [name for names in _stop_order(asked) for name in _stop(names, known, file, progress)]
        if only is not None:
            return stopped
        if strays := processes.strays(folder):
            progress.say(f"ending what was left of them (pid {', '.join(str(one.pid) for one in strays)})")
            processes.stop(strays, patience=15)
            stopped.append("strays")
        if delete:
            _delete(known, file, progress)
    return stopped


def status(state_dir: Path, *, asked: bool = False) -> list[ServiceStatus]:
    """The services that `up` started here and `down` did not stop, dead ones among them.

    `asked`: those that listen are asked a question, too, where that alone tells whether they can be worked with.
    """
    file = StateFile(state_dir.resolve())
    services = file.read().services
    found = [_status(name, record) for name, record in sorted(services.items())]
    if not asked:
        return found
    known = {one.name: one for one in catalogue.known(file)}
    return [replace(one, state="slow") if one.state == "ready" and _slow(known, one) else one for one in found]


def _start_missing(wanted: Sequence[Service], file: StateFile, progress: Progress) -> None:
    cancelled = threading.Event()
    with ThreadPoolExecutor(max_workers=max(len(wanted), 1)) as pool:
        try:
            checks = [
                pool.submit(starting.running, service, file, progress=progress, cancelled=cancelled)
                for service in wanted
            ]
            missing = [service for service, check in zip(wanted, checks, strict=True) if not check.result()]
            missing += _brokers_to_restart(missing, wanted, file, progress)
            if missing:
                fetch.require_space(file.folder, LEAST_SPACE, what="start services")
            fetch.fetch(_artifacts_of(missing), progress=progress)
            chosen = catalogue.assign_ports(file, missing, progress)
            starts = [
                pool.submit(starting.start, service, file, chosen[service.name], progress=progress, cancelled=cancelled)
                for service in missing
            ]
            _raise_failures(starts)
        except BaseException:
            # Without it, Ctrl-C would wait here until every service had run out of patience.
            cancelled.set()
            raise


def _brokers_to_restart(
    missing: Sequence[Service], wanted: Sequence[Service], file: StateFile, progress: Progress
) -> list[Service]:
    """The brokers that run, where one that does not has lost its port: every broker is told every controller's."""
    remembered = file.read().ports
    brokers = [service for service in missing if isinstance(service, Kafka) and service.name in remembered]
    running = [service for service in wanted if isinstance(service, Kafka) and service not in missing]
    if not running:
        return []
    lost = [one for one in brokers if not ports.becomes_free(remembered[one.name]["controller"])]
    if not lost:
        return []
    progress.say(f"a port of {lost[0].name} is taken by another program; its cluster moves with it")
    _stop([service.name for service in running], running, file, progress)
    return list(running)


def _artifacts_of(services: Sequence[Service]) -> list[artifacts.Artifact]:
    """What these services run from, in one list: one fetch for all of them."""
    lock = artifacts.read_lock()
    names = dict.fromkeys(name for service in services for name in service.artifacts)
    return [artifact for name in names for artifact in lock[name]]


def _raise_failures(starts: Sequence[Future[None]]) -> None:
    """Wait for all; of several failures the first is raised, and the others are told beside it."""
    failures = [error for start in starts if (error := start.exception()) is not None]
    ours = [error for error in failures if isinstance(error, KafkaAssetsError)]
    if len(ours) > 1 and len(ours) == len(failures):
        raise ServiceError(
            " · ".join(error.what for error in ours),
            why="\n".join(error.why for error in ours),
            cure="\n".join(dict.fromkeys(error.cure for error in ours)),
        )
    for error in failures:
        raise error


def _stop_order(names: Iterable[str]) -> list[list[str]]:
    """Who uses others before them: Dagster, then Spark, then the brokers; databases last."""
    rank = {"dagster": "0", "spark": "1", "registry": "2"}

    def key(name: str) -> str:
        # The brokers of a cluster together: the last of three would wait in vain for the other two.
        return "3" if name.startswith("kafka-") else rank.get(name, name)

    return [list(together) for _, together in groupby(sorted(names, key=key), key=key)]


def _stop(names: Sequence[str], known: Sequence[Service], file: StateFile, progress: Progress) -> list[str]:
    """Stop these services together; return those that were alive."""
    records = file.read().services
    alive = {name: process for name in names if (process := processes.find(records[name].pid, records[name].born))}
    service: Service | type[Service] = next((one for one in known if one.name in names), Service)
    killed = processes.stop(alive.values(), patience=service.farewell, ask=service.stop_signal)
    for name in names:
        if name not in alive:
            progress.say(f"{name} was dead already (pid {records[name].pid})")
        else:
            how = "killed: it did not stop when asked" if alive[name] in killed else "stopped"
            progress.say(f"{name} {how} (pid {records[name].pid})")

    def edit(state: State) -> None:
        for name in names:
            del state.services[name]

    file.change(edit)
    return list(alive)


def _delete(known: Sequence[Service], file: StateFile, progress: Progress) -> None:
    for folder in (*(folder for service in known for folder in service.data()), file.folder / "logs"):
        if folder.exists():
            shutil.rmtree(folder)
            progress.say(f"removed {folder}")
    file.forget()


def _slow(known: Mapping[str, Service], one: ServiceStatus) -> bool:
    return one.name in known and known[one.name].slow(one.ports) is not None


def _status(name: str, record: Record) -> ServiceStatus:
    if processes.find(record.pid, record.born) is None:
        state = "dead"
    elif not record.ready:
        state = "starting"
    else:
        state = "ready" if ports.answers(record.ports["client"]) else "silent"
    return ServiceStatus(
        name=name,
        state=state,
        pid=record.pid,
        born=record.born,
        started=datetime.fromtimestamp(record.started, tz=UTC),
        ports=record.ports,
        url=record.url,
        log=Path(record.log),
    )


@contextmanager
def _alone(file: StateFile, progress: Progress) -> Generator[None]:
    waiting = "another `kafka-assets up` or `down` is at work in this project; waiting for it"
    make_private(file.folder)
    with held(file.folder / "services.lock", timeout=LONGEST_UP, on_wait=lambda: progress.say(waiting)):
        yield


_NOT_WRITABLE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    *(errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST),
}


@contextmanager
def _disk_errors(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        raise ServiceError(
            "the services' files could not be written",
            why=f"{error.strerror}: {error.filename or folder}",
            cure=f"free space or give access there; the project's services live in {folder}",
        ) from error
