"""The headers of messages as the client gives them: not those of which a name is not UTF-8.

Such a message can be asked once, which raises; asked again, it gives names that are no objects, and using one of them
ends the interpreter. So headers are asked for here alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol, SupportsIndex

from kafka_assets.errors import HeadersUnreadable

Headers = tuple[tuple[str, bytes | None], ...]


class Unreadable(Headers):
    """Headers that cannot be told. Who does not look at them goes on; who does, gets the error."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        _refuse()

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        _refuse()

    def __len__(self) -> NoReturn:  # noqa: PLE0303 - nor does it return anything
        _refuse()

    def __contains__(self, one: object) -> bool:
        _refuse()

    def __repr__(self) -> str:
        return "<headers that cannot be told>"


UNREADABLE = Unreadable()
LEFT_OUT = "its headers are left out: the name of one is not valid UTF-8"


class _Asked(Protocol):
    """A message, as far as it is asked here."""

    def headers(self) -> Any: ...


def headers_of(messages: Sequence[_Asked]) -> list[Any]:
    """What each message gives, all of one class: a list of pairs, or None; UNREADABLE where it gives nothing."""
    found: list[Any] = []
    if not messages:
        return found
    ask = type(messages[0]).headers
    # Through `map` the interpreter sees what was raised; where a method is called by its name it may not.
    asking = map(ask, messages)
    while True:
        try:
            found.extend(asking)
        except SystemError:
            # An exception ends `extend`, and not what it reads from: the next message is the next.
            found.append(UNREADABLE)
        else:
            return found


def told(headers: Any) -> Headers:
    """Those that can be told."""
    return () if headers is UNREADABLE else tuple(headers or ())


def _refuse() -> NoReturn:
    raise HeadersUnreadable(
        "the headers of this record cannot be told",
        why="the name of one is not valid UTF-8, and the Kafka client gives none of them then",
        cure="have its producer write names in UTF-8, or leave the headers of such records alone",
    )
