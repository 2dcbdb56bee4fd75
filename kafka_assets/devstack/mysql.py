"""MySQL: a real server on loopback, from Debian's packages, run with their own loader and libraries."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from kafka_assets.devstack import artifacts
from kafka_assets.devstack.debian import SUITE, Apt
from kafka_assets.devstack.mysql_family import MySQLFamily, as_root
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.unpack import unpacked

PACKAGE = "mysql-server-core"
SIZE = 450_000_000
"""Lists, packages and what they unpack to, in bytes."""


class MySQL(MySQLFamily):
    """The project's MySQL, in the version that Debian's unstable suite had when this user first asked."""

    def __init__(self, state: Path, *, password: str) -> None:
        super().__init__(state, "mysql", password=password)

    def programs(self, progress: Progress) -> Path:
        def fill(folder: Path) -> None:
            scratch = Path(tempfile.mkdtemp(prefix="apt-", dir=folder.parent))
            try:
                apt = Apt(scratch)
                version = apt.version(PACKAGE)
                progress.say(f"fetching MySQL {version} from Debian's {SUITE} suite; nothing is installed")
                apt.unpack(apt.with_dependencies(PACKAGE), folder)
                (folder / "version").write_text(version + "\n", encoding="utf-8")
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

        return unpacked(artifacts.cache_folder() / "unpacked" / "mysql", fill, size=SIZE, progress=progress)

    def server(self, programs: Path) -> list[str | Path]:
        libraries = programs / "usr" / "lib" / "x86_64-linux-gnu"
        # Its libraries are newer than the machine's, so it takes its own loader, too.
        return [
            libraries / "ld-linux-x86-64.so.2",
            "--library-path",
            f"{libraries}:{programs / 'usr/lib/mysql/private'}",
            programs / "usr" / "sbin" / "mysqld",
            "--no-defaults",
            f"--basedir={programs / 'usr'}",
            f"--lc-messages-dir={programs / 'usr/share/mysql'}",
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
        ]

    def installer(self, programs: Path, data: Path) -> list[str | Path]:
        return [*self.server(programs), f"--datadir={data}", "--initialize-insecure", *as_root()]
