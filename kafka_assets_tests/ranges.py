"""`make versions`: both ends of the ranges in pyproject.toml, each in an environment of its own in build/versions.

The oldest end has of each library that pyproject.toml names the oldest that it allows, and of what those bring along
the newest, as who keeps an old Dagster installs it today. The newest end has of everything the newest. In each the
tests run that would notice first: all that need no service, forked runs, and some of whole landings.

It can be interrupted, and goes on where it was with the next call: what has passed is not run again while neither the
tree nor the packages change. Words after the command choose: an end, or a part of the tests. It ends with 1 where
anything fails.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table

from kafka_assets_tests.tree import TREE, tree_digest

FOLDER = TREE / "build" / "versions"
LOCK = TREE / "requirements.lock"
PYPROJECT = TREE / "pyproject.toml"
ENDS = {"oldest": "lowest-direct", "newest": "highest"}
"""What uv calls them."""
WARNINGS = {"oldest": ("-W", "ignore"), "newest": ()}
"""Old libraries warn of what others, that are newer, have given up since: at that end a warning is no error."""
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "setuptools")
"""What the tests need and users do not: as the lock has it, at both ends."""
TWO = ("-n", "2", "--dist", "worksteal")
HERE = "kafka_assets_tests"
PARTS = {
    "units": (*TWO, "-m", "not slow", f"{HERE}/unit"),
    "forked-runs": (*TWO, f"{HERE}/unit/test_launcher.py", f"{HERE}/unit/test_dagster_storage.py"),
    "landings": (
        f"{HERE}/acceptance/test_dagster_dev.py::test_records_land_through_sensor_and_runs_and_both_stores_agree",
        f"{HERE}/acceptance/test_forked_runs.py"
        "::test_a_run_killed_in_its_transaction_with_what_it_was_forked_from_is_taken_over_exactly",
        f"{HERE}/acceptance/test_without_a_daemon.py::test_run_lands_all_that_was_there_and_says_so",
    ),
    "databases": (
        f"{HERE}/integration/test_dagster_on_postgresql.py",
        f"{HERE}/integration/test_landing_servers.py::test_a_topic_lands_exactly_and_a_replay_replaces[postgresql]",
        f"{HERE}/integration/test_tick_servers.py",
        f"{HERE}/integration/test_publish.py",
    ),
    "broker": (
        f"{HERE}/integration/test_broker_offsets.py",
        f"{HERE}/integration/test_broker_records.py",
        f"{HERE}/integration/test_consumer.py",
        f"{HERE}/integration/test_producer.py",
    ),
}
"""Of each its arguments to pytest."""


@dataclass(frozen=True)
class End:
    """One end of the ranges: its packages, and an environment that has them."""

    name: str
    packages: str
    """The lines of a requirements file, each with one version."""

    @property
    def python(self) -> Path:
        return FOLDER / self.name / "bin" / "python"

    @property
    def digest(self) -> str:
        made_of = (sys.version, self.packages, PYPROJECT.read_text(encoding="utf-8"))
        return hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]

    def install(self) -> None:
        """Make the environment, unless it is there; one that is half made has no stamp, and is made anew."""
        folder, stamp = FOLDER / self.name, FOLDER / self.name / "made_of"
        if stamp.exists() and stamp.read_text(encoding="ascii") == self.digest:
            return
        print(f"· making {folder.relative_to(TREE)}: some minutes", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        run(uv(), "venv", "--quiet", "--python", sys.executable, folder)
        install = (uv(), "pip", "install", "--quiet", "--python", self.python, "--no-deps")
        # What builds comes first, as in tools/bootstrap.py.
        run(*install, f"setuptools=={pin('setuptools', self.packages)}")
        run(*install, "--no-build-isolation", "--requirement", packages_file(self.name))
        run(*install, "--no-build-isolation", "--editable", TREE)
        run(uv(), "pip", "check", "--quiet", "--python", self.python)
        stamp.write_text(self.digest, encoding="ascii")

    def passes(self, part: str) -> bool:
        command = [self.python, "-m", "pytest", "-p", "no:cacheprovider", *WARNINGS[self.name], *PARTS[part]]
        return subprocess.run(command, cwd=TREE, check=False).returncode == 0


def main(*words: str) -> int:
    known = (*ENDS, *PARTS)
    if unknown := [word for word in words if word not in known]:
        raise SystemExit(f"{unknown[0]}: there are the ends {', '.join(ENDS)} and the parts {', '.join(PARTS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "passed.json"
    passed: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    tree, found = tree_digest(), dict[str, dict[str, str]]()
    ends = [End(name, resolved(name)) for name in ENDS if name in words or not {*words} & {*ENDS}]
    for end in ends:
        end.install()
        told = found[end.name] = dict[str, str]()
        for part in [part for part in PARTS if part in words or not {*words} & {*PARTS}]:
            if passed.get(f"{end.name} {part}") == f"{tree} {end.digest}":
                told[part] = "passed before"
                continue
            print(f"· {end.name}: {part}", file=sys.stderr, flush=True)
            began = time.monotonic()
            told[part] = "passed" if end.passes(part) else "[red]failed[/]"
            if told[part] == "passed":
                passed[f"{end.name} {part}"] = f"{tree} {end.digest}"
                kept.write_text(json.dumps(passed, indent=1))
            told[part] += f", {time.monotonic() - began:.0f} s"
    table = Table("", *(end.name for end in ends))
    for name in sorted({Requirement(one).name for one in wanted()}):
        table.add_row(name, *(pin(name, end.packages) for end in ends))
    table.add_section()
    for part in PARTS:
        table.add_row(part, *(found[end.name].get(part, "") for end in ends))
    Console(width=120).print(table)
    return 1 if any("failed" in one for told in found.values() for one in told.values()) else 0


def wanted() -> Iterator[str]:
    """What pyproject.toml asks for, with both kinds of servers, and of the tests' the library that follows Dagster's
    versions. Not `dg`, which begins later than Dagster does, and not the line of SQLAlchemy that the lock keeps to."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    yield from (*project["dependencies"], *extras["postgresql"], *extras["mysql"])
    yield from (one for one in extras["dev"] if Requirement(one).name == "dagster-postgres")


