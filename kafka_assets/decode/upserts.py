"""Records of an upsert stream that become no row of their own: those that delete a key, and those that have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from kafka_assets.decode.codes import NO_KEY
from kafka_assets.decode.contract import Reason, fields_of, reason
from kafka_assets.decode.names import OFFSET, PARTITION, TIMESTAMP
from kafka_assets.decode.tombstones import NO_TIME, Tombstones

pc: Any = pyarrow.compute

STAMP = pa.timestamp("us", "UTC")


class Deletes:
    """What the records without a value delete."""

    def __init__(self, landed: pa.Schema, needed: Sequence[str], *, whole_key: str | None) -> None:
        """`needed` are the table's key and the column of its order, in `landed`; `whole_key` as in `Tombstones`."""
        self._timed = TIMESTAMP in needed
        self._tombstones = Tombstones(landed, [name for name in needed if name != TIMESTAMP], whole_key=whole_key)
        told = {one.name: one for one in fields_of(self._tombstones.schema)}
        beside = {
            TIMESTAMP: pa.field(TIMESTAMP, STAMP),
            PARTITION: pa.field(PARTITION, pa.int32()),
            OFFSET: pa.field(OFFSET, pa.int64()),
        }
        names = dict.fromkeys([*needed, PARTITION, OFFSET])
        self.schema = pa.schema([told.get(name) or beside[name] for name in names])
        """The key, the order and the place of each record that deletes."""

    def read(self, keys: Any, stamps: Any, partitions: Any, offsets: Any) -> tuple[pa.Table, dict[int, Reason]]:
        """A row for each record that deletes, and the reason for the others, by their place among these."""
        count = len(keys)
        refused = dict[int, Reason]()
        if self._timed and stamps.null_count:
            refused = dict.fromkeys(np.flatnonzero(_flags(pc.is_null(stamps))).tolist(), NO_TIME)
        timed = np.delete(np.arange(count), list(refused))
        found, untold = self._tombstones.read(keys.take(pa.array(timed)))
        refused |= {int(timed[at]): why for at, why in untold.items()}
        told = pa.array(np.delete(np.arange(count), list(refused)), pa.int64())
        beside = {TIMESTAMP: stamps, PARTITION: partitions, OFFSET: offsets}
        columns: list[Any] = [
            found.column(name) if name in found.column_names else beside[name].take(told) for name in self.schema.names
        ]
        return pa.Table.from_arrays(columns, schema=self.schema), refused


def keyless(rows: pa.Table, needed: Sequence[str]) -> tuple[np.ndarray[Any, Any], list[Reason]]:
    """Which rows have no value in a column of their key or order, and why for each of them."""
    # Asked for what is not there, and not for the values: a timestamp may be one that Python does not have.
    nulls = {name: _flags(pc.is_null(rows.column(name))) for name in needed if rows.column(name).null_count}
    missing = np.zeros(rows.num_rows, dtype=np.bool_)
    for flags in nulls.values():
        missing |= flags
    reasons: list[Reason] = []
    for at in np.flatnonzero(missing).tolist():
        lacking = ", ".join(name for name, flags in nulls.items() if flags[at])
        reasons.append(reason(NO_KEY, f"the row has no value in {lacking}, its key or order", lacking))
    return missing, reasons


def _flags(flags: Any) -> np.ndarray[Any, Any]:
    return np.asarray(flags.to_numpy(zero_copy_only=False) if isinstance(flags, pa.Array) else flags, dtype=np.bool_)
