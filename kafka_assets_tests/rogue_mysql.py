"""A server that speaks just enough of MySQL's protocol to lie in it: what no real server can be made to do.

It lets everybody in, says what its script says, and keeps all that it was sent.
"""

from __future__ import annotations

import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_CAPABILITIES = 0x00000001 | 0x00000002 | 0x00000008 | 0x00000080 | 0x00000200 | 0x00008000 | 0x00080000
_TLS = 0x00000800
OK = b"\x00\x00\x00\x02\x00\x00\x00"
_EOF = b"\xfe\x00\x00\x02\x00"

Script = Callable[["Client", bytes], bool]
"""Answers a statement in its own way, and says that it has; False leaves it to the server."""


@dataclass
class Rogue:
    """What the server was sent, packet by packet, on all connections."""

    port: int = 0
    sent: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0

    @property
    def url(self) -> str:
        return f"mysql://me:secret@127.0.0.1:{self.port}/d"


class Client:
    """One connection, as the server sees it."""

    def __init__(self, sock: socket.socket, rogue: Rogue) -> None:
        self._sock, self._rogue = sock, rogue
        self._number = 0
        # An answer of two parts would wait for the client's word that it has the first: 40 ms each time.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def packet(self) -> bytes:
        """The next packet that the client sends."""
        header = self._bytes(4)
        length = int.from_bytes(header[:3], "little")
        self._number = header[3] + 1
        body = self._bytes(length)
        self._rogue.sent.append(body)
        return body

    def _bytes(self, count: int) -> bytes:
        """So many and no more: what follows may be TLS."""
        found = b""
        while len(found) < count:
            part = self._sock.recv(count - len(found))
            if not part:
                raise ConnectionError
            found += part
        return found

    def say(self, *bodies: bytes) -> None:
        for body in bodies:
            self._sock.sendall(struct.pack("<I", len(body))[:3] + bytes([self._number % 256]) + body)
            self._number += 1

    def end(self) -> None:
        self._sock.close()

    def take_file(self, name: str) -> bytes:
        """Ask for a file, as an answer to whatever was said; what the client sends of it."""
        self.say(b"\xfb" + name.encode())
        taken = b""
        while part := self.packet():
            taken += part
        self.say(OK)
        return taken

    def row(self, *values: str) -> None:
        """A result of one row."""
        names = [_text("def") + 3 * _text("") + _text(f"c{n}") + _text("") + _SHAPE for n, _ in enumerate(values)]
        self.say(bytes([len(values)]), *names, _EOF, b"".join(map(_text, values)), _EOF)

    def begin(self, tls: ssl.SSLContext | None) -> None:
        salt = b"12345678", b"123456789012"
        able = _CAPABILITIES | (_TLS if tls else 0)
        low, high = struct.pack("<H", able & 0xFFFF), struct.pack("<H", able >> 16)
        hello = b"\x0a8.0.99\0" + struct.pack("<I", 7) + salt[0] + b"\0" + low + b"\x2d\x02\0" + high
        self.say(hello + b"\x15" + bytes(10) + salt[1] + b"\0mysql_native_password\0")
        self.packet()
        if tls is not None:
            self._sock = tls.wrap_socket(self._sock, server_side=True)
            self.packet()
        self.say(OK)


_SHAPE = b"\x0c\x2d\x00\xff\x00\x00\x00\xfd\x00\x00\x00\x00\x00"


def _text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


def _setting(statement: bytes) -> str:
    return "8.0.99" if b"VERSION()" in statement else "READ-COMMITTED" if b"ISOLATION" in statement else "0"


@contextmanager
def rogue(script: Script, *, greets: bool = True, tls: ssl.SSLContext | None = None) -> Iterator[Rogue]:
    """A server on loopback that answers by its script; one that does not greet takes connections, and says nothing."""
    this = Rogue()
    ended = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            this.connections += 1
            if not greets:
                ended.wait(60)
                return
            client = Client(self.request, this)
            try:
                client.begin(tls)
                while True:
                    statement = client.packet()
                    if script(client, statement):
                        continue
                    if statement[1:7].upper() in {b"SELECT", b"SHOW V"}:
                        client.row(_setting(statement.upper()))
                    else:
                        client.say(OK)
            except OSError:
                return
            finally:
                client.end()

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address, daemon_threads = True, True

    with Server(("127.0.0.1", 0), Handler) as server:
        this.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield this
        finally:
            ended.set()
            server.shutdown()
            thread.join()
