"""Handing records to a listener's function: tried again, quarantined, skipped, or the end of the listener."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from kafka_assets.broker.producer import Producer
from kafka_assets.broker.read import StoredRecord
from kafka_assets.errors import Permanent, TransactionMustAbort
from kafka_assets.ledger.trouble import translate
from kafka_assets.live.dead_letters import Place
from kafka_assets.live.listener import Listener
from kafka_assets.live.reasons import said

LOGGER = logging.getLogger("kafka_assets.listeners")

_LONGEST = 60.0
_DOUBLED = 60
"""Times; after more, whatever `backoff` is, the pause is the longest, and a float would end."""


class Again(Exception):
    """The transaction is to be aborted, and its records to come again after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Stopped(Exception):
    """The listener is to end before the next try: nothing is decided of the record, and it stays undone."""


class Raised(Exception):
    """What the listener's function raised, and what nobody has handled: the listener ends with it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@dataclass
class Handling:
    """One listener's calls, of one thread. It outlives a consumer: tries are counted across redeliveries."""

    listener: Listener
    pause: Callable[[float], object]
    """Waits so many seconds; True where there is to be no further try."""
    quarantine: Callable[[StoredRecord, Exception, int], object] | None = None
    sql: Callable[[], Connection] | None = None
    require_whole: Callable[[], object] | None = None
    """Raises where the transaction of `sql` is not the one that its unit began with."""
    producer: Producer | None = None
    shortened: dict[Place, int] = field(default_factory=dict[Place, int])
    """Of records that were refused as dead letters; see there."""
    tries: dict[Place, tuple[int, Exception]] = field(default_factory=dict[Place, tuple[int, Exception]])

    def __call__(self, records: Sequence[StoredRecord]) -> None:
        """Have these done, one after the other or as a batch; returns when the next may come, or raises Stopped."""
        if not self.listener.batch:
            for record in records:
                self._do(record, record)
            return
        error = self._tried(records, _place(records[0]))
        if error is None:
            return
        if self.quarantine is None and self.listener.on_error == "raise":
            raise Raised(error)
        # Which of them is it?
        for record in records:
            self._do([record], record)

    def _do(self, given: object, record: StoredRecord) -> None:
        place = _place(record)
        error = self._tried(given, place)
        if error is None:
            return
        tries, _ = self.tries[place]
        if self._in_place:
            del self.tries[place]
        on_error = self.listener.on_error
        if self.quarantine is not None:
            try:
                self.quarantine(record, error, tries)
            except TransactionMustAbort as refused:
                raise Again(0.0) from refused
            if self._in_place:
                self.shortened.pop(place, None)
            LOGGER.warning("%s: %s:%d:%d is quarantined: %s", self.listener.group, *place, said(error))
        if callable(on_error):
            try:
                on_error(record, error)
            except Exception as raised:
                raise Raised(raised) from raised
        elif self.quarantine is None:
            if on_error == "raise":
                raise Raised(error)
            LOGGER.warning("%s: %s:%d:%d is skipped: %s", self.listener.group, *place, said(error))

    def _tried(self, given: object, place: Place) -> Exception | None:
        """Call the function until it does not raise; what it raised, when it is enough."""
        while True:
            tries, last = self.tries.get(place, (0, None))
            if last is not None and not self._in_place and self._enough(tries, last):
                return last
            try:
                with self._undone_where_it_raises():
                    self.listener.function(given, **self._extras())
            except Exception as error:
                self._raise_trouble(error)
                tries += 1
                self.tries[place] = (tries, error)
                seconds = min(self.listener.backoff * 2 ** min(tries - 1, _DOUBLED), _LONGEST)
                if not self._in_place:
                    raise Again(0.0 if self._enough(tries, error) else seconds) from error
                if self._enough(tries, error):
                    return error
                LOGGER.info("%s: try %d at %s:%d:%d failed: %s", self.listener.group, tries, *place, said(error))
                if self.pause(seconds) is True:
                    raise Stopped from error
            else:
                self.tries.pop(place, None)
                return None

    def committed(self, records: Iterable[StoredRecord]) -> None:
        """What was decided of these need not be known any more.

        In a transaction it must be until then: another record may abort it, and all of them come again.
        """
        for record in records:
            self.tries.pop(_place(record), None)
            self.shortened.pop(_place(record), None)

    @property
    def _in_place(self) -> bool:
        """Whether a try can be repeated at once."""
        return self.listener.commit != "transaction"

    def _enough(self, tries: int, error: Exception) -> bool:
        return tries > self.listener.retries or isinstance(error, Permanent)

    @contextmanager
    def _undone_where_it_raises(self) -> Generator[None]:
        """In the ledger's mode, the SQL of a try that failed is taken back, and the transaction lives on."""
        with nullcontext() if self.sql is None else self.sql().begin_nested():
            yield

    def _extras(self) -> dict[str, Any]:
        """What the function takes beside its records."""
        given: dict[str, Any] = {}
        if self.listener.wants("sql"):
            assert self.sql is not None
            given["sql"] = self.sql()
        if self.listener.wants("producer"):
            given["producer"] = self.producer
        return given

    def _raise_trouble(self, error: Exception) -> None:
        """A database that is busy or gone is no fault of the record: its transaction is over.

        In the ledger's mode that error may stand behind another one: after a deadlock, taking the try back fails, too.
        """
        for one in [error] if self.sql is None else _behind(error):
            known = translate(one) if isinstance(one, DBAPIError) else None
            if known is not None:
                raise known from error
        if self.require_whole is not None:
            self.require_whole()


def _place(record: StoredRecord) -> Place:
    return record.topic, record.partition, record.offset


def _behind(error: BaseException) -> list[BaseException]:
    """The error, and those in whose handling it was raised."""
    found, waiting = list[BaseException](), [error]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.append(one)
            waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
    return found
