"""What a task has made comes past Spark once, under the name that Spark tells, or by Spark where it cannot."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from kafka_assets.decode import batches, packets, post
from kafka_assets.decode.post import HEAD, NAME_BYTES, PART, PROOF_BYTES, YES, Address, posted, proof
from kafka_assets.errors import RecordsChanged
from kafka_assets.schema import declared
from kafka_assets.spark import mailbox as mailbox_module
from kafka_assets.spark.chunks import Opened, plain_schema, tasks_of
from kafka_assets.spark.mailbox import UNITS, Mailbox
from kafka_assets_tests.unit.test_passes import APPEND, SLICES, note, raw

UNIT: list[tuple[int, Any]] = [(packets.ROWS, pa.py_buffer(b"some rows")), (packets.ENDS, pa.py_buffer(b"end"))]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits in vain does so for a moment."""
    monkeypatch.setattr(post, "PATIENCE", 0.1)
    monkeypatch.setattr(post, "ROOM_PATIENCE", 0.1)
    monkeypatch.setattr(mailbox_module, "PATIENCE", 0.1)


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as found:
        yield found


def _put(mailbox: Mailbox, unit: list[tuple[int, Any]] = UNIT) -> bytes | None:
    return posted(_address(mailbox), unit)


def _address(mailbox: Mailbox) -> Address:
    assert mailbox.address is not None
    return mailbox.address


def _put_in_time(mailbox: Mailbox) -> bytes:
    """What is put when there is room, or is in a moment."""
    until = time.monotonic() + 20
    while (name := _put(mailbox)) is None:
        assert time.monotonic() < until
    return name


def _made(mailbox: Address | None, *given: Any) -> list[Any]:
    """What a task gives Spark for these batches."""
    schema = declared(APPEND.schema_, "json")
    places = [(one.partition, one.start, one.end) for one in SLICES]
    carried = [name for name in plain_schema(APPEND).names if name.startswith("kafka_")]
    asked = (None, "json", carried, [], places, None, None)
    return [
        *(batches.landed(given, schema, *asked) if mailbox is None else batches.put(given, schema, mailbox, *asked))
    ]


def _chunks(parts: list[Any], mailbox: Mailbox) -> list[Any]:
    found = [Opened(task, SLICES, rows=plain_schema(APPEND)) for task in tasks_of(parts, mailbox.claimed)]
    return [(one.chunk(), one.ends()) for one in found]


def test_what_a_task_posts_is_what_it_would_give_spark(mailbox: Mailbox) -> None:
    given = [raw([note(0), (b"k", b"{"), note(2)]), raw([note(3)], first=3)]
    by_spark, told = _made(None, *given), _made(mailbox.address, *given)
    assert [part.column(0).to_pylist() for part in told] == [[packets.POSTED]]
    assert _chunks(told, mailbox) == _chunks(by_spark, mailbox)


def test_a_task_without_a_record_posts_nothing(mailbox: Mailbox) -> None:
    assert [part.num_rows for part in _made(mailbox.address)] == [0]


def test_where_there_is_no_room_spark_gets_it_until_something_is_claimed(mailbox: Mailbox) -> None:
    names = [_put_in_time(mailbox) for _ in range(UNITS)]
    assert _put(mailbox) is None
    given = raw([note(0)])
    assert [part.column(0).to_pylist() for part in _made(mailbox.address, given)] == [
        part.column(0).to_pylist() for part in _made(None, given)
    ]
    mailbox.claimed(names[0])
    _put_in_time(mailbox)


def test_of_two_tries_of_a_task_the_one_that_spark_names_is_taken(mailbox: Mailbox) -> None:
    lost, told = (_made(mailbox.address, raw([note(number)])) for number in (1, 2))
    assert [part.column(0).to_pylist() for part in lost] == [[packets.POSTED]]
    [(chunk, _)] = _chunks(told, mailbox)
    assert chunk.rows.column("id").to_pylist() == [2]


def test_what_is_claimed_is_gone(mailbox: Mailbox) -> None:
    name = _put_in_time(mailbox)
    assert mailbox.claimed(name).column(1).to_pylist() == [b"some rows", b"end"]
    for unknown in (name, b"never heard of"):
        with pytest.raises(RecordsChanged, match="is not here"):
            mailbox.claimed(unknown)


def test_what_is_too_large_goes_through_spark(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "MOST_BYTES", 11)
    assert _put(mailbox) is None


