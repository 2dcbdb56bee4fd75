"""`@kafka_listener`: a function for each record, or for each batch, and what is done where it raises."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Literal

from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.starts import Start
from kafka_assets.broker.units import Each
from kafka_assets.errors import UsageError

Commit = Literal["auto", "sync", "async", "ledger", "transaction"]
COMMITS: tuple[Commit, ...] = ("auto", "sync", "async", "ledger", "transaction")

QUARANTINE = "kafka_quarantine"
"""The ledger's table, as the name of a quarantine; any other name is a dead-letter topic's."""

OnError = Literal["raise", "skip"] | Callable[[StoredRecord, Exception], object]


@dataclass(eq=False)  # not frozen: it takes over the function's name and docstring
class Listener:
    """A function with what it listens to. Called, it is the function itself."""

    function: Callable[..., object]
    topics: str | Sequence[str]
    group: str
    batch: bool
    commit: Commit
    each: Each
    start: Start
    retries: int
    backoff: float
    on_error: OnError
    quarantine: str | None
    threads: int
    max_records: int
    transactional_id: str | None
    on_expired: Literal["fail", "record"]

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        return self.function(*args, **kwargs)

    def wants(self, name: str) -> bool:
        """Whether the function takes a parameter of this name: `sql` and `producer` are given to those who do."""
        return name in inspect.signature(self.function).parameters


def kafka_listener(  # noqa: PLR0913 - each is one word of configuration, by name
    *,
    topics: str | Sequence[str],
    group: str | None = None,
    batch: bool = False,
    commit: Commit = "sync",
    each: Each = "batch",
    start: Start = "earliest",
    retries: int = 3,
    backoff: float = 0.5,
    on_error: OnError = "raise",
    quarantine: str | None = None,
    threads: int = 1,
    max_records: int = 500,
    transactional_id: str | None = None,
    on_expired: Literal["fail", "record"] = "fail",
) -> Callable[[Callable[..., object]], Listener]:
    """Declare a function as a listener; `run_listeners` runs it, `kafka_assets.testing.run_listener` tests it.

    What it raises is tried again `retries` times, `backoff` seconds apart and twice as long each time; Permanent
    errors are not. Then the record goes to the `quarantine`, a topic or "kafka_quarantine", or, without one,
    `on_error` decides: "raise" ends the listener with the record undone, "skip" logs it, a function may do either.

    `transactional_id` is for commit="transaction": one that a process has again after a restart ends at once what
    it had left open; without it, that takes the transaction's timeout. `on_expired` is InLedger's.
    """

    def declare(function: Callable[..., object]) -> Listener:
        listener = Listener(
            function,
            topics=topics,
            group=group or function.__name__,
            batch=batch,
            commit=commit,
            each=each,
            start=start,
            retries=retries,
            backoff=backoff,
            on_error=on_error,
            quarantine=quarantine,
            threads=threads,
            max_records=max_records,
            transactional_id=transactional_id,
            on_expired=on_expired,
        )
        _check(listener)
        update_wrapper(listener, function, updated=())
        return listener

    return declare


def _check(listener: Listener) -> None:
    if listener.commit not in COMMITS:
        raise UsageError(f"there is no commit mode {listener.commit!r}", cure=f"choose among {', '.join(COMMITS)}")
    if listener.retries < 0 or listener.backoff < 0 or listener.threads < 1:
        raise UsageError("retries and backoff begin at 0, and threads at 1", cure="correct the listener's declaration")
    if listener.quarantine == QUARANTINE and listener.commit != "ledger":
        raise UsageError(
            f"the quarantine {QUARANTINE} needs commit='ledger'",
            why="a record goes there in the transaction of its offset",
            cure="give commit='ledger', or the name of a dead-letter topic",
        )
    if listener.on_expired not in ("fail", "record"):
        raise UsageError(f"there is no on_expired={listener.on_expired!r}", cure="choose fail, or record")
    if listener.on_expired == "record" and listener.commit != "ledger":
        raise UsageError(
            "on_expired='record' needs commit='ledger'",
            why="what was lost is written down in the ledger",
            cure="give commit='ledger', or leave on_expired out",
        )
    if listener.commit == "transaction" and listener.batch and (listener.quarantine or listener.on_error != "raise"):
        raise UsageError(
            "a batch in a transaction fails as a whole",
            why="which of its records is at fault cannot be tried out: what it had sent by then would be sent twice",
            cure="leave batch=True out, or quarantine and on_error",
        )
    for name, mode in (("sql", "ledger"), ("producer", "transaction")):
        if listener.wants(name) and listener.commit != mode:
            raise UsageError(
                f"a function that takes {name!r} needs commit={mode!r}", cure=f"give commit={mode!r}, or rename it"
            )
