"""How the results of a pass travel: rows of a kind and its bytes, which are a batch of Arrow's without its schema.

Whoever opens them knows the schemas: those of rows and of deletes are the stream's, the others stand here. A query
that gives these has the same two columns whatever its stream declares, and the bytes cross Spark as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kafka_assets.decode.passage import HEADER_TYPE

ROWS, BAD, DELETES, COUNTS, ENDS, POSTED = range(6)
"""The kinds. POSTED is a name: all packets of the task stand under it in the mailbox of whoever asked."""

KIND, PACKET = "_kafka_kind", "_kafka_packet"
PACKETS = pa.schema([pa.field(KIND, pa.int32()), pa.field(PACKET, pa.binary())])

BAD_RECORDS = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("code", pa.string()),
        pa.field("field", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADER_TYPE),
        pa.field("timestamp", pa.int64()),
    ]
)
SLICE_COUNTS = pa.schema(
    [
        pa.field("slice", pa.int32()),
        pa.field("read", pa.int64()),
        pa.field("bad", pa.int64()),
        pa.field("deleted", pa.int64()),
        pa.field("bytes_read", pa.int64()),
        pa.field("first_timestamp", pa.int64()),
        pa.field("last_timestamp", pa.int64()),
        pa.field("fingerprint", pa.int64()),
    ]
)
"""What one task saw of a slice, by the slice's number."""
TASK_ENDS = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("first", pa.int64()),
        pa.field("next", pa.int64()),
        pa.field("stopped", pa.bool_()),
    ]
)
"""Of each partition the first record that a task had, where it ended, and whether it left what comes after."""

PACKET_BYTES = 4 << 20
"""Of about so many bytes a packet is made, if its records are not larger: a message of Spark Connect has a limit."""


def packed(kind: int, table: Any) -> Iterator[tuple[int, Any]]:
    """A table as packets of this kind."""
    if not table.num_rows:
        return
    [batch] = (table if isinstance(table, pa.Table) else pa.Table.from_batches([table])).combine_chunks().to_batches()
    at_once = max(1, batch.num_rows * PACKET_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, at_once):
        yield kind, batch.slice(start, at_once).serialize()


def opened(packet: Any, schema: pa.Schema) -> Any:
    """The batch in a packet, a scalar; its values stay where they are."""
    return pa.ipc.read_record_batch(packet.as_buffer(), schema)


def packets(found: list[tuple[int, Any]]) -> Any:
    """Packets as a batch of `PACKETS`."""
    kinds: Any = pa.array([kind for kind, _ in found], pa.int32())
    data: Any = pa.array([bytes(packet) for _, packet in found], pa.binary())
    return pa.RecordBatch.from_arrays([kinds, data], schema=PACKETS)
