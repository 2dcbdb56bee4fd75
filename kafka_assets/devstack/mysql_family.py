"""What MariaDB and MySQL have in common: the protocol, the first statements, and how they are asked."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

from kafka_assets.devstack.ports import answers
from kafka_assets.devstack.privileges import must_drop
from kafka_assets.devstack.processes import environment
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.service import Launch, Service
from kafka_assets.errors import ServiceError

NAME = "kafka_assets"
# Run at every start, so that a first start that was interrupted is made good by the next.
FIRST_STATEMENTS = """\
CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS '{name}'@'%' IDENTIFIED BY '{password}';
GRANT ALL ON *.* TO '{name}'@'%' WITH GRANT OPTION;
ALTER USER 'root'@'localhost' IDENTIFIED BY '{password}';
"""


class MySQLFamily(Service):
    """A server that speaks MySQL's protocol, on loopback, with a password."""

    def __init__(self, state: Path, name: str, *, password: str) -> None:
        super().__init__(state, name)
        self.password = password

    @abstractmethod
    def programs(self, progress: Progress) -> Path:
        """The folder of the unpacked server."""

    @abstractmethod
    def server(self, programs: Path) -> list[str | Path]:
        """The server's program and where it finds its own files."""

    @abstractmethod
    def installer(self, programs: Path, data: Path) -> list[str | Path]:
        """The command that makes an empty data folder; root has no password there."""

    def prepare(self, ports: Mapping[str, int], progress: Progress) -> Launch:
        programs = self.programs(progress)
        data = self.folder / "data"
        if not data.exists():
            self._initialise(programs, data)
        statements = self.folder / "first.sql"
        statements.touch(mode=0o600)
        statements.write_text(FIRST_STATEMENTS.format(name=NAME, password=self.password), encoding="utf-8")
        options = [
            f"--datadir={data}",
            f"--init-file={statements}",
            f"--port={ports['client']}",
            "--bind-address=127.0.0.1",
            # Relative to the data folder: a path in a deep project is too long for a socket.
            "--socket=mysql.sock",
            f"--pid-file={self.folder / 'pid'}",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--local-infile=1",
        ]
        return Launch([*self.server(programs), *options, *as_root()], folder=self.folder)

    def unready(self, ports: Mapping[str, int]) -> str | None:
        if not answers(ports["client"]):
            return f"nothing listens on port {ports['client']} yet"
        import pymysql

        try:
            connection = pymysql.connect(
                host="127.0.0.1",
                port=ports["client"],
                user=NAME,
                password=self.password,
                database=NAME,
                connect_timeout=3,
                read_timeout=3,
            )
            with connection, connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except pymysql.err.OperationalError as error:
            return str(error)
        return None

    def url(self, ports: Mapping[str, int]) -> str:
        return f"mysql+pymysql://{NAME}:{self.password}@127.0.0.1:{ports['client']}/{NAME}?charset=utf8mb4"

    def _initialise(self, programs: Path, data: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix="new-", dir=self.folder))
        try:
            command = self.installer(programs, aside / "data")
            done = subprocess.run(command, capture_output=True, text=True, cwd=aside, env=environment(), check=False)
            if done.returncode != 0:
                raise ServiceError(
                    f"the data folder of {self.name} could not be made",
                    why=(done.stderr or done.stdout).strip()[-1500:],
                    cure=f"see that there is space for {self.folder}",
                )
            (aside / "data").rename(data)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def as_root() -> list[str]:
    """Without being told, the server refuses to run as root."""
    return ["--user=root"] if must_drop() else []
