"""services.json, ports, locks and processes, without a service."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from kafka_assets.birth import birth
from kafka_assets.cli import app
from kafka_assets.devstack import catalogue, dagster, locks, ports, processes, spark, stack
from kafka_assets.devstack.dagster import write_instance
from kafka_assets.devstack.postgresql import forget_zombie
from kafka_assets.devstack.progress import Silent
from kafka_assets.devstack.state import Record, State, StateFile
from kafka_assets.errors import ServiceError, UsageError
from kafka_assets.settings import load_settings


class Heard(Silent):
    """Keeps what was said."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(tmp_path / ".kafka_assets")


@pytest.fixture
def sleeper(file: StateFile, tmp_path: Path) -> Iterator[psutil.Process]:
    """A process that runs as a service of the project."""
    process = spawn(file, "import time; time.sleep(60)")
    yield process
    processes.stop([process], patience=0)


def spawn(file: StateFile, code: str) -> psutil.Process:
    file.folder.mkdir(exist_ok=True)
    process = processes.spawn(
        [sys.executable, "-c", code],
        mark=f"spark@{file.folder}",
        env={},
        folder=file.folder,
        log=file.folder / "logs" / "spark.log",
    )
    # For a moment of its beginning a program's environment reads as empty.
    while not process.environ():
        time.sleep(0.01)
    return process


def record(file: StateFile, name: str, process: psutil.Process, *, ready: bool = True, url: str = "u") -> Record:
    one = Record(
        pid=process.pid,
        born=birth(process.pid) or "gone",
        started=process.create_time(),
        ports={"client": 1},
        log=str(file.folder / "logs" / f"{name}.log"),
        url=url,
        ready=ready,
    )
    file.change(lambda state: state.services.update({name: one}))
    return one


def test_only_the_owner_may_read_the_token(file: StateFile) -> None:
    file.change(lambda state: state.secrets.update(spark="secret"))
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [path.name for path in file.folder.iterdir()] == ["services.json"]


