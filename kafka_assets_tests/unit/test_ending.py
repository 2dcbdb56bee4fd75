"""A process that lands slices ends within seconds of SIGTERM or Ctrl-C, whatever it was doing."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

HANGS = """
import os, time
from kafka_assets.assets import ending
from kafka_assets.broker.stopping import Stopped

ending.GRACE = {grace}

def say(word):
    os.write(1, word.encode() + b"\\n")  # at once, whoever else says something

def last():
    say("last " + ending.told_to_end().name)
    {last}

with ending.ended_by_signals(), ending.at_last(last):
    waits = [lambda: say("ready")]
    while True:
        try:
            while waits:
                waits.pop()()
            time.sleep(60)
        except Stopped:
            say("stopped")  # as Dagster does: the signal is a failure of the run, and it goes on
"""

ENDS = """
import threading, time
from kafka_assets.assets import ending

ending.GRACE = 0.5
threading.Thread(target=time.sleep, args=(600,)).start()  # no daemon: Python waits for it when it ends
with ending.ended_by_signals():
    print("ready", flush=True)
    time.sleep(60)
"""


def ended(program: str, *signals: signal.Signals) -> tuple[int, list[str]]:
    """How a process ends that these signals come to, one after what it says of the one before; and what it said."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip()]
        for number in signals:
            process.send_signal(number)
            if number is not signals[-1]:
                said.append(process.stdout.readline().strip())
        said += process.stdout.read().split("\n")
    return process.returncode, sorted(word for word in said if word)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_goes_on_all_the_same_is_ended(number: signal.Signals) -> None:
    code, said = ended(HANGS.format(grace=0.5, last=""), number)
    assert code == 128 + number
    assert said == [f"last {number.name}", "ready", "stopped"]


@pytest.mark.slow
def test_what_hangs_at_its_last_is_left_behind() -> None:
    code, _ = ended(HANGS.format(grace=0.1, last="time.sleep(600)"), signal.SIGTERM)
    assert code == 128 + signal.SIGTERM


@pytest.mark.slow
def test_a_signal_that_comes_twice_in_a_moment_came_once() -> None:
    """As Ctrl-C does where a wrapper passes on what its whole group has got."""
    with subprocess.Popen(
        [sys.executable, "-c", HANGS.format(grace=1.5, last="")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert "last SIGINT" in process.stdout.read()
    assert process.returncode == 128 + signal.SIGINT


def test_a_second_signal_waits_for_nobody() -> None:
    code, said = ended(HANGS.format(grace=600, last=""), signal.SIGTERM, signal.SIGINT)
    assert code == 128 + signal.SIGTERM
    assert not any("last" in word for word in said)


@pytest.mark.slow
def test_a_thread_that_never_ends_holds_up_no_process_that_was_told_to() -> None:
    assert ended(ENDS, signal.SIGTERM) == (128 + signal.SIGTERM, ["ready"])
