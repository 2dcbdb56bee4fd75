"""When a consumer that is to end by itself has nothing left to do: it has read everything, and waited for more."""

from __future__ import annotations

import time

from kafka_assets.broker.reader import Reader


class Idleness:
    """Of one iteration. Silence is not enough: where a broker is slow or away, or a partition waits, nothing has ended.

    It lasts from when every partition that the consumer has was read to its end. A member that the group gives no
    partition has nothing to read.
    """

    def __init__(self, reader: Reader, seconds: float | None) -> None:
        """None: it never has nothing left to do."""
        self._reader, self._seconds = reader, seconds
        self._since: float | None = None

    def broken(self) -> None:
        """There is something to do."""
        self._since = None

    def over(self) -> bool:
        """Whether it has lasted for so long, to be asked while there is nothing to do."""
        if self._seconds is None:
            return False
        now = time.monotonic()
        if not self._reader.at_end:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= self._seconds:
            # What was heard last may be old: a broker that went away says nothing any more.
            if self._reader.ends_here():
                return True
            self._since = None
        return False
