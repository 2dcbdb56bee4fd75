"""`make mutants`: every mutant in a copy of the tree, against the tests that are named for it.

It exits with 1 when a mutant goes unnoticed. What was caught is kept in .mutants.json for as long as neither the tree
nor the mutant changes, so that a run that was ended goes on where it was. Words after the command choose mutants.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as Xml
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kafka_assets_tests.mutants.catalogue import MUTANTS
from kafka_assets_tests.mutants.mutant import Mutant
from kafka_assets_tests.tree import TREE, tree_digest

KEPT = TREE / ".mutants.json"
LONGEST = 300
"""Seconds for the tests of one mutant; what hangs is not caught."""
LEFT_OUT = (".*", "__pycache__", "build", "dist", "*.egg-info", "spark-warehouse")


def main(*words: str) -> int:
    chosen = [one for one in MUTANTS if all(word in one.name for word in words)]
    tree = tree_digest(without=Path(__file__).parent)
    kept: dict[str, dict[str, str]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    done = {one.name for one in chosen if kept.get(one.name, {}).get("of") == f"{tree}-{one.digest}"}
    left = [one for one in chosen if one.name not in done]
    console = Console(width=200)
    with tempfile.TemporaryDirectory(prefix="kafka_assets_mutants_") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(TREE, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        # As other users do, databases read what tests make.
        Path(folder).chmod(0o711)
        _see_that_the_copy_is_imported(copy)
        if left and (broken := _failed(copy, sorted({test for one in left for test in one.tests}), passing=True)):
            console.print("these fail without any mutant:", *map(escape, sorted(broken)), sep="\n  ")
            return 1
        for one in left:
            began = time.monotonic()
            missed = _missed(copy, one)
            said = f"[red]missed by {escape(', '.join(missed))}[/]" if missed else "caught"
            console.print(f"{one.name}: {said}, {time.monotonic() - began:.0f} s")
            if not missed:
                kept[one.name] = {"of": f"{tree}-{one.digest}"}
                KEPT.write_text(json.dumps(kept, indent=1))
                done.add(one.name)
    table = Table("mutant", "caught by", title=f"{len(done)} of {len(chosen)} mutants caught")
    for one in chosen:
        table.add_row(one.name, escape("\n".join(map(_short, one.tests))) if one.name in done else "[red]nobody[/]")
    console.print(table)
    return 0 if len(done) == len(chosen) else 1


def _missed(copy: Path, one: Mutant) -> list[str]:
    """The tests that pass although this is broken, or do not fail by an assertion or error of their own."""
    places = [change.place(copy / "kafka_assets") for change in one.changes]
    files = {path: path.read_text() for path in places}
    try:
        for path, change in zip(places, one.changes, strict=True):
            path.write_text(change.made_in(path.read_text()))
        failed = _failed(copy, list(one.tests), passing=False)
    finally:
        for path, text in files.items():
            path.write_text(text)
    return [_short(test) for test in one.tests if _short(test) not in failed]


def _failed(copy: Path, tests: list[str], *, passing: bool) -> set[str]:
    """Which tests fail; an error outside of a test, as in starting a server, is none of a mutant's doing."""
    report = copy.parent / "report.xml"
    report.unlink(missing_ok=True)
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += [f"kafka_assets_tests/{test}" for test in tests]
    run = subprocess.Popen(
        [sys.executable, *command], cwd=copy, env=_environment(copy), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        said, _ = run.communicate(timeout=LONGEST * (4 if passing else 1))
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)  # it stops its services before it goes
        said, _ = run.communicate()
        return {"the tests hang"} if passing else set()
    if not report.exists():
        raise RuntimeError(f"pytest says nothing of {tests}:\n{said.decode()}")
    cases = list(Xml.parse(report).iter("testcase"))
    wrong = [case for case in cases if case.find("error") is not None or case.find("skipped") is not None]
    if wrong or len(cases) < len(tests):
        raise RuntimeError(f"{len(cases)} of {len(tests)} tests ran, {len(wrong)} with an error:\n{said.decode()}")
    return {case.attrib["name"] for case in cases if case.find("failure") is not None}


def _see_that_the_copy_is_imported(copy: Path) -> None:
    """An installed package must not hide it: every mutant would go unnoticed."""
    show = "import kafka_assets, kafka_assets_tests as t; print(kafka_assets.__file__, t.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", show], cwd=copy, env=_environment(copy), capture_output=True, text=True, check=True
    )
    for path in done.stdout.split():
        if not Path(path).is_relative_to(copy):
            raise RuntimeError(f"{path} was imported, and not its copy in {copy}")


def _environment(copy: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(copy), "HYPOTHESIS_STORAGE_DIRECTORY": str(copy.parent / "hypothesis")}


def _short(test: str) -> str:
    return test.split("::", 1)[1].rsplit("::", maxsplit=1)[-1]


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
