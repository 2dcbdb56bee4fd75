"""Values that the target cannot hold as they are, found in Arrow before any row is sent.

Known beforehand, they cost no halving; and what a database would change without a word is found at all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.records import OFFSET, PARTITION, BadRecord, Chunk, Fetch, Refused, Seen
from kafka_assets.sinks.nested import json_text
from kafka_assets.sinks.road import Road
from kafka_assets.slices import SliceKey

_YEARS = "it lies outside of the years 1 to 9999"
_ENCODING = "it is not valid UTF-8"
_NUL = "it has a NUL character, which the database's text cannot hold"
_NUMBER = "it is {}, which the database's numbers cannot hold"
_FIRST, _LAST = date(1, 1, 1), date(9999, 12, 31)
_DAWN, _DUSK = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)

_pc: Any = pyarrow.compute  # its stubs know scalars and arrays apart, and no function of both

Place = tuple[int, int]


def sifted(chunk: Chunk, road: Road, fetch: Fetch) -> Chunk:
    """The chunk without the records whose values the database cannot hold: those are bad."""
    refused = unfit(chunk.rows, road)
    if chunk.deletes is not None:
        refused += unfit(chunk.deletes, road)
    if not refused:
        return chunk
    topic = next(iter(chunk.seen)).topic
    refused = [replace(one, topic=topic) for one in refused]
    return without(chunk, {(one.partition, one.offset): one for one in fetch(refused)})


def without(chunk: Chunk, bad: Mapping[Place, BadRecord]) -> Chunk:
    """The chunk in which these records are bad, those of them that it has."""
    rows, gone = _left_out(chunk.rows, bad)
    deletes, undone = (None, set[Place]()) if chunk.deletes is None else _left_out(chunk.deletes, bad)
    if not gone and not undone:
        return chunk
    seen: dict[SliceKey, Seen] = {}
    for key, part in chunk.seen.items():
        count, deleted = _inside(key, gone), _inside(key, undone)
        seen[key] = replace(part, bad=part.bad + count + deleted, deleted=part.deleted - deleted)
    more = tuple(bad[place] for place in sorted(gone | undone))
    return replace(chunk, rows=rows, deletes=deletes, seen=seen, bad=(*chunk.bad, *more))


def unfit(rows: pa.Table, road: Road) -> list[Refused]:
    """The records that have a value which the database cannot hold, each once, with the first reason."""
    reasons: dict[int, str] = {}
    for name in rows.column_names:
        start = 0
        parts: list[Any] = cast("list[Any]", rows.column(name).chunks)
        for part in parts:
            for number, reason in _unfit(part, road.misfits):
                reasons.setdefault(start + number, f"{name}: {reason}")
            start += len(part)
    found: dict[Place, Refused] = {}
    for number, reason in sorted(reasons.items()):
        place = (rows.column(PARTITION)[number].as_py(), rows.column(OFFSET)[number].as_py())
        found.setdefault(place, Refused(*place, reason))
    return list(found.values())


def _left_out(rows: pa.Table, bad: Collection[Place]) -> tuple[pa.Table, set[Place]]:
    offsets: Any = np.asarray(rows.column(OFFSET))
    # By offset alone first: pairs of Python numbers for all rows of a chunk would take a second.
    near = np.flatnonzero(np.isin(offsets, [offset for _, offset in bad]))
    partitions: Any = np.asarray(rows.column(PARTITION))
    gone = [number for number in near if (int(partitions[number]), int(offsets[number])) in bad]
    if not gone:
        return rows, set()
    keep = np.ones(rows.num_rows, dtype=bool)
    keep[gone] = False
    return rows.filter(pa.array(keep)), {(int(partitions[number]), int(offsets[number])) for number in gone}


def _inside(key: SliceKey, places: Iterable[Place]) -> int:
    return sum(partition == key.partition and key.start <= offset < key.end for partition, offset in places)


def _unfit(column: Any, misfits: Collection[str]) -> Generator[tuple[int, str]]:
    kind = column.type
    if _spoiled(column):
        for number in range(len(column)):
            # A copy: a slice of nested values still has all of their text behind it.
            if _spoiled(column.take(pa.array([number]))):
                yield number, _ENCODING
        return
    if pa.types.is_nested(kind):
        if any(_doubtful(leaf, misfits) for leaf in _leaves(column)):
            for number, value in enumerate(column):
                reason = None if not value.is_valid else _unfit_json(value, misfits)
                if reason:
                    yield number, reason
        return
    yield from _where(_outside(column), _YEARS)
    if pa.types.is_floating(kind):
        for name, test in (("nan", _pc.is_nan), ("inf", _pc.is_inf)):
            if name in misfits:
                yield from _where(test(column), _NUMBER.format(name.replace("nan", "NaN").replace("inf", "infinite")))
    if "nul" in misfits and _is_text(kind):
        yield from _where(_nuls(column), _NUL)


def _where(mask: Any, reason: str) -> list[tuple[int, str]]:
    if mask is None or not _pc.any(mask).as_py():
        return []
    return [(number, reason) for number in _pc.indices_nonzero(mask).to_pylist()]


def _spoiled(column: Any) -> bool:
    """Whether text in it is not UTF-8: Spark's cast from bytes takes them as they come."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return False


def _outside(column: Any) -> Any:
    """Where a day or a time is one that Python, and most databases, do not know."""
    kind = column.type
    if pa.types.is_date(kind):
        first, last, values = _FIRST, _LAST, column.cast(pa.date32())
    elif pa.types.is_timestamp(kind):
        first, last, values = _DAWN, _DUSK, column.cast(pa.timestamp("us", kind.tz)).view(pa.timestamp("us"))
    else:
        return None
    return _pc.or_(_pc.less(values, pa.scalar(first, values.type)), _pc.greater(values, pa.scalar(last, values.type)))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _nuls(column: Any) -> Any:
    """Where a text has a NUL; None where there is none at all: one look at all bytes costs a tenth of one at each."""
    _, places, text = column.buffers()
    if not len(column) or text is None:
        return None
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    starts: Any = np.frombuffer(places, dtype=width)[column.offset :]
    written = np.frombuffer(text, dtype=np.uint8)[starts[0] : starts[len(column)]]
    if not len(written) or written.min() > 0:
        return None
    return _pc.match_substring(column, "\0")


def _leaves(column: Any) -> Generator[Any]:
    """All plain values inside of a nested column, those of NULLs, too."""
    kind = column.type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _leaves(column.field(number))
    elif pa.types.is_map(kind):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif pa.types.is_nested(kind):
        yield from _leaves(column.values)
    else:
        yield column


def _doubtful(leaf: Any, misfits: Collection[str]) -> bool:
    kind = leaf.type
    mask = _outside(leaf)
    if pa.types.is_floating(kind):
        mask = _pc.invert(_pc.is_finite(leaf))
    elif "nul" in misfits and _is_text(kind):
        mask = _nuls(leaf)
    return mask is not None and bool(_pc.any(mask).as_py())


def _unfit_json(value: Any, misfits: Collection[str]) -> str | None:
    try:
        plain = value.as_py()
    except (OverflowError, ValueError):
        return f"in it, {_YEARS.removeprefix('it ')}: a day or a time"
    try:
        json.dumps(plain, allow_nan=False, default=str)
    except ValueError:
        return "in it is NaN or an infinite number, and JSON has neither"
    return _NUL.replace("it has", "in it is") if "nul" in misfits and "\\u0000" in _escapes(json_text(plain)) else None


def _escapes(text: str) -> str:
    """The JSON without backslashes that stand for themselves."""
    return text.replace("\\\\", "")
