"""Many threads, each with a consumer of its own: the group shares the partitions out among them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafka_assets.errors import UsageError

_LOOK = 0.2


def run_in_threads(work: Callable[[threading.Event], object], *, threads: int, stop: threading.Event) -> None:
    """Do `work` in so many threads, until `stop` is set, and wait for all of them.

    `work` makes its own consumer, and ends soon after its event is set. The first that raises sets it for all; when
    they have drained, its exception is raised here, with the others' as notes.
    """
    if threads < 1:
        raise UsageError("there is no work without a thread", cure="give threads from 1 on")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001 raised below, in the caller's thread
            raised.append(error)
            stop.set()

    running = [threading.Thread(target=run, name=f"consumer-{number}", daemon=True) for number in range(threads)]
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
