"""A signal ends the waiting for what is to be read, and no work on what was."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from kafka_assets.broker.stopping import Stopped, until_signalled


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_wakes_a_read_of_a_pipe_that_nobody_writes_to(number: signal.Signals) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"1\n")
    seen: list[bytes] = []
    with os.fdopen(reading, "rb") as file, pytest.raises(Stopped) as stopped, until_signalled() as until:
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        seen.extend(until(iter(file)))
    os.close(writing)
    assert (seen, stopped.value.number) == ([b"1\n"], number)


def test_an_item_in_hand_is_done_before_the_reading_ends() -> None:
    done: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped), until_signalled() as until:
        for item in until(iter(range(9))):
            if item == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            done.append(item)
    assert done == [0, 1, 2, 3]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_signal_does_what_it_always_did() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, until_signalled():
        signal.raise_signal(signal.SIGINT)  # to this thread: two that wait for it would be one
        signal.raise_signal(signal.SIGINT)
    assert not isinstance(raised.value, Stopped)
