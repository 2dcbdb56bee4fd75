"""PyMySQL's connection, with what it leaves to trust: files are never sent, and a mute server is not waited for.

In MySQL's protocol a server may answer any statement with the name of a file that the client shall send. Here only
`load` sends anything, once for its own statement, and what it sends never was a file.
"""

from __future__ import annotations

import io
import socket
from typing import Any, cast

from pymysql import connections
from pymysql.constants import COMMAND, CR
from pymysql.err import MySQLError, OperationalError

SILENT_SECONDS = 30
"""How long a statement may go without an answer before its server is asked, on another connection, whether it lives."""
FILE_REFUSED = 2068
"""MySQL's own number for a client that does not send the file that it is asked for."""
_FILE = "kafka_assets"
LOADED = f"'{_FILE}'"
"""What `MySQLConnection.load` wants in its statement, after LOAD DATA LOCAL INFILE: there is no such file."""
_PIECE = 65536
_OWN_NUMBERS = range(2000, 3000)
"""The client's errors: nobody answered."""

_Driver: Any = connections.Connection
"""Without its types, which know nothing of what is overridden here."""


class MySQLConnection(_Driver):
    """A connection that only `open_connection` makes: it keeps what it was made with, to ask a second time."""

    _given: dict[str, Any] | None = None

    def load(self, statement: str, data: memoryview) -> bytes:
        """Carry out a LOAD DATA LOCAL of `LOADED`, with these bytes for its file; returns the server's account."""
        self._execute_command(COMMAND.COM_QUERY, statement)
        packet = self._read_packet()
        if packet.is_load_local_packet():
            if (name := packet.get_all_data()[1:]) != _FILE.encode():
                raise self._refused(f"the file {name.decode(errors='replace')!r}")
            for start in range(0, len(data), _PIECE):
                self.write_packet(data[start : start + _PIECE])
            self.write_packet(b"")
            packet = self._read_packet()
        result: Any = connections.MySQLResult(self)
        result._read_ok_packet(packet)
        self.server_status = result.server_status
        return result.message or b""

    def listen(self, given: dict[str, Any]) -> None:
        """From now on an answer is waited for as long as the server lives."""
        self._given = given
        self._read_timeout = self._write_timeout = SILENT_SECONDS
        self._rfile.close()
        self._rfile = io.BufferedReader(_Patient(self))

    def lives(self) -> bool:
        """Whether the server still answers at all, though it were with a refusal."""
        if self._given is None:
            return False
        try:
            _Driver(**{**self._given, "init_command": None}).close()
        except MySQLError as error:
            return not (error.args and error.args[0] in _OWN_NUMBERS)
        return True

    def _read_query_result(self, unbuffered: bool = False) -> int:
        try:
            return _Driver._read_query_result(self, unbuffered)
        except RuntimeError as error:  # the driver's word for a request for a file; `load` comes not this way
            raise self._refused("a file") from error

    def _write_bytes(self, data: bytes) -> None:
        sock = cast(socket.socket, self._sock)
        if sock.gettimeout() != self._write_timeout:
            sock.settimeout(self._write_timeout)
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[sock.send(rest) :]
                except TimeoutError:
                    if not self.lives():
                        raise
        except OSError as error:
            self._force_close()
            raise OperationalError(CR.CR_SERVER_GONE_ERROR, f"MySQL server has gone away ({error!r})") from error

    def _refused(self, what: str) -> OperationalError:
        self._force_close()
        return OperationalError(FILE_REFUSED, f"the server asked for {what} of this machine; nothing was sent")


def open_connection(given: dict[str, Any]) -> MySQLConnection:
    """A connection; while it is made, each answer is waited for no longer than `read_timeout` says."""
    made = MySQLConnection(**given)
    made.listen(given)
    return made


class _Patient(io.RawIOBase):
    """What the server sends; after each time of silence it is asked whether it lives."""

    def __init__(self, connection: MySQLConnection) -> None:
        self._connection = connection
        self._sock = cast(socket.socket, connection._sock)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                return self._sock.recv_into(buffer)
            except TimeoutError:
                if not self._connection.lives():
                    raise
