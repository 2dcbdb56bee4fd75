"""Waiting for something to become so, and saying what did not."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_assets.errors import BrokerUnavailable

PATIENCE = 60.0


def until(condition: Callable[[], bool], what: str, *, patience: float = PATIENCE, every: float = 0.1) -> float:
    """Ask again until it is so; how many seconds that took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > patience:
            raise BrokerUnavailable(
                f"{what}: not so after {patience:.0f} s",
                why="the cluster did not come to rest, or the machine is very busy",
                cure="run the experiment again; the brokers' logs say what they did",
            )
        time.sleep(every)
    return time.monotonic() - began
