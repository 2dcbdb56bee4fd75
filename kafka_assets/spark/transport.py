"""How a query's results come to this process: batch by batch, each as soon as its task has succeeded.

Spark's own `toArrow` gives all of them at the end, so whoever asks for much has to hold much.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame

from kafka_assets.spark.reached import reached
from kafka_assets.spark.result_size import let_through


def arriving(frame: DataFrame) -> Generator[pa.RecordBatch]:
    """The rows of the query, in parts; those of one task of Spark's follow each other.

    Of a task that is tried again only what the last try gave is there. Not promised: the order of the tasks; that all
    is well, before the last part was taken. Whoever takes no more of it closes the generator: the query ends then.
    """
    with reached(), let_through(), closing(_connected(frame) if _is_connected(frame) else _classic(frame)) as parts:
        yield from parts


def bounded(parts: Iterable[pa.RecordBatch], schema: pa.Schema, *, room: int) -> Iterator[pa.Table]:
    """The same in tables of these columns, each of about so many bytes at most, or of one row; at least one table."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    given = False
    for part in parts:
        most = max(1, part.num_rows * room // max(1, part.nbytes))
        for some in (one for start in range(0, part.num_rows, most) for one in _halved(part.slice(start, most), room)):
            if waiting and size + some.nbytes > room:
                full, waiting, size, given = [pa.Table.from_batches(waiting).cast(schema)], [], 0, True
                yield full.pop()  # nothing here holds what was given
            waiting.append(some)
            size += some.nbytes
    if waiting or not given:
        full, waiting = [pa.Table.from_batches(waiting).cast(schema) if waiting else schema.empty_table()], []
        yield full.pop()


def _halved(part: pa.RecordBatch, room: int) -> Iterator[pa.RecordBatch]:
    """Its rows in parts that are not far beyond this size: a few of them may be larger than all others."""
    if part.num_rows <= 1 or part.nbytes <= 2 * room:
        yield part
        return
    half = part.num_rows // 2
    yield from _halved(part.slice(0, half), room)
    yield from _halved(part.slice(half), room)


def _is_connected(frame: Any) -> bool:
    return isinstance(frame, ConnectFrame)


def _connected(frame: Any) -> Generator[pa.RecordBatch]:
    client = frame.sparkSession.client
    with closing(client.to_table_as_iterator(frame._plan.to_proto(client), frame._plan.observations)) as found:
        for part in found:
            if isinstance(part, pa.Table):  # before them comes their schema
                yield from part.to_batches()


def _classic(frame: Any) -> Generator[pa.RecordBatch]:
    """As `toArrow` of a classic session does it (4.2.0), which makes a list of them.

    They wait in this process: the thread that writes them is the one by which the session schedules all of its tasks,
    and stands still with all other queries until what it writes is read.
    """
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.util import _load_from_socket  # pyright: ignore[reportPrivateUsage]

    load: Any = _load_from_socket
    waiting: SimpleQueue[pa.RecordBatch | None] = SimpleQueue()
    over = threading.Event()
    port, secret, server = frame._jdf.collectAsArrowToPython()

    def read() -> None:
        try:
            with load((port, secret), ArrowCollectSerializer()) as stream:
                for part in stream:
                    if over.is_set():
                        return
                    if isinstance(part, pa.RecordBatch):  # behind them comes in which order they would be
                        waiting.put(part)
        finally:
            waiting.put(None)

    expected: tuple[type[Exception], ...] = ()
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="arriving") as pool:
            reading = pool.submit(read)
            try:
                while (part := waiting.get()) is not None:
                    yield part
            finally:
                over.set()
            reading.result()
    except GeneratorExit:
        expected = (Exception,)  # the query says that its reader went away
        raise
    finally:
        with suppress(*expected), unwrap_spark_exception():
            server.getResult()
