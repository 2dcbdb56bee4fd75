"""Runs that are forked from a nursery: by a real code server and a real instance, with assets that need no service."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster._core.code_pointer import FileCodePointer
from dagster._core.launcher import WorkerStatus
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._serdes import serialize_value

from kafka_assets.assets.launcher import FOLDER, WarmRunLauncher
from kafka_assets.assets.loaded_files import LoadedFiles
from kafka_assets.assets.nursery import IDLE, MOST_GROWTH, MOST_RUNS, NOBODY, ORPHANED, RUN_WORD, Nursery
from kafka_assets.assets.nursery_door import NoNurseryError, NurseryDoor
from kafka_assets.assets.run_process import RunProcess
from kafka_assets.devstack.dagster import write_instance
from kafka_assets.lab.bench.run_cost import is_run

pytestmark = pytest.mark.slow

INSTANCE = """
telemetry: {enabled: false}
run_launcher: {module: kafka_assets.assets.launcher, class: WarmRunLauncher}
"""
CODE = """
import atexit, os, pathlib, sys, time
import dagster as dg

VALUE = 1
FOLDER = pathlib.Path(__file__).parent
TOLD = FOLDER / "told.yaml"
LISTED = (FOLDER / "defs").rglob("*") if (FOLDER / "defs").is_dir() else ()
DECLARED = f"{TOLD.read_text().strip() if TOLD.exists() else ''}{''.join(map(str, LISTED))}"

def born():
    there = set(sys.modules)
    atexit.register(lambda: (FOLDER / "imported").write_text(" ".join(set(sys.modules) - there)))

os.register_at_fork(after_in_child=born)

@dg.op
def tell():
    print("said by the run", flush=True)
    (FOLDER / "told").write_text(f"{VALUE}:{DECLARED} {os.getpid()} {os.getppid()}")

@dg.op
def wait():
    (FOLDER / "waiting").write_text(str(os.getpid()))
    time.sleep(120)

@dg.job
def tells():
    tell()

@dg.job
def waits():
    wait()

@dg.definitions
def defs():
    with (FOLDER / "loads").open("a") as loads:
        loads.write(f"{os.getpid()}\\n")
    return dg.Definitions(jobs=[tells, waits], executor=dg.in_process_executor)
"""


NAME = "alone"


class Site:
    """A code location, an instance, and what was launched there."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, context: WorkspaceProcessContext) -> None:
        self.folder, self.instance, self.context = folder, instance, context

    @property
    def launcher(self) -> WarmRunLauncher:
        launcher = self.instance.run_launcher
        assert isinstance(launcher, WarmRunLauncher)
        return launcher

    def created(self, job: str) -> dg.DagsterRun:
        workspace = self.context.create_request_context()
        [location] = workspace.code_locations
        [repository] = location.get_repositories().values()
        found = repository.get_full_job(job)
        plan = location.get_execution_plan(found, {}, step_keys_to_execute=None, known_state=None)
        return create_run_for_test(
            self.instance,
            job_name=job,
            job_snapshot=found.job_snapshot,
            parent_job_snapshot=found.parent_job_snapshot,
            execution_plan_snapshot=plan.execution_plan_snapshot,
            remote_job_origin=found.get_remote_origin(),
            job_code_origin=found.get_python_origin(),
        )

    def launch(self, job: str) -> dg.DagsterRun:
        return self.instance.launch_run(self.created(job).run_id, self.context.create_request_context())

    def begun(self) -> dg.DagsterRun:
        """A run that waits."""
        (self.folder / "waiting").unlink(missing_ok=True)
        run = self.launch("waits")
        until((self.folder / "waiting").exists)
        return run

    def told(self) -> tuple[str, int, int]:
        """What the last run of `tells` told: the code's value, its process, and that one's parent."""
        value, pid, parent = (self.folder / "told").read_text().split()
        return value.replace(f"{self.folder}/", ""), int(pid), int(parent)

    def process(self, run: dg.DagsterRun) -> RunProcess:
        process = RunProcess.of(self.run(run))
        assert process is not None
        return process

    def parent(self, run: dg.DagsterRun) -> int:
        return psutil.Process(self.process(run).pid).ppid()

    def run(self, run: dg.DagsterRun) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found

    def ended(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        until(lambda: self.run(run).is_finished)
        return self.run(run).status


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def nurseries(folder: Path) -> list[int]:
    """The nurseries that serve an instance, those that end with their last child among them."""
    return nurseries_named(*(path.stem for path in (folder / FOLDER).glob("*.lock")))


def nurseries_named(*names: str) -> list[int]:
    commands = {one.pid: _command(one) for one in psutil.process_iter()}
    return [pid for pid, words in commands.items() if set(names) & set(words) and f"{RUN_WORD}{NOBODY}" in words]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextmanager
def made(folder: Path, code: str) -> Iterator[Site]:
    """A site whose sockets have paths of more bytes than an address holds."""
    home = folder / ("h" * 120)
    home.mkdir()
    (folder / "defs").mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    (folder / "code.py").write_text(code)
    target = PythonFileTarget(
        str(folder / "code.py"), attribute=None, working_directory=str(folder), location_name="site"
    )
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        WorkspaceProcessContext(instance, target) as context,
    ):
        yield Site(folder, instance, context)
    context._grpc_server_registry.wait_for_processes()
    until(lambda: not nurseries(home))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with made(tmp_path_factory.mktemp("site"), CODE) as one:
        yield one


