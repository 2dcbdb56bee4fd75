"""Packages of Debian's unstable suite, unpacked into a folder of ours: nothing is installed on the machine.

Debian's stable suite has no MySQL. The packages come through the machine's own apt, from the mirror that it
uses already, checked with Debian's keys, but with lists and a cache of our own.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from kafka_assets.errors import ServiceError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITE = "unstable"
# What their maintainer scripts need; ours never run.
NOT_NEEDED = ("adduser", "cdebconf", "debconf", "libdebconf", "libperl", "passwd", "perl", "psmisc", "sysuser")
ONLY_DEPENDS = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


class Apt:
    """The machine's apt, with lists, cache and sources below one folder of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in ("lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        sources = folder / "sources.list"
        sources.write_text(f"deb [signed-by={KEYRING}] {_mirror()} {SUITE} main\n", encoding="utf-8")
        options = {
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": folder / "lists",
            "Dir::Cache": folder / "cache",
            # Apt's own user cannot go to a private home, and need not.
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
        }
        self.options = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        self._run("apt-get", "update", "-qq")

    def version(self, package: str) -> str:
        """The version that the suite has now."""
        policy = self._run("apt-cache", "policy", package)
        return next((line.split()[-1] for line in policy.splitlines() if "Candidate:" in line), "(none)")

    def with_dependencies(self, package: str) -> list[str]:
        """The package and all that it needs to run."""
        only = [f"--no-{kind}" for kind in ONLY_DEPENDS]
        lines = self._run("apt-cache", "depends", "--recurse", *only, package).splitlines()
        names = dict.fromkeys(line for line in lines if line and line[0].isalnum())
        return [name for name in names if not name.startswith(NOT_NEEDED) and ":" not in name]

    def unpack(self, packages: Iterable[str], into: Path) -> None:
        """Download packages and unpack them all into one folder."""
        downloads = self.folder / "downloads"
        downloads.mkdir()
        self._run("apt-get", "download", "-qq", *packages, folder=downloads)
        for package in sorted(downloads.glob("*.deb")):
            _checked(["dpkg-deb", "-x", str(package), str(into)], folder=downloads)

    def _run(self, program: str, *arguments: str, folder: Path | None = None) -> str:
        return _checked([program, *self.options, *arguments], folder=folder or self.folder)


def missing() -> str | None:
    """What this machine lacks for Debian's packages; None where it has all."""
    programs = [name for name in ("apt-get", "apt-cache", "dpkg-deb") if shutil.which(name) is None]
    if programs or not KEYRING.exists():
        return f"{programs[0] if programs else KEYRING} is missing"
    return None


def _mirror() -> str:
    """The Debian mirror in the machine's own sources."""
    if lack := missing():
        raise _not_debian(lack)
    listing = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT)", "Created-By: Packages"]
    for line in _checked(listing, folder=Path("/")).splitlines():
        uri, _, component = line.partition(" ")
        if component == "main" and uri.rstrip("/").endswith("/debian"):
            return uri
    raise _not_debian("its apt names no Debian mirror")


def _not_debian(why: str) -> ServiceError:
    return ServiceError(
        "there is no MySQL for this machine",
        why=f"it is unpacked from Debian's packages, and {why}",
        cure="take mariadb, which comes without apt, or your own MySQL with KAFKA_ASSETS_DATABASE_URL",
    )


def _checked(command: list[str], *, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceError(
            "Debian's packages could not be had",
            why=f"{command[0]} says: {(done.stderr or done.stdout).strip()[-800:]}",
            cure="see that `apt-get update` works on this machine, then try again",
        )
    return done.stdout
