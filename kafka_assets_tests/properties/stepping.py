"""Runs that stop where they are told to: threads of which one goes at a time, and faults at any step.

The points are where the transaction's own steps begin or end: their functions are wrapped, nothing else is changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection

from kafka_assets.errors import LedgerBusy, OutcomeUnknown
from kafka_assets.ledger import claims, engine, publishing, retries
from kafka_assets.sinks import merge, modes, publish

BEFORE = {"claim read": (claims, "_compare_and_set"), "asking": (publishing, "_ask")}
AFTER = {
    "registered": (publishing, "register_backend"),
    "locked": (publish, "lock"),
    "deleted": (modes, "delete_rows"),
    "cleared": (publish, "delete_quarantine"),
    "quarantined": (publish, "insert_quarantine"),
    "judged": (publish, "judge"),
    "reduced": (merge.Merge, "reduce"),
    "asset locked": (merge.Merge, "lock"),
    "merged": (publish, "_settled"),
    "verified": (publish, "verify_attempts"),
    "marked": (publish, "mark_committed"),
    "advanced": (publish, "_advance"),
}
POINTS = (*BEFORE, *AFTER, "chunk", "confirmed")
"""`chunk` is after each chunk was read, `confirmed` after Kafka was asked again: the run itself tells."""
ENDS = ("lost, committed", "lost, rolled back")
"""What may become of a COMMIT whose answer is lost."""

_running = threading.local()


class Killed(BaseException):
    """The run is no more; nothing may catch it."""


class Run:
    """A thread that goes when it is told to, until it stops at one of its points or ends."""

    def __init__(
        self,
        work: Callable[[], Any],
        *,
        stops: tuple[str, ...] = (),
        kill_at: str | None = None,
        busy_at: str | None = None,
        commit: str | None = None,
        committed: Callable[[list[Any]], None],
    ) -> None:
        self.where: str | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.ended = False
        self.commit = commit
        self.marked: list[Any] = []
        self.told_committed = committed
        self._stops, self._kill_at, self._busy_at = list(stops), kill_at, busy_at
        self._go, self._stopped = threading.Event(), threading.Event()
        self._killed = self._locked = False
        self._thread = threading.Thread(target=self._run, args=(work,), name="run", daemon=True)

    def go(self) -> None:
        """Start, or go on; back when it stands still again."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        self._stopped.clear()
        self.where = None
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.set()

    def wait(self, seconds: float = 60) -> bool:
        stands = self._stopped.wait(seconds)
        assert stands or seconds < 60, "a run hangs"
        return stands

    def stop_at(self, point: str) -> None:
        self._stops.append(point)

    def stop_nowhere(self) -> None:
        self._stops.clear()

    def kill(self) -> None:
        self._killed = True
        self.go()

    def reached(self, point: str) -> None:
        self._locked |= point == "locked"
        if point == "judged" and not self._locked:
            return  # SQLite's chunks are judged before its transaction begins, too, where no database can be busy
        if point in self._stops:
            self._stops.remove(point)
            self.where = point
            self._stopped.set()
            self._go.wait()
            self._go.clear()
            if self._killed:
                raise Killed
        if point == self._kill_at:
            raise Killed
        if point == self._busy_at:
            self._busy_at = None
            raise LedgerBusy("busy, says the test")

    def _run(self, work: Callable[[], Any]) -> None:
        _running.run = self
        try:
            self.result = work()
        except BaseException as error:  # noqa: BLE001  it is handed to the thread that waits
            self.error = error
        self.ended = True
        self._stopped.set()


def at(point: str) -> None:
    """This run, if it is one, has reached a point."""
    run: Run | None = getattr(_running, "run", None)
    if run is not None:
        run.reached(point)


@contextmanager
def stepped() -> Iterator[None]:
    """Every run's steps are points while this lasts; retries do not sleep."""
    with pytest.MonkeyPatch.context() as patch:
        for point, (module, name) in (BEFORE | AFTER).items():
            patch.setattr(module, name, _wrapped(getattr(module, name), point, first=point in BEFORE))
        patch.setattr(publish, "mark_committed", _noted(publish.mark_committed))
        patch.setattr(engine, "_commit", _committing(engine._commit))
        patch.setattr(retries, "time", SimpleNamespace(sleep=lambda seconds: None))
        yield


def _wrapped(step: Callable[..., Any], point: str, *, first: bool) -> Callable[..., Any]:
    def before(*given: Any, **more: Any) -> Any:
        at(point)
        return step(*given, **more)

    def after(*given: Any, **more: Any) -> Any:
        result = step(*given, **more)
        at(point)
        return result

    return before if first else after


def _noted(step: Callable[..., Any]) -> Callable[..., Any]:
    def mark(connection: Connection, publication: Any, **more: Any) -> None:
        _running.run.marked.append((connection, publication, more["attempt"], more["outcome"]))
        step(connection, publication, **more)

    return mark


def _committing(commit: Callable[[Connection], None]) -> Callable[[Connection], None]:
    """Tells the moment of a result's COMMIT; and loses its answer, where the run is to."""

    def committing(connection: Connection) -> None:
        run: Run | None = getattr(_running, "run", None)
        # Of this transaction alone: what one marked that was rolled back was never committed.
        marked = [(one, attempt, outcome) for c, one, attempt, outcome in run.marked if c is connection] if run else []
        if run is None or not marked:
            commit(connection)
            return
        fate, run.commit = run.commit, None
        run.marked.clear()
        if fate == "lost, rolled back":
            connection.rollback()
        else:
            commit(connection)
            run.told_committed(marked)
        if fate is not None:
            raise OutcomeUnknown("the answer was lost, says the test", why="it was to be")

    return committing
