"""What is closed when its block ends: where the block failed, its error counts, and a later one is a note on it."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Self

from kafka_assets.errors import KafkaAssetsError


class Leaving:
    """A context manager by its `close`."""

    what: ClassVar[str]
    """What is closed, for that note."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except KafkaAssetsError as late:
            if error is None:
                raise
            error.add_note(f"and closing the {self.what}: {late}")