def test_a_stranger_leaves_nothing_and_takes_no_room(mailbox: Mailbox) -> None:
    path, word = _address(mailbox)
    name = b"n" * NAME_BYTES
    known = proof(word, name, of="sender")
    head = HEAD.pack(known, name, 1)
    for said in (
        HEAD.pack(b"x" * len(known), name, 1) + PART.pack(0, 1) + b"x",
        HEAD.pack(proof(word, b"another name" + b"." * 4, of="sender"), name, 1) + PART.pack(0, 1) + b"x",
        HEAD.pack(known, name, 2**32 - 1),
        head + PART.pack(0, 2**62),
        head + PART.pack(0, -1),
        head + PART.pack(0, 5) + b"x",  # and nothing more
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
    ):
        for _ in range(UNITS):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(f"\0{path}")
                line.sendall(said)
    _put_in_time(mailbox)
    with pytest.raises(RecordsChanged):
        mailbox.claimed(name)


def test_one_who_stands_still_is_not_waited_for(mailbox: Mailbox) -> None:
    path, word = _address(mailbox)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(f"\0{path}")
        name = b"n" * NAME_BYTES
        line.sendall(HEAD.pack(proof(word, name, of="sender"), name, 1) + PART.pack(0, 5) + b"xyz")
        _put_in_time(mailbox)


def test_a_stranger_who_gives_a_byte_now_and_then_is_not_waited_for() -> None:
    with Mailbox() as mailbox, socket.socket(socket.AF_UNIX) as line:
        line.connect(f"\0{mailbox.address[0]}")
        over = threading.Event()

        def drip() -> None:
            with suppress(OSError):
                while not over.wait(0.05):
                    line.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        time.sleep(0.06)
        begun = time.monotonic()
        _put_in_time(mailbox)
        took = time.monotonic() - begun
        over.set()
        dripping.join()
    assert took < 1


def test_whoever_takes_a_mailbox_s_name_when_it_has_gone_is_given_nothing() -> None:
    with Mailbox() as mailbox:
        address = _address(mailbox)
    heard: list[bytes] = []

    def steal(door: socket.socket) -> None:
        line, _ = door.accept()
        with line:
            heard.append(line.recv(HEAD.size + PART.size * len(UNIT), socket.MSG_WAITALL))
            line.sendall(YES * PROOF_BYTES)
            heard.append(line.recv(1 << 16))

    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"\0{address[0]}")
        door.listen()
        thief = threading.Thread(target=steal, args=[door])
        thief.start()
        assert posted(address, UNIT) is None
        thief.join()
    assert address[1] not in heard[0] and heard[1] == b""


@pytest.mark.slow
def test_a_sender_who_does_not_hear_that_it_was_taken_gives_it_to_spark_alone(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = mailbox_module._received  # pyright: ignore[reportPrivateUsage]

    def slow(line: socket.socket, count: int, **given: Any) -> Any:
        found = taken(line, count, **given)
        if count == sum(len(packet) for _, packet in UNIT):
            time.sleep(0.5)
        return found

    monkeypatch.setattr(mailbox_module, "_received", slow)
    assert _put(mailbox) is None
    monkeypatch.undo()
    for _ in range(UNITS):  # and it takes no room
        _put_in_time(mailbox)


def test_nobody_is_there_any_more() -> None:
    before = threading.active_count()
    with Mailbox() as mailbox:
        _put_in_time(mailbox)
        address = _address(mailbox)
    assert posted(address, UNIT) is None
    assert threading.active_count() == before


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_no_door() -> None:
    program = (
        "from kafka_assets.spark.mailbox import Mailbox\n"
        "import time\nmailbox = Mailbox()\nprint(mailbox.address[0], mailbox.address[1].hex(), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        path, word = process.stdout.readline().split()
        process.kill()
        process.wait()
    assert posted((path, bytes.fromhex(word)), UNIT) is None


def test_where_there_are_no_such_sockets_spark_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: Any) -> None:
        raise OSError("no such address")

    monkeypatch.setattr(mailbox_module.socket, "socket", type("NoSocket", (socket.socket,), {"bind": refused}))
    before = threading.active_count()
    with Mailbox() as mailbox:
        assert (mailbox.address, threading.active_count()) == (None, before)


def test_a_process_with_too_many_open_files_for_a_while_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OSError("too many open files")] * 2

    class Full(socket.socket):
        def accept(self) -> Any:
            if failures:
                raise failures.pop()
            return super().accept()

    monkeypatch.setattr(mailbox_module.socket, "socket", Full)
    with Mailbox() as mailbox:
        _put_in_time(mailbox)
