"""How the devstack tells what it is doing: whoever calls it decides how that is shown."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What `up` and `down` report to while they work; called from several threads."""

    def say(self, message: str) -> None:
        """One thing that happened, as a sentence."""
        ...

    def fetched(self, done: int, total: int) -> None:
        """So many of so many bytes of artifacts are here; `done == total` ends it."""
        ...


class Silent:
    """Reports nothing."""

    def say(self, message: str) -> None:
        pass

    def fetched(self, done: int, total: int) -> None:
        pass
