"""The leases of one consumer: kept alive from a thread of their own, while batches take as long as they take."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Self

from sqlalchemy import Engine

from kafka_assets.errors import LedgerBusy, OutcomeUnknown
from kafka_assets.ledger.leases import Lease, extend, give_back

_log = logging.getLogger(__name__)


class Keeper:
    """Extends what it holds; what others have taken meanwhile is to be asked for. A context manager."""

    def __init__(
        self,
        engine: Engine,
        *,
        lease_ms: int,
        aside: Callable[[Sequence[Lease]], object],
        silence: float | None = None,
    ) -> None:
        """`aside` is done with the leases each time they were extended: windows that are over are closed by it.

        Whoever does not ask for what is `lost` for more than `silence` seconds is stuck, or was abandoned: its leases
        are extended no more, and end. None: somebody else looks after that.
        """
        self._engine, self._lease_ms, self._aside = engine, lease_ms, aside
        self._silence, self._heard_at = silence, time.monotonic()
        self._leases: set[Lease] = set()
        self._lost: set[Lease] = set()
        self._error: Exception | None = None
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=self._lease_ms / 1000)

    def hold(self, leases: Iterable[Lease]) -> None:
        with self._lock:
            self._leases.update(leases)

    def forget(self, leases: Iterable[Lease]) -> None:
        """Extend these no more."""
        with self._lock:
            self._leases.difference_update(leases)
            self._lost.difference_update(leases)

    def lost(self) -> Collection[Lease]:
        """Those that are others' by now, told once; raises what ended the keeping."""
        self._heard_at = time.monotonic()
        if self._error is not None:
            raise self._error
        with self._lock:
            lost, self._lost = self._lost, set()
        return lost

    def give_back(self, leases: Sequence[Lease]) -> None:
        """Leave partitions to whoever comes. A ledger that is busy need not hear of it: a lease ends by itself."""
        self.forget(leases)
        if not leases:
            return
        try:
            give_back(self._engine, leases)
        except (LedgerBusy, OutcomeUnknown) as error:
            _log.warning("leases could not be given back, and end by themselves: %s", error)

    def _keep(self) -> None:
        while not self._stop.wait(self._lease_ms / 3000):
            with self._lock:
                leases = list(self._leases)
            if not leases or self._silent():
                continue
            try:
                gone = set(extend(self._engine, leases, lease_ms=self._lease_ms))
                self._aside([lease for lease in leases if lease not in gone])
            except (LedgerBusy, OutcomeUnknown) as error:
                _log.debug("the leases could not be extended now: %s", error)
                continue
            except Exception as error:  # noqa: BLE001 raised by `lost`, in the thread of whoever holds them
                self._error = error
                return
            with self._lock:
                self._lost |= gone & self._leases
                self._leases -= gone

    def _silent(self) -> bool:
        return self._silence is not None and time.monotonic() - self._heard_at > self._silence
