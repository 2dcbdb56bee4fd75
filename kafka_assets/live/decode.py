"""Records from Kafka become a chunk for the publisher, without Spark: by the one decoder, which is in `decode/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_assets.broker.headers import UNREADABLE
from kafka_assets.decode.contract import Decoded, Reason
from kafka_assets.decode.decoder import decoder
from kafka_assets.decode.messages import Numbers
from kafka_assets.decode.names import HEADERS, TIMESTAMP_TYPE
from kafka_assets.decode.passage import CARRIED, HEADER_TYPE, NO_HEADERS, rows_schema
from kafka_assets.decode.upserts import STAMP, Deletes, keyless
from kafka_assets.errors import StreamError
from kafka_assets.live.ahead import ReadAhead
from kafka_assets.live.batch import Batch, Columns
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

    def _read(self, parts: Sequence[Columns]) -> Decoded:
        for part in parts:
            # Now, and not when they are counted: here their bytes are in the cache, and the database does not wait.
            _ = part.fingerprint
        values = _joined([part.values for part in parts], pa.binary())
        # Of an upsert stream, records without a value delete.
        return self._values.read(values.drop_null() if self._deletes is not None and values.null_count else values)

    def begin(self, batch: Batch) -> None:
        """Decode ahead what the batch has by now. Of one thread, another one than `chunk`'s or the same."""
        self._ahead.begin(batch)

    def chunk(self, parts: Mapping[SliceKey, Batch]) -> Chunk:
        """The records of slices of one topic; each slice holds all offsets of its batch, and counts what is there."""
        records = _Records(parts)
        if self._deletes is None:
            rows, bad, _ = self._rows(records, _NOWHERE)
            return Chunk(rows=rows, seen=records.seen(bad, _NOWHERE), bad=tuple(bad))
        gone = records.gone
        rows, bad, rest = self._rows(records, gone)
        rows, keyless = self._keyed(rows, records, rest)
        bad += keyless
        deletes, refused = self._deleted(records, gone)
        bad += [records.bad(int(gone[at]), why) for at, why in refused.items()]
        return Chunk(rows=rows, seen=records.seen(bad, np.delete(gone, list(refused))), bad=tuple(bad), deletes=deletes)

    def _rows(self, records: _Records, gone: Numbers) -> tuple[pa.Table, list[BadRecord], Numbers | None]:
        """The rows that land, the bad records, and the places of the records that are neither bad nor gone."""
        found, count = self._ahead.columns(records.batches), len(records) - len(gone)
        places = np.delete(np.arange(len(records)), gone) if len(gone) else None
        bad = [records.bad(at if places is None else int(places[at]), why) for at, why in found.bad.items()]
        decoded = found.rows
        if (good := found.good(count)) is not None:
            places = good if places is None else places[good]
        if HEADERS in self._carried and records.untold:
            every = np.arange(count) if places is None else places
            kept = ~np.isin(every, records.untold)
            bad += [records.bad(at, NO_HEADERS) for at in every[~kept].tolist()]
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

    def _keyed(self, rows: pa.Table, records: _Records, places: Numbers | None) -> tuple[pa.Table, list[BadRecord]]:
        """The rows that have their key and order value, and the records of those that do not."""
        assert self.stream.upsert is not None
        missing, reasons = keyless(rows, self.stream.upsert.needed)
        if not reasons:
            return rows, []
        without = rows.filter(pa.array(missing))
        marks: list[Any] = [without.column(name).to_pylist() for name in (PARTITION, OFFSET)]
        bad = [records.bad(at, why) for at, why in zip(records.found(*marks), reasons, strict=True)]
        return rows.filter(pa.array(~missing)), bad

    def _deleted(self, records: _Records, gone: Numbers) -> tuple[pa.Table | None, dict[int, Reason]]:
        """What they delete, and by its place among them why one deletes nothing."""
        if not len(gone) or self._deletes is None:
            return None, {}
        return self._deletes.read(*(records.column(name, gone) for name in (KEY, TIMESTAMP, PARTITION, OFFSET)))


def deletes_of(landed: pa.Schema, upsert: Upsert) -> Deletes:
    """What the records of an upsert stream without a value delete, whose rows have these columns."""
    return Deletes(landed, upsert.needed, whole_key=KEY if KEY in upsert.key else None)