def test_a_write_that_fails_leaves_the_old_state(file: StateFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.change(lambda state: state.secrets.update(spark="old"))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.change(lambda state: state.secrets.update(spark="new"))
    assert file.read().secrets == {"spark": "old"}
    assert [path.name for path in file.folder.iterdir()] == ["services.json"]


def test_many_threads_lose_no_change(file: StateFile) -> None:
    def work(number: int) -> None:
        file.change(lambda state: state.ports.update({str(number): {"client": number}}))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(file.read().ports) == 20


def test_endpoints_name_only_what_is_ready(file: StateFile) -> None:
    me = psutil.Process()
    record(file, "kafka-1", me, url="127.0.0.1:1")
    record(file, "kafka-2", me, url="127.0.0.1:2", ready=False)
    record(file, "spark", me, url="sc://localhost:3", ready=False)
    assert file.read().endpoints == {"bootstrap_servers": "127.0.0.1:1"}


def test_settings_find_the_endpoints(file: StateFile) -> None:
    record(file, "kafka-1", psutil.Process(), url="127.0.0.1:1")
    assert load_settings(file.folder.parent, environ={}).bootstrap_servers == "127.0.0.1:1"


def test_a_damaged_state_is_refused_with_the_cure(file: StateFile) -> None:
    file.folder.mkdir()
    file.path.write_text("{", encoding="utf-8")
    with pytest.raises(ServiceError, match=r"services\.json is damaged.*kafka-assets down"):
        file.read()


def test_down_makes_good_a_damaged_state_and_ends_what_it_lost(file: StateFile, sleeper: psutil.Process) -> None:
    file.path.write_text("{", encoding="utf-8")
    stack.down(file.folder)
    assert not processes.is_alive(sleeper)
    assert file.read() == State()


def test_a_reused_pid_is_never_taken_for_the_service(sleeper: psutil.Process) -> None:
    born = birth(sleeper.pid)
    assert born is not None
    assert processes.find(sleeper.pid, born) == sleeper
    assert processes.find(sleeper.pid, f"1{born}") is None


def test_a_clock_that_is_set_takes_no_service_for_another_one(
    sleeper: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    born = birth(sleeper.pid)
    assert born is not None
    # What a step of the clock does to who works out a process's start from the time of day.
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: 60.0)
    monkeypatch.setattr("psutil._pslinux.BOOT_TIME", None, raising=False)  # psutil 7.0 asks once and keeps it
    assert psutil.Process(sleeper.pid).create_time() < 1_000_000_000
    assert birth(sleeper.pid) == born
    assert processes.find(sleeper.pid, born) is not None


def test_a_service_learns_nothing_of_our_secrets_and_what_runs_the_users_code_learns_all(
    file: StateFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_KAFKA__SASL_PASSWORD", "CANARY")
    seen: list[str | None] = []
    for whole in (False, True):
        log = tmp_path / f"{whole}.log"
        process = processes.spawn(
            [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"],
            mark=f"spark@{file.folder}",
            env={"MINE": "1"},
            folder=tmp_path,
            log=log,
            whole_environment=whole,
        )
        process.wait(timeout=30)
        told = json.loads(log.read_text(encoding="utf-8"))
        assert told["MINE"] == "1" and told["PATH"] == os.environ["PATH"]
        seen.append(told.get("KAFKA_ASSETS_KAFKA__SASL_PASSWORD"))
    assert seen == [None, "CANARY"]


def test_the_folder_of_the_services_is_its_owners_alone(file: StateFile) -> None:
    file.change(lambda state: state.secrets.update(spark="secret"))
    assert stat.S_IMODE(file.folder.stat().st_mode) == 0o700


def test_down_does_not_end_a_process_that_took_over_the_pid(file: StateFile) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        record(file, "spark", psutil.Process(other.pid))
        file.change(
            lambda state: state.services.update(spark=state.services["spark"].model_copy(update={"born": "1@other"}))
        )
        heard = Heard()
        assert stack.down(file.folder, progress=heard) == []
        assert other.poll() is None
        assert heard.messages == [f"spark was dead already (pid {other.pid})"]
    finally:
        other.kill()
        other.wait()


def test_a_dead_service_is_listed_as_dead(file: StateFile, sleeper: psutil.Process) -> None:
    record(file, "spark", sleeper)
    processes.stop([sleeper], patience=5)
    assert [(one.name, one.state) for one in stack.status(file.folder)] == [("spark", "dead")]


@pytest.mark.slow
def test_a_spark_that_listens_and_does_not_answer_is_listed_as_slow(
    file: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose memory is full: it takes connections, and answers none of them."""
    monkeypatch.setattr(spark, "SLOW", timedelta(seconds=1))
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(file.folder.parent))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = {"client": mute.getsockname()[1]}
        record(file, "spark", psutil.Process())

        def listens(state: State) -> None:
            state.ports["spark"] = port
            state.services["spark"].ports = port

        file.change(listens)
        assert [one.state for one in stack.status(file.folder)] == ["ready"], "to listen is all that is asked"
        shown = CliRunner().invoke(app, ["ps"])
    assert (shown.exit_code, "slow" in shown.stdout) == (1, True)


@pytest.mark.slow
def test_a_service_that_ignores_the_request_is_killed_with_its_children(file: StateFile) -> None:
    code = "import signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    stubborn = spawn(
        file, code + "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\ntime.sleep(60)"
    )
    deadline = time.monotonic() + 120
    while not (children := stubborn.children()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes.stop([stubborn], patience=0.2)[0] == stubborn
    assert not any(processes.is_alive(process) for process in (stubborn, *children))


def test_what_the_state_file_does_not_know_is_found_by_its_mark(file: StateFile, sleeper: psutil.Process) -> None:
    assert processes.strays(file.folder) == [sleeper]
    assert processes.strays(file.folder, "kafka-1") == []
    assert processes.strays(file.folder.parent) == []


def test_what_a_stray_started_is_found_when_the_stray_has_ended(file: StateFile) -> None:
    parent = spawn(
        file,
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\ntime.sleep(60)",
    )
    deadline = time.monotonic() + 120
    while not ((children := parent.children()) and children[0].environ()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes.strays(file.folder) == [parent]
    parent.kill()
    while processes.is_alive(parent) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes.strays(file.folder) == children
    processes.stop(children, patience=5)
    assert processes.strays(file.folder) == []


def test_a_log_that_has_grown_long_is_put_aside_by_the_next_start(
    file: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = file.folder / "logs" / "spark.log"
    for said in ("first", "second", "third"):
        process = spawn(file, f"print('{said} ' * 20, flush=True); import time; time.sleep(60)")
        while not (log.exists() and said in log.read_text(encoding="utf-8")):
            time.sleep(0.01)
        processes.stop([process], patience=0)
        monkeypatch.setattr(processes, "LONG_LOG", 100)
    kept = {path.name: path.read_text(encoding="utf-8").split()[0] for path in log.parent.iterdir()}
    assert kept == {"spark.log": "third", "spark.log.1": "second"}


def test_the_tail_of_a_log_is_of_this_start_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n", encoding="utf-8")
    since = log.stat().st_size
    with log.open("a", encoding="utf-8") as more:
        more.write("after\n")
    assert processes.tail(log, since=since) == "after"


def test_a_port_is_the_same_as_last_time_when_it_is_free() -> None:
    first = ports.choose(["client"], remembered={}, taken=set())
    assert ports.choose(["client"], remembered=first, taken=set()) == first


@pytest.fixture
def lingering() -> Iterator[int]:
    """A port that who is killed holds for a moment yet."""
    with socket.socket() as killed:
        killed.bind(("127.0.0.1", 0))
        killed.listen()
        ending = threading.Timer(0.1, killed.close)
        ending.start()
        yield killed.getsockname()[1]
        ending.join()


def test_a_port_that_was_held_for_a_moment_by_who_is_killed_is_the_same_as_last_time(lingering: int) -> None:
    before = {"client": lingering}
    assert ports.choose(["client"], remembered=before, taken=set()) == before


def test_brokers_that_run_stay_where_the_port_of_a_killed_one_is_held_for_a_moment(
    file: StateFile, lingering: int
) -> None:
    brokers = catalogue.resolve(file, ["kafka"], brokers=3)
    file.change(lambda state: state.ports.update({brokers[0].name: {"controller": lingering}}))
    heard = Heard()
    assert stack._brokers_to_restart(brokers[:1], brokers, file, heard) == []  # pyright: ignore[reportPrivateUsage]
    assert heard.messages == []


def test_a_taken_port_is_changed_and_said(file: StateFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LINGERS", 0.05)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        file.change(lambda state: state.ports.update(spark={"client": taken}))
        (spark,) = catalogue.resolve(file, ["spark"], brokers=None)
        heard = Heard()
        chosen = catalogue.assign_ports(file, [spark], heard)
    assert chosen["spark"]["client"] != taken
    assert f"port {taken} of spark is taken" in heard.messages[0]


def test_two_services_never_get_one_port(file: StateFile) -> None:
    services = catalogue.resolve(file, ["kafka", "spark", "postgresql", "mariadb"], brokers=3)
    chosen = catalogue.assign_ports(file, services, Silent())
    numbers = [port for named in chosen.values() for port in named.values()]
    assert len(numbers) == len(set(numbers)) == 9


def test_a_second_up_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    lock, heard, waits, inside = tmp_path / "lock", Heard(), threading.Event(), threading.Event()

    def second() -> None:
        with locks.held(lock, timeout=60, on_wait=lambda: (heard.say("waiting"), waits.set())):
            inside.set()

    with locks.held(lock, timeout=1, on_wait=lambda: None):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(60)
        assert not inside.is_set()
        assert heard.messages == ["waiting"]
    thread.join(60)
    assert inside.is_set()


def test_a_lock_that_is_never_released_is_an_error_that_names_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        locks.held(lock, timeout=1, on_wait=lambda: None),
        pytest.raises(ServiceError, match="is still locked"),
        locks.held(lock, timeout=0.1, on_wait=lambda: None),
    ):
        pass


def test_an_unknown_service_is_bad_usage(file: StateFile) -> None:
    with pytest.raises(UsageError, match="'oracle'"):
        catalogue.resolve(file, ["oracle"], brokers=None)


def test_a_cluster_keeps_its_size(file: StateFile) -> None:
    assert len(catalogue.resolve(file, ["kafka"], brokers=3)) == 3
    assert len(catalogue.resolve(file, ["kafka"], brokers=None)) == 3
    with pytest.raises(ServiceError, match="has 3 broker"):
        catalogue.resolve(file, ["kafka"], brokers=1)


def test_a_cluster_of_two_is_bad_usage(file: StateFile) -> None:
    with pytest.raises(UsageError, match="2 brokers"):
        catalogue.resolve(file, ["kafka"], brokers=2)


def test_brokers_stop_together_after_those_who_use_them() -> None:
    names = ["postgresql", "kafka-1", "kafka-2", "spark", "dagster"]
    assert stack._stop_order(names) == [["dagster"], ["spark"], ["kafka-1", "kafka-2"], ["postgresql"]]


def test_down_where_nothing_ever_was_does_nothing(tmp_path: Path) -> None:
    assert stack.down(tmp_path / "nothing") == []
    assert not (tmp_path / "nothing").exists()


def test_services_json_has_the_agreed_shape(file: StateFile) -> None:
    record(file, "kafka-1", psutil.Process(), url="127.0.0.1:1")
    written = json.loads(file.path.read_text(encoding="utf-8"))
    assert written["version"] == 1
    assert set(written["services"]["kafka-1"]) == {"pid", "born", "started", "ports", "log", "url", "ready"}


def test_a_project_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "project").write_text("")
    with pytest.raises(ServiceError, match="cannot be made or written"):
        write_instance(tmp_path / "project" / ".dagster")
    with pytest.raises(ServiceError, match="could not be written"):
        stack.up(tmp_path / "project" / ".kafka_assets", ["kafka"])


@pytest.mark.parametrize("number", [errno.EPERM, errno.EROFS])
def test_a_project_that_nothing_may_be_written_in_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(folder: Path) -> None:
        raise OSError(number, os.strerror(number), str(folder))

    monkeypatch.setattr(stack, "make_private", refuse)
    with pytest.raises(ServiceError, match="could not be written"):
        stack.up(tmp_path / ".kafka_assets", ["kafka"])


@pytest.mark.parametrize(
    ("environ", "started"),
    [
        ({}, ["kafka", "spark"]),
        ({"BOOTSTRAP_SERVERS": "kafka1.example.com:9093"}, ["spark"]),
        ({"BOOTSTRAP_SERVERS": "127.0.0.1:9092"}, ["spark"]),
        ({"BOOTSTRAP_SERVERS": "127.0.0.1:20001"}, ["kafka", "spark"]),
        ({"BOOTSTRAP_SERVERS": "kafka1.example.com:20001"}, ["spark"]),
        ({"SPARK_REMOTE": "sc://spark.example.com"}, ["kafka"]),
        ({"SPARK_REMOTE": "sc://localhost:20002/;token=x"}, ["kafka", "spark"]),
        ({"SPARK_MASTER": "local[2]"}, ["kafka"]),
    ],
)
def test_what_the_settings_name_elsewhere_is_not_started_here(
    tmp_path: Path, file: StateFile, environ: dict[str, str], started: list[str]
) -> None:
    def edit(state: State) -> None:
        state.ports = {"kafka-1": {"client": 20001, "controller": 20003}, "spark": {"client": 20002}}

    file.change(edit)
    settings = load_settings(tmp_path, {f"KAFKA_ASSETS_{name}": value for name, value in environ.items()})
    assert stack.needed(settings) == started


def test_a_killed_postgresql_that_nobody_collects_keeps_no_new_one_from_starting(tmp_path: Path) -> None:
    note = tmp_path / "postmaster.pid"
    for killed in (False, True):
        with subprocess.Popen(["sleep", "60"]) as server:
            note.write_text(f"{server.pid}\n{tmp_path}\n")
            if killed:
                server.kill()
                os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie
            forget_zombie(tmp_path)
            assert note.exists() != killed
            server.kill()


def test_a_dagster_whose_code_server_is_gone_cannot_be_worked_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = "dagster._core.errors.DagsterUserCodeUnreachableError: Could not reach user code server."
    for message, said in ((gone, "the code server of defs is gone"), ("ImportError: no module x", None)):
        entry = {"name": "defs", "locationOrLoadError": {"message": message}}
        answer = {
            "workspaceOrError": {"locationEntries": [entry]},
            "instance": {"daemonHealth": {"allDaemonStatuses": [{"required": True, "healthy": True}]}},
        }
        monkeypatch.setattr(dagster, "graphql", lambda *given, answer=answer, **more: answer)
        monkeypatch.setattr(dagster, "answers", lambda port: True)
        service = dagster.Dagster(tmp_path / ".kafka_assets")
        assert (service.slow({"client": 1}), service.unready({"client": 1})) == (said, said)


@pytest.mark.parametrize("longer", [0, 1])
def test_workers_have_sockets_where_their_addresses_have_room(longer: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # pytest's own may be too long already
        _has_sockets(Path(short) / ("w" * (spark._LONGEST - len(short) - 1 + longer)), longer=longer)


def _has_sockets(folder: Path, *, longer: int) -> None:
    written = spark._worker_sockets(folder)
    assert bool(written) is not bool(longer)
    if written:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        name = folder / ".00000000-0000-0000-0000-000000000000.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(name))  # the longest that a system takes
        assert spark._worker_sockets(folder) == written
        assert not name.exists(), "nobody listens there any more"
