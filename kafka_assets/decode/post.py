"""What a task has made, given to whoever asked for it by a socket of their machine, past Spark.

Through Spark each byte is copied a dozen times, on its way through a Python worker's pipe, an executor, the driver and
a stream of messages. A task whose machine is another one, or who finds no room, gives it to Spark as ever.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, Literal

Address = tuple[str, bytes]
"""A socket's abstract name, which all users of this machine can see, and the word by which both sides know each other.
"""

WORD_BYTES, NAME_BYTES, PROOF_BYTES = 32, 16, 32
HEAD = struct.Struct(f"<{PROOF_BYTES}s{NAME_BYTES}sI")
"""The sender's proof, a name for what is sent, and how many packets that is."""
PART = struct.Struct("<iq")
"""Of each packet its kind and its length; then, once the other side has given its own proof, all of them follow."""
YES = b"\x01"

MOST_BYTES = 64 << 20
"""What is larger goes through Spark."""
ROOM_PATIENCE = 4.0
"""Seconds in which there must be room. As long as the publisher gets on, waiting leaves the processors to it.

But a task that waits keeps its place, which other queries wait for, and in the end Spark's driver has room.
"""
PATIENCE = 1.0
"""Seconds in which each step must get on once there is room."""


def proof(word: bytes, name: bytes, *, of: Literal["sender", "mailbox"]) -> bytes:
    """That whoever gives it knows the word. When a mailbox has gone, its socket's name is anybody's to take."""
    return hmac.digest(word, of.encode() + name, "sha256")


def posted(address: Address, packets: Sequence[tuple[int, Any]]) -> bytes | None:
    """Give these packets to the mailbox: the name by which they stand there, or None where Spark is to have them.

    Under a name stands what one try of one task made. It counts if Spark gives this name as that task's result.
    """
    if sum(len(packet) for _, packet in packets) > MOST_BYTES:
        return None
    path, word = address
    name = os.urandom(NAME_BYTES)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(ROOM_PATIENCE)
            line.connect(f"\0{path}")
            parts = [PART.pack(kind, len(packet)) for kind, packet in packets]
            line.sendall(b"".join([HEAD.pack(proof(word, name, of="sender"), name, len(packets)), *parts]))
            if not hmac.compare_digest(line.recv(PROOF_BYTES), proof(word, name, of="mailbox")):
                return None
            line.settimeout(PATIENCE)
            for _, packet in packets:
                line.sendall(memoryview(packet))
            return name if line.recv(1) == YES else None
    except OSError:
        return None
