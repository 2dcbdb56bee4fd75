"""A run launcher whose runs are forked from a process that has imported everything: in dagster.yaml,

run_launcher:
  module: kafka_assets.assets.launcher
  class: WarmRunLauncher
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.instance import DagsterInstance
from dagster._core.launcher import (
    CheckRunHealthResult,
    DefaultRunLauncher,
    LaunchRunContext,
    RunLauncher,
    WorkerStatus,
)
from dagster._core.origin import JobPythonOrigin
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation
from dagster._core.storage.dagster_run import DagsterRun
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClass, ConfigurableClassData, serialize_value

from kafka_assets.assets.nursery_door import NoNurseryError, NurseryDoor
from kafka_assets.assets.run_process import LAUNCHER_TAG, RunProcess, this_host

FOLDER = "nurseries"
PAUSE = 60.0
"""Seconds in which a code location's runs are started the plain way, after it could have no nursery."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Place:
    """A code location of this host, as it is loaded now."""

    origin: JobPythonOrigin
    location: str
    server: str
    """Of each loading of a code location another one."""
    load: str
    """What the code server knew when it loaded it, for who loads it again."""


class WarmRunLauncher(RunLauncher[DagsterInstance], ConfigurableClass):
    """Forks each run from a nursery, one for each code location; what cannot be forked, Dagster's own launcher starts.

    A run is a process of its own, as ever: it may be killed, and is interrupted by Dagster's *Terminate*. Its code is
    what lies on the disk when it starts, and what the code location loaded last.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data
        self._plain = DefaultRunLauncher()
        self._doors: dict[str, NurseryDoor] = {}
        """Of the nurseries that this launcher had runs of."""
        self._paused: dict[str, float] = {}
        super().__init__()

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Mapping[str, Any]) -> WarmRunLauncher:
        return cls(inst_data)

    def register_instance(self, instance: DagsterInstance) -> None:
        super().register_instance(instance)
        self._plain.register_instance(instance)

    def launch_run(self, context: LaunchRunContext) -> None:
        place = self._place(context)
        if place is None or not self._forked(context.dagster_run, place):
            self._plain.launch_run(context)

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        process = RunProcess.of(run)
        if process is None:
            return self._plain.terminate(run_id)
        self._instance.report_run_canceling(run)
        if process.interrupt():
            return True
        self._instance.report_engine_event(
            f"The run's process, {process.pid} on {process.host}, cannot be told to end: "
            + ("it is gone." if process.is_here else "it is on another host than the process that was asked to."),
            run,
            cls=self.__class__,
        )
        return False

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Of a run that Dagster's own launcher started its code server watches the process, and nobody else can."""
        process = RunProcess.of(run)
        if process is None or process.may_live:
            return CheckRunHealthResult(WorkerStatus.RUNNING, run_worker_id=str(process.pid) if process else None)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"the run's process, {process.pid}, is gone")

    def dispose(self) -> None:
        """Its runs go on; the nurseries end with the last of them."""
        for door in self._doors.values():
            door.end()

    def _forked(self, run: DagsterRun, place: _Place) -> bool:
        """Whether a child of the nursery carries the run out; else nobody does yet."""
        named = f"{place.location} {serialize_value(place.origin.repository_origin)}"
        name = hashlib.sha256(named.encode()).hexdigest()[:16]
        if time.monotonic() < self._paused.get(name, 0):
            return False
        door = self._doors[name] = NurseryDoor(
            folder=Path(self._instance.root_directory) / FOLDER,
            name=name,
            executable=place.origin.repository_origin.executable_path,
            told={
                "origin": serialize_value(place.origin),
                "instance": serialize_value(self._instance.get_ref()),
                "location": place.location,
                "server": place.server,
                "load": place.load,
            },
        )
        # Where this process is killed before the run has one, somebody must be able to see it.
        self._instance.add_run_tags(run.run_id, RunProcess.launcher(run.run_id).tag(LAUNCHER_TAG))
        args = ExecuteRunArgs(job_origin=place.origin, run_id=run.run_id, instance_ref=self._instance.get_ref())
        try:
            with door.forked(run.run_id, serialize_value(args)) as child:
                process = RunProcess(run.run_id, host=this_host(), pid=child.pid, born=child.born)
                self._instance.add_run_tags(run.run_id, process.tag())
                child.begin()
        except NoNurseryError as error:
            self._paused[name] = time.monotonic() + PAUSE
            _log.warning(
                "Runs of %s are started as processes of their own, which takes seconds more: %s", place.location, error
            )
            return False
        return True

    def _place(self, context: LaunchRunContext) -> _Place | None:
        """Where the run's definitions can be loaded on this host; None where that is Dagster's own launcher's affair.

        A code server that is reached by a unix socket runs on this host.
        """
        run, workspace = context.dagster_run, context.workspace
        if run.job_code_origin is None or run.remote_job_origin is None or workspace is None or sys.platform != "linux":
            return None
        name = run.remote_job_origin.repository_origin.code_location_origin.location_name
        location = workspace.get_code_location(name)
        executable = run.job_code_origin.repository_origin.executable_path
        if (
            not isinstance(location, GrpcServerCodeLocation)
            or not location.client.socket
            or not Path(executable).exists()
        ):
            return None
        load = None
        if run.has_repository_load_data and run.execution_plan_snapshot_id is not None:
            load = self._instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).repository_load_data
        # What a location has fetched once for all of its runs may be another one for each of them.
        if load is not None and any(value for field, value in load._asdict().items() if field != "code_location_name"):
            return None
        try:
            server = location.client.get_server_id()
        except DagsterUserCodeUnreachableError:
            return None  # Dagster's own launcher says what that means for the run
        return _Place(run.job_code_origin, location=name, server=server, load=serialize_value(load) if load else "")
