"""The log of a test run: each test as it ends, and all that is known of a failure, at once and not at the end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

PLACE = Path("build") / "tests.log"


class RunLog:
    """A plugin of the run's first process, which hears of the tests of all workers."""

    def __init__(self, root: Path) -> None:
        self.path = root / PLACE
        self.path.parent.mkdir(exist_ok=True)
        # Line by line: what is cut off has told all until then.
        self._file = self.path.open("w", encoding="utf-8", buffering=1)
        self._seconds: dict[str, float] = {}
        self._terminal: Any = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        self._file.write(f"began {time.strftime('%F %T')}: pytest {' '.join(session.config.invocation_params.args)}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0) + report.duration
        if report.failed:
            self._fail(f"{report.nodeid} ({report.when})", report)
        elif report.when == "teardown":
            self._file.write(f"{self._seconds.pop(report.nodeid):8.2f} s  {report.nodeid}\n")
        elif report.skipped:
            self._file.write(f"{seconds:8.2f} s  {report.nodeid}: SKIPPED {report.longreprtext}\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._fail(f"{report.nodeid} (not collected)", report)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._file.write(f"ended {time.strftime('%F %T')}, exit code {int(exitstatus)}\n")

    def close(self) -> None:
        self._file.close()
        print(f"the log of this run: {self.path}")

    def _fail(self, what: str, report: pytest.TestReport | pytest.CollectReport) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        first, *_ = str(crash.message if crash else report.longrepr).splitlines() or [""]
        if self._terminal:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"FAILED {what}: {first}", red=True)
        self._file.write(f"FAILED {what}\n{report.longreprtext}\n")
        for name, content in report.sections:
            self._file.write(f"---- {name}\n{content}\n")
