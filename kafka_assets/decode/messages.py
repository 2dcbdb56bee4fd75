"""Messages as confluent_kafka gives them, taken apart: each of their parts side by side in Arrow and numpy.

Messages are taken apart as soon as they are consumed: kept until their batch is full, each costs three times as much,
since nothing of it is in the processor's cache any more. Of each one its own objects live no longer than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from kafka_assets.decode.fingerprints import fingerprint

LATEST = (2**63 - 1) // 1000
"""ms since 1970: the last that a timestamp in microseconds holds. A record's own may be anything of 64 bits."""

Headers = Sequence[tuple[str, "bytes | None"]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Message(Protocol):
    """A record as confluent_kafka gives it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


class Asked(Protocol):
    """A message, as far as it is asked for its headers."""

    def headers(self) -> Any: ...


Some = TypeVar("Some", bound="Columns")


@dataclass(frozen=True)
class Columns:
    """Records of one partition, in the order of their offsets."""

    partition: int
    offsets: Numbers
    values: Any
    """A binary array, and so are the keys."""
    keys: Any
    stamps: Numbers
    """As confluent_kafka has them, in pairs: the type, which is one more than Kafka's, and milliseconds since 1970.

    Type 0 says that there is none. So does a negative number, and one that no column holds.
    """
    headers: Sequence[Headers | None] | None
    """Or what stands for headers that cannot be told. None where no record has any."""

    @classmethod
    def of(cls, messages: Sequence[Message], *, untold: Any) -> Self:
        """Messages of one partition, of which there is one at least; `untold` stands for headers not given."""
        # One pass over all for each part, by what the messages' class gives for it, is five times as fast as asking
        # each by name.
        kind: Any = type(messages[0])
        headers = headers_of(messages, untold=untold)
        return cls(
            partition=kind.partition(messages[0]),
            offsets=numbers(map(kind.offset, messages), len(messages)),
            values=pa.array(list(map(kind.value, messages)), pa.binary()),
            keys=pa.array(list(map(kind.key, messages)), pa.binary()),
            stamps=numbers(chain.from_iterable(map(kind.timestamp, messages)), 2 * len(messages)).reshape(-1, 2),
            headers=None if headers.count(None) == len(headers) else headers,
        )

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def bytes(self) -> int:
        """Those of keys and values."""
        return _size(self.values) + _size(self.keys)

    @property
    def header_bytes(self) -> int:
        """Those of the headers, about."""
        told: Any = (one for one in self.headers or () if isinstance(one, list))
        return sum(len(name) + len(value or b"") for one in told for name, value in one)

    @property
    def times(self) -> tuple[Numbers, Flags]:
        """Milliseconds since 1970, and which of them are a time."""
        kinds, at = self.stamps[:, 0], self.stamps[:, 1]
        return at, (kinds != 0) & (at >= 0) & (at <= LATEST)

    @cached_property
    def fingerprint(self) -> int:
        """What the same records are known by when they are read again."""
        return fingerprint(self.partition, self.offsets, self.keys, self.values)


def joined(parts: Sequence[Some]) -> Some:
    """The records of these parts of one partition, of which there is one at least, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return type(parts[0])(
        partition=parts[0].partition,
        offsets=np.concatenate([one.offsets for one in parts]),
        values=pa.concat_arrays([one.values for one in parts]),
        keys=pa.concat_arrays([one.keys for one in parts]),
        stamps=np.concatenate([one.stamps for one in parts]),
        headers=None
        if all(one.headers is None for one in parts)
        else [*chain.from_iterable([None] * len(one) if one.headers is None else one.headers for one in parts)],
    )


def headers_of(messages: Sequence[Asked], *, untold: Any) -> list[Any]:
    """What each message gives, all of one class: a list of pairs, or None; `untold` where it gives nothing.

    It gives none of them where the name of one is not UTF-8. Such a message can be asked once, which raises; asked
    again, it gives names that are no objects, and using one of them ends the interpreter.
    """
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
            found.append(untold)
        else:
            return found


def numbers(given: Any, count: int) -> Numbers:
    """So many of them, as an array."""
    return np.fromiter(given, dtype=np.int64, count=count)


def _size(column: Any) -> int:
    _, places, _ = column.buffers()
    ends = np.frombuffer(places, dtype=np.int32)
    return int(ends[column.offset + len(column)]) - int(ends[column.offset])
