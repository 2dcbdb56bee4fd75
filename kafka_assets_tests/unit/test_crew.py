"""Several consumers in one process: all end with the first error, and each has an instance id of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafka_assets.broker.membership import Membership
from kafka_assets.errors import SliceFailed
from kafka_assets.live.crew import Crew, member
from kafka_assets.live.figures import Figures


class Consumer:
    """One that runs until it is stopped, or fails."""

    def __init__(self, records: int, *, fails: Exception | None = None) -> None:
        self.figures = Figures(records=records)
        self.stopped, self._fails = threading.Event(), fails

    def stop(self) -> None:
        self.stopped.set()

    def run(self, *, say: Callable[[Figures], None] | None, **_: Any) -> Figures:
        if self._fails is not None:
            raise self._fails
        if say is not None:
            say(self.figures)
        assert self.stopped.wait(60)
        return self.figures


def crew(*consumers: Consumer) -> Crew:
    return Crew(consumers)  # type: ignore[arg-type]


def test_the_first_error_ends_all_of_them_and_is_raised() -> None:
    going, failing = Consumer(1), Consumer(0, fails=SliceFailed("too many bad records"))
    with pytest.raises(SliceFailed):
        crew(going, failing).run()
    assert going.stopped.is_set()


def test_what_is_said_is_of_all_of_them_together() -> None:
    said: list[int] = []
    together = crew(Consumer(1), Consumer(2))

    def say(figures: Figures) -> None:
        said.append(figures.records)
        together.stop()

    assert together.run(say=say).records == 3 and said == [3]


def test_an_instance_id_is_one_members_at_a_time() -> None:
    one = Membership("g", instance_id="desk")
    assert [member(one, number, 2).instance_id for number in range(2)] == ["desk-0", "desk-1"]
    assert member(one, 0, 1) is one and member(Membership("g"), 1, 2).instance_id is None
