"""The headers of messages as the client gives them: not those of which a name is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, SupportsIndex

from kafka_assets.decode import messages
from kafka_assets.decode.messages import Asked
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


def headers_of(given: Sequence[Asked]) -> list[Any]:
    """What each message gives, all of one class: a list of pairs, or None; UNREADABLE where it gives nothing."""
    return messages.headers_of(given, untold=UNREADABLE)


def told(headers: Any) -> Headers:
    """Those that can be told."""
    return () if headers is UNREADABLE else tuple(headers or ())


def _refuse() -> NoReturn:
    raise HeadersUnreadable(
        "the headers of this record cannot be told",
        why="the name of one is not valid UTF-8, and the Kafka client gives none of them then",
        cure="have its producer write names in UTF-8, or leave the headers of such records alone",
    )
