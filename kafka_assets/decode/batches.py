"""Batches of records as Spark's Kafka source gives them, decoded where they are: what its Python workers run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_assets.decode.contract import Reason
from kafka_assets.decode.decoder import decoder
from kafka_assets.decode.tombstones import Tombstones

BAD = "_kafka_bad"
REASON = "reason"
TOLD = "_kafka_told_"
"""Before the names of the columns that a key tells: what is beside them may have the same ones."""


def decoded(batches: Iterable[Any], declared: pa.Schema, format: str, beside: Sequence[str]) -> Iterator[Any]:
    """Each record's values, NULL where it is bad, what else is known of it, and why it is bad."""
    read = decoder(declared, format)
    names = [*read.schema.names, *beside, BAD]
    for batch in batches:
        found = read.read(batch.column("value"))
        columns = _columns(found.rows)
        if found.bad:
            places = _places(batch.num_rows, found.bad)
            columns = [column.take(places) for column in columns]
        columns += [batch.column(name) for name in beside]
        columns.append(_reasons(batch.num_rows, found.bad))
        yield pa.RecordBatch.from_arrays(columns, names=names)


def undecoded(batches: Iterable[Any], declared: pa.Schema, format: str, beside: Sequence[str]) -> Iterator[Any]:
    """What is known of the records that are bad, and why they are."""
    read = decoder(declared, format)
    for batch in batches:
        bad = dict(sorted(read.read(batch.column("value")).bad.items()))
        wrong = batch.take(pa.array(list(bad), pa.int64()))
        reasons = pa.array([reason.words for reason in bad.values()], pa.string())
        yield pa.RecordBatch.from_arrays([*(wrong.column(name) for name in beside), reasons], names=[*beside, REASON])


def deletes(
    batches: Iterable[Any], landed: pa.Schema, told: Sequence[str], whole_key: str | None, beside: Sequence[str]
) -> Iterator[Any]:
    """Of records without a value the columns that their key tells, what else is known of them, and why it does not."""
    read = Tombstones(landed, told, whole_key=whole_key)
    names = [*(TOLD + name for name in read.schema.names), *beside, REASON]
    for batch in batches:
        rows, refused = read.read(batch.column("key"))
        places = _places(batch.num_rows, refused)
        columns = [column.take(places) for column in _columns(rows)]
        columns += [batch.column(name) for name in beside]
        columns.append(_reasons(batch.num_rows, refused))
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _columns(rows: pa.Table) -> list[Any]:
    """Each in one piece: a batch is some megabytes."""
    columns: list[Any] = rows.columns
    return [column.combine_chunks() for column in columns]


def _places(count: int, without: Iterable[int]) -> Any:
    """For each record the number of its row; NULL for those that have none."""
    none = np.zeros(count, dtype=np.bool_)
    none[list(without)] = True
    return pa.array(np.cumsum(~none) - 1, pa.int64(), mask=none)


def _reasons(count: int, bad: dict[int, Reason] | Any) -> Any:
    if not bad:
        return pa.nulls(count, pa.string())
    words: list[str | None] = [None] * count
    for at, reason in bad.items():
        words[at] = reason.words
    return pa.array(words, pa.string())
