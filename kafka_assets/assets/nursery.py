"""A process that has imported a code location's definitions, and forks a child for each of its runs.

`python -m kafka_assets.assets.nursery NAME run=…`, started by the run launcher. It listens on a unix socket, one
connection for a run. What a child does is `dagster api execute_run`; it begins when the launcher says so, after it has
written down which process the run has: whoever dies on the way, no run is carried out twice.

A fork takes one thread along, and the locks of all others as they stand: so there is one thread, and no connection.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from kafka_assets.arenas import share_arenas
from kafka_assets.assets import warmth
from kafka_assets.assets.loaded_files import LoadedFiles
from kafka_assets.birth import birth

if TYPE_CHECKING:
    pass

TICK = 0.5
"""Seconds between two looks after the children, as Dagster's code server has them."""
IDLE = 600.0
"""Seconds without a run after which it ends."""
ORPHANED = 60.0
"""The same, where the process that started it is gone."""
MOST_RUNS = 1000
MOST_GROWTH = 64 << 20
"""Bytes that it may have beyond those with which it began."""
TALK = 5.0
"""Seconds that a launcher may take for its request; nobody else is heard meanwhile."""
PATIENCE = 60.0
"""Seconds in which a launcher writes down which process its run has."""
RUN_WORD = "run="
"""Its command line ends with it and a run's id: of the nursery itself, with as many dashes."""
NOBODY = "-" * 36

_log = logging.getLogger(__name__)


class Nursery:
    """The loaded definitions, the socket, and the children."""

    def __init__(self, *, folder: Path, name: str, server: str, loaded: LoadedFiles) -> None:
        self.folder, self.server, self.loaded = folder, server, loaded
        self.path = folder / f"{name}.sock"
        self.closing = False
        self._runs: dict[int, tuple[str, str]] = {}
        """Of each child the run and what it was told."""
        self._forked = 0
        self._heard = time.monotonic()
        self._starter = os.getppid()
        self._least = resident()
        self._door = socket.socket(socket.AF_UNIX)
        with short_path(folder, self.path.name) as short:
            self.path.unlink(missing_ok=True)
            self._door.bind(short)
        self._own = self.path.stat().st_ino
        self._door.listen(64)

    def serve(self) -> None:
        """Until it is told to end, or has to; then until the last child has ended."""
        while not self.closing:
            self._bury_dead()
            if select.select([self._door], [], [], TICK)[0] and not self.closing:
                connection, _ = self._door.accept()
                with connection:
                    self._answer(connection)
            if self._is_over():
                self.closing = True
        self._leave()
        while self._runs:
            self._bury_dead()
            time.sleep(TICK)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(TALK)
        try:
            asked = json.loads(read_line(connection))
            if "run" not in asked:
                self.closing = True
                return
            self._heard = time.monotonic()
            if (why := self._stale(asked["server"])) is not None:
                self._leave()  # before it is told: the next one has the same place
                self.closing = True
                connection.sendall(line({"renewed": why}))
            elif (why := forbidden()) is not None:
                connection.sendall(line({"refused": why}))
            else:
                self._fork(connection, asked)
        except (OSError, ValueError) as error:
            _log.warning("a launcher left in the midst of its request: %s", error)

    def _stale(self, server: str) -> str | None:
        """Why it must not fork any more, and another nursery may."""
        if server != self.server:
            return "the code location was loaded again"
        if (path := self.loaded.changed()) is not None:
            return f"{path} has changed"
        if self._forked >= MOST_RUNS:
            return f"it has forked {MOST_RUNS} runs"
        if (grown := resident() - self._least) > MOST_GROWTH:
            return f"it has grown by {grown >> 20} MB"
        return None

    def _fork(self, connection: socket.socket, asked: Mapping[str, str]) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # one that comes now is the child's or ours, and not lost
        pid = os.fork()
        if not pid:
            self._be_run(connection, asked)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        self._forked += 1
        self._runs[pid] = asked["run"], asked["args"]
        connection.sendall(line({"pid": pid, "born": birth(pid)}))

    def _be_run(self, connection: socket.socket, asked: Mapping[str, str]) -> NoReturn:
        code = 1
        try:
            self._be_child(asked["run"])
            connection.settimeout(PATIENCE)
            if read_line(connection) != "go":
                os._exit(0)  # nobody has written down that this process is the run's
            connection.close()
            from dagster._cli.api import execute_run_command

            # By its command line, which Dagster's own launcher uses, too: the function behind it has changed.
            execute_run_command.main([asked["args"]], standalone_mode=False)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001 - the process's edge
            traceback.print_exc()
        finally:
            end(code)

    def _be_child(self, run_id: str) -> None:
        """Nothing of the nursery's is left to a child but what it has imported."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        self._door.close()
        show_run(run_id)
        if (numbers := sys.modules.get("numpy.random")) is not None:
            numbers.seed()  # else all children would draw the same

    def _bury_dead(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                run_id, told = self._runs.pop(ended[0], (None, ""))
                code = os.waitstatus_to_exitcode(ended[1])
                if run_id is not None and code != 0 and forbidden() is None:
                    self._report_dead(run_id, told, code)

    def _report_dead(self, run_id: str, told: str, code: int) -> None:
        """What Dagster's code server tells of a run whose process has died; by a child, that has connections."""
        if os.fork():
            return
        try:
            self._be_child(run_id)
            from dagster._core.instance import DagsterInstance
            from dagster._grpc.types import ExecuteRunArgs
            from dagster._serdes import deserialize_value
            from dagster._utils import get_run_crash_explanation

            ref = deserialize_value(told, ExecuteRunArgs).instance_ref
            with DagsterInstance.from_ref(cast("Any", ref)) as instance:
                run = instance.get_run_by_id(run_id)
                if run is not None and not run.is_finished:
                    said = get_run_crash_explanation(prefix=f"Run execution process for {run_id}", exit_code=code)
                    instance.report_engine_event(said, run, cls=Nursery)
                    instance.report_run_failed(run)
        except BaseException:  # noqa: BLE001 - the process's edge
            traceback.print_exc()
        finally:
            end(0)

    def _is_over(self) -> bool:
        if not self._is_ours():
            return True  # the instance's folder is gone, or another nursery has this place
        quiet = time.monotonic() - self._heard
        return not self._runs and (quiet > IDLE or (quiet > ORPHANED and os.getppid() != self._starter))

    def _is_ours(self) -> bool:
        with suppress(OSError):
            return self.path.stat().st_ino == self._own
        return False

    def _leave(self) -> None:
        if self._is_ours():
            self.path.unlink(missing_ok=True)
        self._door.close()


