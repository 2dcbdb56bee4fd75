"""What travels from a source of records to the publisher: bounded chunks, and what was seen in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_assets.decode import names
from kafka_assets.slices import SliceKey

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION = names.PARTITION
OFFSET = names.OFFSET
KEY = names.KEY
TIMESTAMP = names.TIMESTAMP
SOURCE = "kafka_source"
ORDINAL = "kafka_ordinal"
"""The number of a row among those of its slice, where a transform saw the whole slice."""

CARRIED = (KEY, TIMESTAMP, names.TIMESTAMP_TYPE, names.HEADERS)
"""Columns that every record carries for a transform to use; only under another name do they reach the table.
Except for `kafka_key`, where it is an upsert table's key."""


@dataclass(frozen=True)
class Seen:
    """What the source delivered of one slice, counted before any transform."""

    read: int = 0
    bad: int = 0
    deleted: int = 0
    """Records of an upsert stream that delete their key, and say which."""
    bytes_read: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    fingerprint: int | None = None
    """The hashes of all records, combined: the same for the same records in any order and any parts."""

    def __add__(self, other: Seen) -> Seen:
        firsts = [at for at in (self.first_timestamp, other.first_timestamp) if at is not None]
        lasts = [at for at in (self.last_timestamp, other.last_timestamp) if at is not None]
        return Seen(
            read=self.read + other.read,
            bad=self.bad + other.bad,
            deleted=self.deleted + other.deleted,
            bytes_read=self.bytes_read + other.bytes_read,
            first_timestamp=min(firsts, default=None),
            last_timestamp=max(lasts, default=None),
            fingerprint=_xor(self.fingerprint, other.fingerprint),
        )


def _xor(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else one ^ other


@dataclass(frozen=True)
class BadRecord:
    """A record that could not become a row, with its bytes and the reason."""

    partition: int
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None
    code: str | None = None
    """The kind of the reason; None where a table said it, whose words tell."""
    field: str | None = None
    """The declared field that the reason is about, where it is one."""


@dataclass(frozen=True)
class Refused:
    """The place of a record whose row the table does not take, and why."""

    partition: int
    offset: int
    reason: str
    topic: str = ""
    """Said where a run may have several: the rows of two carry the same partitions and offsets."""


@dataclass(frozen=True)
class Chunk:
    """A bounded part of a run's records of one topic: rows with their partition and offset, and the counts behind."""

    rows: pa.Table
    seen: dict[SliceKey, Seen]
    bad: tuple[BadRecord, ...] = ()
    deletes: pa.Table | None = None
    """Upsert: the key, place and order of the records that delete. No transform sees them."""


Chunks = Callable[[], Iterable[Chunk]]
"""A source of chunks that can be asked again: a transaction that has to be retried reads from the start."""

Fetch = Callable[[Sequence[Refused]], Sequence[BadRecord]]
"""Reads the bytes of refused records again; every one of them is delivered, or it raises."""
