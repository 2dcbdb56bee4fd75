"""Many threads, each with a consumer of its own: the group shares the partitions out among them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kafka_assets.errors import UsageError

_LOOK = 0.2


Work = Callable[[threading.Event], object]
"""Makes its own consumer, with the event as its `stop`, and ends soon after that is set."""


def run_in_threads(work: Work, *, threads: int, stop: threading.Event) -> None:
    """Do `work` in so many threads at once, until `stop` is set; see `run_all`."""
    if threads < 1:
        raise UsageError("there is no work without a thread", cure="give threads from 1 on")
    run_all([work] * threads, stop=stop)


def run_all(works: Sequence[Work], *, stop: threading.Event) -> None:
    """Do each in a thread of its own, and wait for all of them.

    The first that raises sets `stop` for all; when they have drained, its exception is raised here, with the
    others' as notes.
    """
    raised: list[BaseException] = []

    def run(work: Work) -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001 raised below, in the caller's thread
            raised.append(error)
            stop.set()

    running = [
        threading.Thread(target=run, args=(work,), name=f"consumer-{number}", daemon=True)
        for number, work in enumerate(works)
    ]
    for thread in running:
        thread.start()
    try:
        for thread in running:
            while thread.is_alive():  # a join without end would keep signals waiting
                thread.join(_LOOK)
    except BaseException:
        stop.set()
        for thread in running:
            thread.join()
        raise
    if raised:
        for error in raised[1:]:
            raised[0].add_note(f"and in another thread: {error!r}")
        raise raised[0]