_array: Any = pa.array  # its stubs know no array of numpy's without its type
_NOWHERE: Numbers = np.empty(0, dtype=np.int64)


class _Records:
    """The batches of a chunk, one after the other; a record's place is its number among them all."""

    def __init__(self, parts: Mapping[SliceKey, Batch]) -> None:
        self._slices = parts
        self.batches = list(parts.values())
        self._parts = [part for batch in self.batches for part in batch.parts]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def gone(self) -> Numbers:
        """The places of the records without a value."""
        if not any(part.values.null_count for part in self._parts):
            return _NOWHERE
        return np.flatnonzero(_joined([part.values for part in self._parts], pa.binary()).is_null())

    @cached_property
    def untold(self) -> list[int]:
        """The places of the records whose headers cannot be told."""
        return [at for at, one in enumerate(self._headers()) if one is UNREADABLE]

    def column(self, name: str, places: Numbers | None) -> Any:
        """What Kafka says of the records, or of those at these places."""
        column = self._column(name)
        return column if places is None else column.take(_array(places))

    def _column(self, name: str) -> Any:
        parts = self._parts
        if name == PARTITION:
            partitions = np.array([key.partition for key in self._slices], dtype=np.int32)
            return _array(np.repeat(partitions, [len(batch) for batch in self.batches]))
        if name == OFFSET:
            return _array(np.concatenate([_NOWHERE, *(part.offsets for part in parts)]))
        if name == KEY:
            return _joined([part.keys for part in parts], pa.binary())
        if name == TIMESTAMP:
            told = [part.times for part in parts]
            stamps = [_array(np.where(timed, at, 0), mask=~timed) for at, timed in told]
            return _joined(stamps, pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(STAMP)
        if name == TIMESTAMP_TYPE:
            # As the Spark road has them: 0 of the producer, 1 of the broker, -1 none.
            return _array(np.concatenate([_NOWHERE, *(part.stamps[:, 0] - 1 for part in parts)]), pa.int32())
        told = (None if one is UNREADABLE else one for one in self._headers())
        return _array([one and [{"key": key, "value": value} for key, value in one] for one in told], HEADER_TYPE)

    def _headers(self) -> Iterator[Any]:
        for part in self._parts:
            yield from repeat(None, len(part)) if part.headers is None else part.headers

    def bad(self, place: int, why: Reason) -> BadRecord:
        """The record at this place, with its bytes."""
        for part in self._parts:
            if place < len(part):
                return part.bad(place, why)
            place -= len(part)
        raise IndexError(place)

    def found(self, partitions: Sequence[int], offsets: Sequence[int]) -> Iterator[int]:
        """The places of records that are known by partition and offset."""
        first, known, wanted = 0, dict[tuple[int, int], int](), set(partitions)
        for part in self._parts:
            if part.partition in wanted:
                known.update(((part.partition, offset), first + at) for at, offset in enumerate(part.offsets.tolist()))
            first += len(part)
        return (known[place] for place in zip(partitions, offsets, strict=True))

    def seen(self, bad: Sequence[BadRecord], deleted: Numbers) -> dict[SliceKey, Seen]:
        """What was delivered of each slice; these are bad, and at these places are those that delete."""
        wrong: dict[int, list[int]] = {}
        for one in bad:
            wrong.setdefault(one.partition, []).append(one.offset)
        seen, first = dict[SliceKey, Seen](), 0
        for key, batch in self._slices.items():
            after = first + len(batch)
            times = np.concatenate([_NOWHERE, *(at[timed] for at, timed in (part.times for part in batch.parts))])
            seen[key] = Seen(
                read=len(batch),
                bad=sum(key.start <= offset < key.end for offset in wrong.get(key.partition, ())),
                deleted=int(np.count_nonzero((deleted >= first) & (deleted < after))),
                bytes_read=sum(part.bytes for part in batch.parts),
                first_timestamp=int(times.min()) if len(times) else None,
                last_timestamp=int(times.max()) if len(times) else None,
                fingerprint=reduce(int.__xor__, (part.fingerprint for part in batch.parts), 0),
            )
            first = after
        return seen


def _joined(arrays: Sequence[Any], kind: Any) -> Any:
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays(arrays) if arrays else _array([], kind)