@pytest.fixture
def door(site: Site, tmp_path: Path) -> Callable[[str], NurseryDoor]:
    """The place of a nursery for some code, of a name that no other test's has, in a folder beside the instance's."""

    def to(code: str) -> NurseryDoor:
        (tmp_path / "code.py").write_text(code)
        pointer = FileCodePointer(str(tmp_path / "code.py"), "defs", str(tmp_path))
        origin = JobPythonOrigin("tells", RepositoryPythonOrigin(sys.executable, pointer))
        return NurseryDoor(
            folder=tmp_path / "home" / FOLDER,
            name=NAME,
            executable=sys.executable,
            told={
                "origin": serialize_value(origin),
                "instance": serialize_value(site.instance.get_ref()),
                "location": "alone",
                "server": "1",
                "load": "",
            },
        )

    return to


def test_runs_are_children_of_one_nursery_that_ps_tells_apart(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    first = site.launch("tells")
    assert site.ended(first) is dg.DagsterRunStatus.SUCCESS
    waiting = site.begun()
    assert site.parent(waiting) == site.told()[2]
    command = psutil.Process(site.process(waiting).pid).cmdline()
    assert command[-1] == f"{RUN_WORD}{waiting.run_id}"
    assert is_run(command) and not is_run(psutil.Process(site.parent(waiting)).cmdline())
    assert site.launcher.check_run_worker_health(site.run(waiting)).status is WorkerStatus.RUNNING
    loads = (site.folder / "loads").read_text().split()
    assert loads.count(str(site.parent(waiting))) == 1 and str(site.process(waiting).pid) not in loads
    events = [one.message for one in site.instance.all_logs(first.run_id)]
    pid = site.process(first).pid
    assert f"Started process for run (pid: {pid})." in events
    until(lambda: f"Process for run exited (pid: {pid})." in [e.message for e in site.instance.all_logs(first.run_id)])
    assert "said by the run" in capfd.readouterr().out
    assert site.launcher.terminate(waiting.run_id)
    assert site.ended(waiting) is dg.DagsterRunStatus.CANCELED
    until(lambda: not psutil.pid_exists(site.process(waiting).pid))
    assert not site.launcher.terminate(waiting.run_id)


def test_a_run_imports_nothing_that_its_nursery_has_not(site: Site) -> None:
    (site.folder / "imported").unlink(missing_ok=True)
    assert site.ended(site.launch("tells")) is dg.DagsterRunStatus.SUCCESS
    until((site.folder / "imported").exists)
    assert (site.folder / "imported").read_text() == ""


def test_a_killed_run_is_told_and_leaves_no_zombie(site: Site) -> None:
    run = site.begun()
    pid = site.process(run).pid
    os.kill(pid, signal.SIGKILL)
    assert site.ended(run) is dg.DagsterRunStatus.FAILURE
    assert any("signal 9" in one.message for one in site.instance.all_logs(run.run_id))
    until(lambda: not psutil.pid_exists(pid))


def test_the_runs_of_a_killed_nursery_go_on_and_the_next_one_has_another(site: Site) -> None:
    run = site.begun()
    nursery = site.parent(run)
    os.kill(nursery, signal.SIGKILL)
    assert site.ended(site.launch("tells")) is dg.DagsterRunStatus.SUCCESS
    assert site.told()[2] != nursery
    assert site.launcher.check_run_worker_health(site.run(run)).status is WorkerStatus.RUNNING
    os.kill(site.process(run).pid, signal.SIGKILL)
    until(lambda: not site.process(run).lives)
    assert site.launcher.check_run_worker_health(site.run(run)).status is WorkerStatus.NOT_FOUND
    assert not site.launcher.terminate(run.run_id), "nobody is there to be told"
    site.instance.report_run_failed(site.run(run))


def test_a_run_has_the_code_that_lies_on_the_disk(site: Site) -> None:
    assert site.ended(site.launch("tells")) is dg.DagsterRunStatus.SUCCESS
    assert site.told()[0] == "1:"
    for name, text, value in (
        ("code.py", CODE.replace("VALUE = 1", "VALUE = 2"), "2:"),
        ("told.yaml", "told\n", "2:told"),
        ("defs/orders.yaml", "", "2:tolddefs/orders.yaml"),
    ):
        (site.folder / name).write_text(text)
        assert site.ended(site.launch("tells")) is dg.DagsterRunStatus.SUCCESS
        assert site.told()[0] == value
    until(lambda: nurseries(Path(site.instance.root_directory)) == [site.told()[2]])


def test_a_code_location_that_is_loaded_again_has_another_nursery(door: Callable[[str], NurseryDoor]) -> None:
    first = door(CODE)
    pids: list[int | None] = []
    for loaded in ("1", "1", "2"):
        with replace(first, told={**first.told, "server": loaded}).forked("run", "never read") as child:
            pids.append(psutil.Process(child.pid).ppid())
    assert pids[0] == pids[1] != pids[2]
    until(lambda: nurseries(first.folder.parent) == [pids[2]])
    first.end()
    until(lambda: not nurseries(first.folder.parent))


def test_a_child_that_is_not_told_to_begin_ends_and_has_done_nothing(site: Site) -> None:
    assert site.ended(site.launch("tells")) is dg.DagsterRunStatus.SUCCESS
    run = site.created("tells")
    [door] = site.launcher._doors.values()
    with door.forked(run.run_id, "never read") as child:
        assert psutil.pid_exists(child.pid)
    until(lambda: not psutil.pid_exists(child.pid))
    assert site.run(run).status is dg.DagsterRunStatus.NOT_STARTED


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", "2 threads"),
        ("import socket; PAIR = socket.socketpair()", "left open .* socket:"),
        ("import no_such_module", "cannot be loaded: DagsterImportError|ModuleNotFoundError"),
    ],
    ids=["a thread", "a connection", "a broken file"],
)
def test_a_process_that_must_not_fork_is_no_nursery(
    door: Callable[[str], NurseryDoor], first: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(NoNurseryError, match=why), door(f"{first}\n{CODE}").forked("run", "never read"):
        pass
    until(lambda: not nurseries(tmp_path / "home"))


def test_a_run_that_cannot_be_forked_is_started_by_dagsters_own_launcher(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(site.instance.root_directory) / FOLDER
    folder.chmod(0o755)
    try:
        run = site.begun()
        assert RunProcess.of(site.run(run)) is None
        assert site.launcher.check_run_worker_health(site.run(run)).status is WorkerStatus.RUNNING
        assert site.launcher.terminate(run.run_id)
        assert site.ended(run) is dg.DagsterRunStatus.CANCELED
    finally:
        folder.chmod(0o700)
        site.launcher._paused.clear()
    [said] = [one.getMessage() for one in caplog.records if one.name == "kafka_assets.assets.launcher"]
    assert "Runs of site are started as processes of their own" in said and "chmod 700" in said


def test_a_nursery_without_its_instances_folder_ends(door: Callable[[str], NurseryDoor], tmp_path: Path) -> None:
    with door(CODE).forked("run", "never read"):
        assert nurseries(tmp_path / "home")
        shutil.rmtree(tmp_path / "home")
    until(lambda: not nurseries_named(NAME))


def test_the_dagster_yaml_that_up_writes_has_the_launcher(tmp_path: Path) -> None:
    write_instance(tmp_path / "home")
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        assert isinstance(instance.run_launcher, WarmRunLauncher)
        assert instance.run_launcher.supports_check_run_worker_health


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    """One in this process, that nobody asks for anything."""
    one = Nursery(folder=tmp_path, name="here", server="1", loaded=LoadedFiles())
    yield one
    one._leave()


def test_a_nursery_without_runs_ends_after_a_while_and_soon_where_its_daemon_was_killed(nursery: Nursery) -> None:
    assert not nursery._is_over()
    nursery._heard -= ORPHANED + 1
    assert not nursery._is_over()
    nursery._starter = -1
    assert nursery._is_over()
    nursery._runs[1] = "run", ""
    assert not nursery._is_over(), "its children have nobody else who would notice that they die"
    nursery._runs.clear()
    nursery._starter = os.getppid()
    nursery._heard -= IDLE
    assert nursery._is_over()


def test_a_nursery_is_renewed_after_many_runs_and_when_it_has_grown(nursery: Nursery) -> None:
    assert nursery._stale("1") is None
    assert "loaded again" in (nursery._stale("2") or "")
    nursery._forked = MOST_RUNS
    assert "1000 runs" in (nursery._stale("1") or "")
    nursery._forked = 0
    nursery._least -= MOST_GROWTH + (50 << 20)
    assert "has grown" in (nursery._stale("1") or "")


def test_of_two_nurseries_in_one_place_the_older_leaves_and_takes_nothing_with_it(nursery: Nursery) -> None:
    younger = Nursery(folder=nursery.folder, name="here", server="2", loaded=LoadedFiles())
    assert nursery._is_over() and not younger._is_over()
    nursery._leave()
    assert younger.path.exists()
    younger._leave()
    assert not younger.path.exists()


FORKS = """
import os
from kafka_assets.ledger.backends import own_process
parents = own_process()
pid = os.fork()
if not pid:
    os._exit(own_process() == parents or f":{os.getpid()}:" not in own_process())
assert os.waitpid(pid, 0)[1] == 0 and own_process() == parents
"""


def test_a_forked_run_does_not_go_by_its_nurserys_name_in_the_ledger() -> None:
    subprocess.run([sys.executable, "-c", FORKS], check=True)
