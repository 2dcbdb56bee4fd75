"""One service from not there to ready: found running, or started, watched until it answers, and recorded."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import psutil

from kafka_assets.birth import birth
from kafka_assets.devstack import processes
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.service import Service
from kafka_assets.devstack.state import Record, State, StateFile
from kafka_assets.errors import ServiceError
from kafka_assets.masks import masked_address


class StartInterruptedError(Exception):
    """The caller gave up while a service was starting."""


def running(service: Service, file: StateFile, *, progress: Progress, cancelled: threading.Event) -> bool:
    """Whether the service runs and answers already; what runs and does not answer is ended, and said."""
    record = file.read().services.get(service.name)
    if record is None:
        _end_strays(service, progress)
        return False
    process = processes.find(record.pid, record.born)
    if process is None:
        progress.say(f"{service.name} is dead (pid {record.pid} is gone); starting it again, with its data")
        _end_strays(service, progress)
        return False
    # One that `up` was killed beside may still be starting; one that was ready has no excuse.
    patience = 10.0 if record.ready else service.patience
    reason = _wait(service, process, record.ports, patience=patience, cancelled=cancelled)
    if reason is None:
        _record(service, file, process, record.ports, ready=True)
        return True
    progress.say(f"{service.name} (pid {record.pid}) does not answer ({reason}); starting it again, with its data")
    # It may hear nothing at all any more, so it is not given the time of one that is at work.
    processes.stop([process], patience=5, ask=service.stop_signal)
    return False


def start(
    service: Service, file: StateFile, ports: Mapping[str, int], *, progress: Progress, cancelled: threading.Event
) -> None:
    """Start the service, wait until it answered a real request, and record it."""
    begun = time.monotonic()
    launch = service.prepare(ports, progress)
    if cancelled.is_set():
        raise StartInterruptedError
    since = service.log.stat().st_size if service.log.exists() else 0
    process = processes.spawn(
        launch.command,
        mark=f"{service.name}@{service.state}",
        env=launch.env,
        folder=launch.folder,
        log=service.log,
        unprivileged=launch.unprivileged,
        whole_environment=launch.whole_environment,
    )
    # Known before it is ready: if we are killed now, `down` still finds it.
    _record(service, file, process, ports, ready=False)
    reason = _wait(service, process, ports, patience=service.patience, cancelled=cancelled)
    if reason is not None:
        ended = not processes.is_alive(process)
        processes.stop([process], patience=service.farewell, ask=service.stop_signal)
        _forget(service, file)
        raise _failed(service, reason, ended=ended, since=since)
    _record(service, file, process, ports, ready=True)
    progress.say(f"{service.name} is ready at {masked_address(service.url(ports))} ({time.monotonic() - begun:.1f} s)")


def _wait(
    service: Service,
    process: psutil.Process,
    ports: Mapping[str, int],
    *,
    patience: float,
    cancelled: threading.Event,
) -> str | None:
    """None as soon as it answers, else why it does not."""
    deadline = time.monotonic() + patience
    while True:
        if cancelled.is_set():
            raise StartInterruptedError
        if not processes.is_alive(process):
            return "its process ended"
        reason = service.unready(ports)
        if reason is None or time.monotonic() > deadline:
            return reason
        time.sleep(0.1)


def _failed(service: Service, reason: str, *, ended: bool, since: int) -> ServiceError:
    written = processes.tail(service.log, since=since)
    what = "ended while it started" if ended else f"was not ready after {service.patience:.0f} s"
    return ServiceError(
        f"{service.name} {what}",
        why=f"{reason}; its log says:\n{written}" if written else f"{reason}; its log says nothing",
        cure=f"read the whole log, {service.log}, then run `kafka-assets up` again",
    )


def _end_strays(service: Service, progress: Progress) -> None:
    """A process of this service that the state file does not know would hold its data folder."""
    if strays := processes.strays(service.state, service.name):
        pids = ", ".join(str(process.pid) for process in strays)
        progress.say(f"ending what was left of {service.name} (pid {pids})")
        processes.stop(strays, patience=service.farewell)


def _record(
    service: Service, file: StateFile, process: psutil.Process, ports: Mapping[str, int], *, ready: bool
) -> None:
    record = Record(
        pid=process.pid,
        born=birth(process.pid) or "gone",
        started=process.create_time(),
        ports=dict(ports),
        log=str(service.log),
        url=service.url(ports),
        ready=ready,
    )

    def edit(state: State) -> None:
        state.services[service.name] = record

    file.change(edit)


def _forget(service: Service, file: StateFile) -> None:
    def edit(state: State) -> None:
        state.services.pop(service.name, None)

    file.change(edit)
