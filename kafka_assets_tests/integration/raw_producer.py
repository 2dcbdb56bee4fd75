"""Records that no client would write, in a batch made by hand: any bytes for a header's name, any timestamp."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_PRODUCE, _VERSION = 0, 3


@dataclass(frozen=True)
class Raw:
    """One record."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_ms: int = 0


def produce_raw(broker: str, topic: str, records: Sequence[Raw], *, partition: int = 0) -> int:
    """Write these as one batch, and say the offset of the first; a RuntimeError with the broker's code if it refuses.

    The broker must be the partition's leader, and speak plain text.
    """
    batch = _batch(records)
    body = struct.pack(">hhi", -1, -1, 10_000)  # no transaction, all replicas, 10 s
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    header = struct.pack(">hhi", _PRODUCE, _VERSION, 1) + _text("by-hand")
    host, port = broker.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=15) as connection:
        connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        answer = _read(connection, struct.unpack(">i", _read(connection, 4))[0])
    _, code, offset = struct.unpack_from(">ihq", answer, 4 + 4 + 2 + len(topic) + 4)
    if code:
        raise RuntimeError(f"the broker refused the batch: code {code}")
    return offset


def _batch(records: Sequence[Raw]) -> bytes:
    first, most = records[0].timestamp_ms, max(record.timestamp_ms for record in records)
    body = b"".join(_record(record, at, first) for at, record in enumerate(records))
    # Attributes, last offset, timestamps, no producer, and the records.
    rest = struct.pack(">hiqqqhii", 0, len(records) - 1, first, most, -1, -1, -1, len(records)) + body
    # No leader's epoch, the format's version, the checksum.
    rest = struct.pack(">ibI", -1, 2, _crc32c(rest)) + rest
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(record: Raw, at: int, first: int) -> bytes:
    body = b"\0" + _varint(record.timestamp_ms - first) + _varint(at) + _bytes(record.key) + _bytes(record.value)
    body += _varint(len(record.headers))
    body += b"".join(_bytes(name) + _bytes(value) for name, value in record.headers)
    return _varint(len(body)) + body


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _varint(number: int) -> bytes:
    zigzag, found = (number << 1) ^ (number >> 63), bytearray()
    zigzag &= 2**64 - 1
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*found, zigzag])


def _table() -> list[int]:
    found: list[int] = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc)
    return found


_TABLE = _table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise RuntimeError("the broker closed the connection: the request is not one it knows")
        found += part
    return found
