"""Records from Kafka become a chunk for the publisher, without Spark: by the one decoder, which is in `decode/`.

NOT the same as by Spark
- No fingerprint is taken: a replay by Spark of what was landed here has nothing to compare itself with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_assets.broker.headers import UNREADABLE
from kafka_assets.decode.codes import ENCODING
from kafka_assets.decode.contract import Decoded, Reason, reason
from kafka_assets.decode.decoder import decoder
from kafka_assets.decode.names import HEADERS, TIMESTAMP_TYPE
from kafka_assets.decode.passage import CARRIED, HEADER_TYPE, rows_schema
from kafka_assets.decode.upserts import STAMP, Deletes, keyless
from kafka_assets.errors import StreamError
from kafka_assets.live.ahead import ReadAhead
from kafka_assets.live.batch import Batch, size
from kafka_assets.records import KEY, OFFSET, PARTITION, TIMESTAMP, BadRecord, Chunk, Seen
from kafka_assets.schema import declared, fields_of
from kafka_assets.sinks.nested import leaves_of
from kafka_assets.slices import SliceKey
from kafka_assets.streams import Stream, Upsert

Transform = Callable[[pa.Table], pa.Table]
"""Looks at each record by itself; `kafka_partition` and `kafka_offset` must survive it."""


class Decoder:
    """One stream's records, as they become rows."""

    def __init__(self, stream: Stream, transform: Transform | None = None) -> None:
        if stream.scope != "record":
            raise StreamError(
                f"stream {stream.name!r} has scope {stream.scope}, and cannot be read live",
                why="its transform wants whole slices, and a live batch is whatever has arrived",
                cure="land it by runs, or declare scope: record",
            )
        self.stream = stream
        self._values = decoder(declared(stream.schema_, stream.format), stream.format)
        self._ahead = ReadAhead(self._read)
        self._transform = transform
        self._needed = [PARTITION, OFFSET] if stream.upsert is None else [PARTITION, OFFSET, *stream.upsert.needed]
        every = rows_schema(self._values.schema, list(CARRIED))
        self._carried = [name for name in CARRIED if transform is not None or name in self._needed]
        self.schema = self._landed(every.empty_table()).schema
        """What the table is made of: `sinks.tables.ensure_table` takes it."""
        self._refuse_untyped()
        self._deletes = None if stream.upsert is None else deletes_of(self.schema, stream.upsert)

    def _refuse_untyped(self) -> None:
        """Of no values Arrow knows no type: the table would get a text column, and numbers would land as text."""
        for field in fields_of(self.schema):
            if any(map(pa.types.is_null, leaves_of(field.type))):
                raise StreamError(
                    f"stream {self.stream.name!r}: the Arrow function gives the column {field.name!r} no type",
                    why="it is called with an empty table first, for its columns, and of no values Arrow knows no type",
                    cure="give the type where the column is made: pa.array(values, pa.float64())",
                )

    def _read(self, values: Sequence[bytes | None]) -> Decoded:
        return self._values.read(pa.array(values, pa.binary()))

    def begin(self, batch: Batch) -> None:
        """Decode ahead what the batch has by now. Of one thread, another one than `chunk`'s or the same."""
        self._ahead.begin(batch)

    def close(self) -> None:
        """No more is decoded."""
        self._ahead.close()

    def chunk(self, parts: Mapping[SliceKey, Batch]) -> Chunk:
        """The records of slices of one topic; each slice holds all offsets of its batch, and counts what is there."""
        records = _Records(parts)
        if self._deletes is None:
            rows, bad, _ = self._rows(records, None)
            return Chunk(rows=rows, seen=records.seen(bad), bad=tuple(bad))
        gone = [at for at, value in enumerate(records.values) if value is None]
        there = [at for at, value in enumerate(records.values) if value is not None] if gone else None
        rows, bad, rest = self._rows(records, there)
        rows, keyless = self._keyed(rows, records, rest)
        bad += keyless
        deletes, refused = self._deleted(records, gone)
        deleted = set(gone) - {at for at, _ in refused}
        bad += [records.bad(at, why) for at, why in refused]
        return Chunk(rows=rows, seen=records.seen(bad, deleted), bad=tuple(bad), deletes=deletes)

    def _rows(
        self, records: _Records, there: list[int] | None
    ) -> tuple[pa.Table, list[BadRecord], np.ndarray[Any, Any] | None]:
        """The rows that land, the bad records, and the places of the records that are neither bad nor gone."""
        if there is None:
            count, found = len(records), self._ahead.columns(records.batches)
        else:
            count, found = len(there), self._ahead.read([records.values[at] for at in there])
        places = None if there is None else np.array(there, dtype=np.int64)
        bad = [records.bad(at if there is None else there[at], why) for at, why in found.bad.items()]
        decoded = found.rows
        if (good := found.good(count)) is not None:
            places = good if places is None else places[good]
        if HEADERS in self._carried and records.untold:
            every = np.arange(count) if places is None else places
            kept = ~np.isin(every, records.untold)
            bad += [records.bad(at, _NO_HEADERS) for at in every[~kept].tolist()]
            decoded, places = decoded.filter(pa.array(kept)), every[kept]
        for name in self._carried:
            decoded = decoded.append_column(pa.field(name, CARRIED[name]), records.column(name, places))
        return self._landed(decoded), bad, places

    def _landed(self, decoded: pa.Table) -> pa.Table:
        rows = decoded if self._transform is None else self._transform(decoded)
        missing = sorted(set(self._needed) - set(rows.column_names))
        if missing:
            raise StreamError(
                f"stream {self.stream.name!r}: there is no {' and '.join(missing)}",
                why="a row is identified by its record's partition and offset, in mode upsert by its key and order_by",
                cure="declare these columns, and keep them in the transform",
            )
        return rows.drop_columns([name for name in rows.column_names if name in CARRIED and name not in self._needed])

    def _keyed(
        self, rows: pa.Table, records: _Records, places: np.ndarray[Any, Any] | None
    ) -> tuple[pa.Table, list[BadRecord]]:
        """The rows that have their key and order value, and the records of those that do not."""
        assert self.stream.upsert is not None
        missing, reasons = keyless(rows, self.stream.upsert.needed)
        if not reasons:
            return rows, []
        without = rows.filter(pa.array(missing))
        marks: list[Any] = [without.column(name).to_pylist() for name in (PARTITION, OFFSET)]
        bad = [records.bad(at, why) for at, why in zip(records.found(*marks), reasons, strict=True)]
        return rows.filter(pa.array(~missing)), bad

    def _deleted(self, records: _Records, gone: list[int]) -> tuple[pa.Table | None, list[tuple[int, Reason]]]:
        if not gone or self._deletes is None:
            return None, []
        places = np.array(gone, dtype=np.int64)
        found, refused = self._deletes.read(
            *(records.column(name, places) for name in (KEY, TIMESTAMP, PARTITION, OFFSET))
        )
        return found, [(gone[at], why) for at, why in refused.items()]


