"""A mailbox of this process: what tasks of Spark's on this machine have made waits here to be claimed by its name."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from kafka_assets.decode.packets import PACKETS
from kafka_assets.decode.post import HEAD, MOST_BYTES, PART, PATIENCE, WORD_BYTES, YES, Address, proof
from kafka_assets.errors import RecordsChanged

UNITS = 2
"""So many wait here at a time, of one task each; for the next one there is no room."""
MOST_PACKETS = 1 << 20


class Mailbox:
    """The mailbox of one query. What nobody claims goes with it.

    A task gives its packets under a name of its own, and its name to Spark. Whoever reads the query's results takes
    what is there under the names that Spark tells: those of tasks that have succeeded. So a task that is tried again,
    or of which two run at a time, is taken once, as whatever comes through Spark itself is.
    """

    def __init__(self) -> None:
        self.address: Address | None = None
        """For tasks; None where this system has no such sockets: Spark gets all of it then."""
        self._word = secrets.token_bytes(WORD_BYTES)
        self._units: dict[bytes, pa.Table] = {}
        self._room = threading.Semaphore(UNITS)
        self._closed = threading.Event()
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, name="mailbox", daemon=True)
        path = f"kafka_assets-{os.getpid()}-{secrets.token_hex(8)}"
        try:
            # An abstract name, which Linux has: it is no file, which somebody who is killed would leave behind.
            self._line.bind(f"\0{path}")
        except OSError:
            return
        self._line.listen(64)
        self.address = (path, self._word)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._room.release()
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)  # whoever waits for the next sender hears of it
        if self.address is not None:
            self._thread.join()
        self._line.close()
        self._units.clear()

    def claimed(self, name: bytes) -> pa.Table:
        """The packets under this name, which makes room for others; raises `RecordsChanged` where there are none."""
        unit = self._units.pop(name, None)
        if unit is None:
            raise RecordsChanged(
                "what a task of Spark's had made for this process is not here",
                why="this process had said that it took it, and has it no more: another try of the query's had it",
                cure="nothing: the slice is asked for again",
            )
        self._room.release()
        return unit

    def _serve(self) -> None:
        while self._room.acquire() and not self._closed.is_set():
            try:
                line, _ = self._line.accept()
            except OSError:
                # Closed; or this process has too many open files, for a while.
                self._room.release()
                if self._closed.wait(0.1):
                    return
                continue
            with line:
                kept = self._kept(line)
            if not kept:
                self._room.release()

    def _kept(self, line: socket.socket) -> bool:
        """Take what this sender has, if it is ours and stays until the end."""
        with suppress(OSError):
            # All of it in time: who is no task may give a byte now and then, and meanwhile no task is heard.
            known, name, count = HEAD.unpack(_received(line, HEAD.size, until=time.monotonic() + PATIENCE))
            if not hmac.compare_digest(known, proof(self._word, name, of="sender")) or count > MOST_PACKETS:
                return False
            line.settimeout(PATIENCE)
            parts = np.frombuffer(_received(line, count * PART.size), dtype=[("kind", "<i4"), ("bytes", "<i8")])
            ends = np.cumsum(parts["bytes"])
            if count and (parts["bytes"].min() < 0 or ends[-1] > MOST_BYTES):
                return False
            line.sendall(proof(self._word, name, of="mailbox"))
            data = _received(line, int(ends[-1]) if count else 0)
            self._units[name] = _table(parts["kind"], ends, data)
            try:
                line.sendall(YES)
            except OSError:  # the sender waits no more: Spark has them
                del self._units[name]
                return False
            return True
        return False


def _received(line: socket.socket, count: int, *, until: float | None = None) -> Any:
    """So many bytes, in memory of Arrow's; raises OSError where fewer come, or not by then."""
    buffer: Any = pa.allocate_buffer(count)
    view = memoryview(buffer).cast("B")
    while view:
        if until is not None:
            line.settimeout(max(0.001, until - time.monotonic()))
        if not (got := line.recv_into(view)):
            raise ConnectionError("the sender went away")
        view = view[got:]
    return buffer


def _table(kinds: Any, ends: Any, data: Any) -> pa.Table:
    places: Any = pa.array(np.concatenate([[0], ends]), pa.int32())
    _, offsets = places.buffers()
    columns: list[Any] = [
        pa.array(kinds, pa.int32()),
        pa.Array.from_buffers(pa.binary(), len(kinds), [None, offsets, data]),
    ]
    return pa.Table.from_arrays(columns, schema=PACKETS)
