"""How many programs run, for how long, and what they came to.

`make test` runs a few, the same ones each time, and one that fails is shown as it is: to make it smaller takes minutes.
KAFKA_ASSETS_TESTS_PROPERTIES=sqlite=2000,postgresql=200 asks for more, at random, and for what fails made small; it is
kept in .hypothesis and tried first by the next run. KAFKA_ASSETS_TESTS_PROPERTIES_SECONDS ends it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Engine

from kafka_assets_tests.properties.append_machine import AppendMachine
from kafka_assets_tests.properties.live_machine import LiveMachine
from kafka_assets_tests.properties.stepping import stepped

COUNTS = "KAFKA_ASSETS_TESTS_PROPERTIES"
SECONDS = "KAFKA_ASSETS_TESTS_PROPERTIES_SECONDS"
STEPS = 30
AS_IT_IS = (Phase.explicit, Phase.reuse, Phase.generate)
"""The phases of Hypothesis without the one that makes smaller what fails."""
BATCH = 25
"""So many programs run between two looks at the clock; one that fails is made smaller, however late it is."""


def run_programs(
    fresh: Callable[[], Engine],
    machine: type[AppendMachine | LiveMachine],
    *,
    database: str,
    short: int,
    within: Callable[[], AbstractContextManager[None]] = stepped,
) -> None:
    """Run random programs on ledgers that `fresh` makes, and print what happened in them."""
    counts = dict(part.split("=") for part in os.environ.get(COUNTS, "").split(",") if part)
    asked = int(counts.get(database, 0))
    began = time.monotonic()

    class Machine(machine):
        """Its own tally, and its own time."""

    Machine.seen = type(AppendMachine.seen)()
    seconds = float(os.environ.get(SECONDS, "3600"))
    try:
        with within():
            while Machine.seen["example"] < (asked or short) and time.monotonic() - began < seconds:
                how = settings(
                    max_examples=min(BATCH, (asked or short) - Machine.seen["example"]),
                    stateful_step_count=STEPS,
                    derandomize=not asked,
                    deadline=None,
                    phases=tuple(Phase) if asked else AS_IT_IS,
                    suppress_health_check=list(HealthCheck),
                    print_blob=bool(asked),
                )
                run_state_machine_as_test(lambda: Machine(fresh), settings=how)
    finally:
        tally = ", ".join(f"{count} {name}" for name, count in sorted(Machine.seen.items(), key=lambda one: -one[1]))
        print(f"\n{machine.__name__} on {database}: {tally}; {time.monotonic() - began:.0f} s")