_ENDING = (signal.SIGINT, signal.SIGTERM)


def forbidden() -> str | None:
    """Why this process must not fork; None where it may."""
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a count
    if threads > 1:
        return f"{threads} threads run in it: the definitions, or what they import, start {threads - 1}"
    return None


def connections() -> set[str]:
    """What is open in this process that two must not use at once: sockets, and files that are written and read."""
    found: set[str] = set()
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            target = str(one.readlink())
            flags = int(Path(f"/proc/self/fdinfo/{one.name}").read_text().split("flags:")[1].split()[0], 8)
            written = target.startswith("/") and not target.startswith("/dev/") and flags & os.O_ACCMODE == os.O_RDWR
            if written or target.startswith("socket:"):
                found.add(f"{one.name} {target}")
    return found


def resident() -> int:
    """Bytes of this process's own, without what is mapped from files."""
    told = Path("/proc/self/status").read_text(encoding="ascii")
    return int(told.split("RssAnon:")[1].split()[0]) << 10


def show_run(run_id: str) -> None:
    """Write the run's id into the command line, in the place of the dashes: `ps` shows it."""
    told = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    begin, after = int(told[45]), int(told[46])
    word = run_id.encode()
    if len(word) == len(NOBODY) and sys.argv[-1:] == [f"{RUN_WORD}{NOBODY}"] and 0 < begin < after:
        ctypes.memmove(after - 1 - len(word), word, len(word))


def end(code: int) -> NoReturn:
    """End a child as Python ends: its threads are waited for, and what asked to be called at the end is called."""
    with suppress(BaseException):
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextmanager
def short_path(folder: Path, name: str) -> Generator[str]:
    """A path of a file in the folder that fits into a socket's address, whose 107 bytes a folder soon fills."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)


def line(told: Mapping[str, object]) -> bytes:
    return (json.dumps(told) + "\n").encode()


def read_line(connection: socket.socket) -> str:
    """One line, without its end; what came until the other side left, where it did."""
    read = bytearray()
    while not read.endswith(b"\n") and (some := connection.recv(65_536)):
        read += some
    return read.decode().rstrip("\n")


def main() -> None:
    """Load, tell the launcher whether there is a nursery now, and serve."""
    from dagster._core.instance.ref import InstanceRef
    from dagster._core.origin import JobPythonOrigin
    from dagster._serdes import deserialize_value

    share_arenas()
    asked = json.load(sys.stdin)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    ready = os.fdopen(asked["ready"], "wb")
    open_before = connections()
    loaded = LoadedFiles()
    loaded.listen()
    try:
        instance = deserialize_value(asked["instance"], InstanceRef)
        secrets = instance.secrets_loader
        os.environ.update(secrets.get_secrets_for_environment(asked["location"]) if secrets else {})
        warmth.load(deserialize_value(asked["origin"], JobPythonOrigin), instance, asked["load"])
        loaded.close()
        warmth.open_once(instance)
    except BaseException as error:
        traceback.print_exc()
        ready.write(line({"refused": f"the definitions, or the instance, cannot be loaded: {type(error).__name__}"}))
        raise SystemExit(1) from error
    gc.collect()
    gc.freeze()  # a child that looks for garbage would copy all of it
    why = forbidden()
    if why is None and (opened := connections() - open_before):
        why = f"loading the definitions has left open {', '.join(sorted(opened))}"
    if why is not None:
        ready.write(line({"refused": why}))
        raise SystemExit(1)
    nursery = Nursery(folder=Path(asked["folder"]), name=sys.argv[1], server=asked["server"], loaded=loaded)

    def close(number: int, frame: FrameType | None) -> None:
        nursery.closing = True

    for number in _ENDING:
        signal.signal(number, close)
    ready.write(line({"ready": True}))
    ready.close()
    nursery.serve()


if __name__ == "__main__":
    main()