def deletes_of(landed: pa.Schema, upsert: Upsert) -> Deletes:
    """What the records of an upsert stream without a value delete, whose rows have these columns."""
    return Deletes(landed, upsert.needed, whole_key=KEY if KEY in upsert.key else None)


_NO_HEADERS = reason(ENCODING, "the function is given headers, and the name of one is not valid UTF-8")


class _Records:
    """The batches of a chunk, one after the other; a record's place is its number among them all."""

    def __init__(self, parts: Mapping[SliceKey, Batch]) -> None:
        self._parts = parts
        self.batches = list(parts.values())

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    # Joined only for who asks: values that were decoded ahead are not looked at again.
    @cached_property
    def values(self) -> list[Any]:
        return self._joined([batch.values for batch in self.batches])

    @cached_property
    def keys(self) -> list[Any]:
        return self._joined([batch.keys for batch in self.batches])

    @cached_property
    def untold(self) -> list[int]:
        """The places of the records whose headers cannot be told."""
        return [
            at for at, one in enumerate(self._joined([batch.headers for batch in self.batches])) if one is UNREADABLE
        ]

    @staticmethod
    def _joined(lists: Sequence[list[Any]]) -> list[Any]:
        return lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))

    def column(self, name: str, places: np.ndarray[Any, Any] | None) -> Any:
        column = self._column(name)
        return column if places is None else column.take(pa.array(places))

    def _column(self, name: str) -> Any:
        if name == PARTITION:
            lengths = [len(batch) for batch in self.batches]
            return pa.array(np.repeat(np.array([key.partition for key in self._parts], dtype=np.int32), lengths))
        if name == OFFSET:
            return pa.array(np.array(self._joined([batch.offsets for batch in self.batches]), dtype=np.int64))
        if name == KEY:
            return pa.array(self.keys, pa.binary())
        if name == TIMESTAMP:
            stamps = self._joined([batch.timestamps for batch in self.batches])
            return pa.array(stamps, pa.timestamp("ms", "UTC")).cast(STAMP)
        if name == TIMESTAMP_TYPE:
            return pa.array(self._joined([batch.timestamp_types for batch in self.batches]), pa.int32())
        headers = self._joined([batch.headers for batch in self.batches])
        told = (None if one is UNREADABLE else one for one in headers)
        return pa.array([one and [{"key": key, "value": value} for key, value in one] for one in told], HEADER_TYPE)

    def bad(self, place: int, why: Reason) -> BadRecord:
        partition, batch, at = self._where(place)
        return batch.bad(at, why, partition=partition)

    def _where(self, place: int) -> tuple[int, Batch, int]:
        for key, batch in self._parts.items():
            if place < len(batch):
                return key.partition, batch, place
            place -= len(batch)
        raise IndexError(place)

    def found(self, partitions: Sequence[int], offsets: Sequence[int]) -> Iterator[int]:
        """The places of records that are known by partition and offset."""
        first, starts = 0, dict[int, list[tuple[int, Batch]]]()
        for key, batch in self._parts.items():
            starts.setdefault(key.partition, []).append((first, batch))
            first += len(batch)
        known = {
            (partition, offset): start + at
            for partition in set(partitions)
            for start, batch in starts[partition]
            for at, offset in enumerate(batch.offsets)
        }
        return (known[place] for place in zip(partitions, offsets, strict=True))

    def seen(self, bad: Sequence[BadRecord], deleted: set[int] | None = None) -> dict[SliceKey, Seen]:
        wrong: dict[int, list[int]] = {}
        for one in bad:
            wrong.setdefault(one.partition, []).append(one.offset)
        seen, first = dict[SliceKey, Seen](), 0
        for key, batch in self._parts.items():
            places = range(first, first + len(batch))
            stamps = [at for at in batch.timestamps if at is not None]
            seen[key] = Seen(
                read=len(batch),
                bad=sum(key.start <= offset < key.end for offset in wrong.get(key.partition, ())),
                deleted=sum(at in places for at in deleted or ()),
                bytes_read=size(batch.values) + size(batch.keys),
                first_timestamp=min(stamps, default=None),
                last_timestamp=max(stamps, default=None),
            )
            first += len(batch)
        return seen
