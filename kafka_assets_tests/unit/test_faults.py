"""The named points of the code: each stands somewhere, a test's fault strikes there, and nothing is armed by itself."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_assets import faults
from kafka_assets.faults import POINTS, SETTING, arm_from, armed, reached

PACKAGE = Path(faults.__file__).parent
REACHES = "from kafka_assets.faults import reached; reached('verify', 'orders'); print('went on')"


def test_every_point_stands_in_the_code_and_every_one_that_stands_there_is_known() -> None:
    text = "".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "faults.py")
    assert set(re.findall(r'\breached\("(\w+)"', text)) == set(POINTS)


def test_a_point_does_what_it_is_armed_with_and_only_meanwhile() -> None:
    struck: list[str] = []
    with armed("verify", lambda: struck.append("first")), armed("verify", lambda: struck.append("second")):
        reached("verify", "orders")
    reached("verify", "orders")
    assert struck == ["first", "second"]


def test_what_it_raises_the_code_meets() -> None:
    def fail() -> None:
        raise RuntimeError("on purpose")

    with armed("verify", fail), pytest.raises(RuntimeError, match="on purpose"):
        reached("verify")


@pytest.mark.parametrize("wrong", ["hang@nowhere", "explode@verify", "verify"])
def test_a_fault_that_does_not_exist_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong)):
        arm_from({SETTING: wrong})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "there", "struck"),
    [
        ("kill@verify", True, True),
        ("kill@verify:orders", True, True),
        ("kill@verify:returns,hang@verify:payments", True, False),
        ("kill@verify?{file}", True, True),
        ("kill@verify?{file}", False, False),
        ("", True, False),
    ],
)
def test_a_process_is_struck_as_its_environment_says(tmp_path: Path, spec: str, there: bool, struck: bool) -> None:
    file = tmp_path / "told"
    if there:
        file.touch()
    environment = {SETTING: spec.format(file=file), "PATH": ""}
    with subprocess.Popen([sys.executable, "-c", REACHES], env=environment, stdout=subprocess.PIPE, text=True) as done:
        said, _ = done.communicate(timeout=60)
    assert (done.returncode, said) == ((-signal.SIGKILL, "") if struck else (0, "went on\n"))
    if "{file}" in spec and there:
        assert not file.exists()
        assert file.with_name("told.struck").read_text() == str(done.pid)
