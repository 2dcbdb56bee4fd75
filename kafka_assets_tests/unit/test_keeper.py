"""A test run leaves nothing behind, however it ends: neither what its tests started, nor services, nor folders."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

REPOSITORY = Path(__file__).parents[2]
LEFT = """
import json, os, subprocess
from pathlib import Path

from kafka_assets.devstack import processes


def test_that_ends_the_run(services_folder: Path) -> None:
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    service = processes.spawn(
        ["sleep", "600"], mark=f"sleeper@{services_folder}", env={}, folder=services_folder, log=services_folder / "log"
    )
    Path(LEFT).write_text(json.dumps([child.pid, service.pid, str(services_folder)]))
    END
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "raise KeyboardInterrupt"])
def test_nothing_is_left(tmp_path: Path, end: str) -> None:
    told = tmp_path / "told"
    (tmp_path / "test_left.py").write_text(LEFT.replace("LEFT", repr(str(told))).replace("END", end))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "kafka_assets_tests.conftest", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, f"--rootdir={tmp_path}", f"--basetemp={tmp_path / 'temporary'}", tmp_path / "test_left.py"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
        timeout=120,
    )
    child, service, folder = json.loads(told.read_text())
    deadline = time.monotonic() + 60
    while any(map(psutil.pid_exists, (child, service))) or Path(folder).parent.exists():
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.1)