def packages_file(end: str) -> Path:
    return FOLDER / f"{end}.txt"


def resolved(end: str) -> str:
    """The packages of an end, each with the version that can be had today."""
    asked = FOLDER / f"{end}.in"
    lock = LOCK.read_text(encoding="utf-8")
    pins = (f"{name}=={pin(name, lock)}" for name in TOOLS)
    asked.write_text("\n".join((*wanted(), *pins, "")), encoding="utf-8")
    to = packages_file(end)
    run(uv(), "pip", "compile", asked, "--resolution", ENDS[end], "--python", sys.executable,
        "--upgrade", "--no-header", "--no-annotate", "--no-emit-index-url", "--quiet", "--output-file", to)  # fmt: skip
    return to.read_text(encoding="utf-8")


def pin(name: str, packages: str) -> str:
    """The version that a lock or a requirements file has of a library."""
    found = re.search(rf"^{re.escape(name)}==(\S+)", packages, flags=re.MULTILINE | re.IGNORECASE)
    return found[1] if found else ""


@functools.cache
def uv() -> Path | str:
    """It finds the oldest versions, too, which pip does not; `make lock` has it make the lock."""
    if found := shutil.which("uv"):
        return found
    folder = FOLDER / "uv"
    if not (folder / "bin" / "uv").exists():
        run(sys.executable, "-m", "venv", folder)
        run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv")
    return folder / "bin" / "uv"


def run(*command: str | Path) -> None:
    subprocess.run(command, cwd=TREE, check=True)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
