"""`produce`: lines of files or of standard input become records."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from kafka_assets.cli.console import err, out, print_json, print_table, report
from kafka_assets.errors import KafkaAssetsError, Permanent, UsageError
from kafka_assets.settings import load_settings

if TYPE_CHECKING:
    from kafka_assets.broker.lines import Line
    from kafka_assets.broker.sending import Sent

STDIN = "-"
SHOW_EVERY = 0.1


def register(app: typer.Typer) -> None:
    app.command()(produce)


def produce(
    topic: Annotated[str, typer.Argument(help="The topic; it must exist.")],
    files: Annotated[list[str] | None, typer.Argument(help="Files, read in their order; `-` or none: stdin.")] = None,
    *,
    format_: Annotated[
        Literal["lines", "json"],
        typer.Option("--format", help="lines: each is a value. json: each is an object with value, key, headers, …"),
    ] = "lines",
    key_separator: Annotated[
        str | None, typer.Option(help="With lines: what stands before it is the key; \\t is a tab.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="This partition, where a line names none.")] = None,
    partitioner: Annotated[
        str, typer.Option(metavar="key|round-robin|random|sticky", help="key is as the Java client does it.")
    ] = "key",
    compression: Annotated[
        str | None, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="How batches are compressed.")
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option(help="One transaction of this id: all lines become visible, or none.")
    ] = None,
    stop_on_first_error: Annotated[
        bool, typer.Option("--stop-on-first-error", help="Keep the order: nothing after a failed line is delivered.")
    ] = False,
    timeout: Annotated[float | None, typer.Option(min=0.1, help="Seconds until a record has failed.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a summary as JSON, and nothing else on stdout.")
    ] = False,
) -> None:
    """Produce lines to a topic, and wait until each is acknowledged; exit with 1 if one is not.

    Ctrl-C and SIGTERM end the reading, and what was read is still delivered; a second Ctrl-C gives that up.
    """
    from kafka_assets.broker.connection import Connection
    from kafka_assets.broker.lines import json_line, plain
    from kafka_assets.broker.producer import Producer
    from kafka_assets.broker.sending import Sent, send_lines
    from kafka_assets.broker.stopping import until_signalled

    if format_ == "json" and key_separator is not None:
        raise UsageError("--key-separator is for lines", cure="with --format json, give each line its key")
    if key_separator == "":
        raise UsageError("--key-separator is empty", cure="give what stands between key and value, or leave it out")
    reading = json_line if format_ == "json" else plain(key_separator and key_separator.replace("\\t", "\t"))
    paths = files or [STDIN]
    size = _size(paths)
    producer = Producer(
        Connection.of(load_settings()),
        key="bytes",
        value="bytes",
        partitioner=partitioner,
        compression=compression,  # pyright: ignore[reportArgumentType] - what does not exist, the producer refuses
        transactional_id=transactional_id,
        stop_on_first_error=stop_on_first_error,
        delivery_timeout=timeout,
    )
    sent, began, trouble, code = Sent(topic), time.monotonic(), None, 1
    with _progress(sent, size) as shown, until_signalled() as until:
        try:
            send_lines(producer, sent, shown(until(_lines(paths))), reading, partition=partition)
        except UsageError:
            raise
        except KafkaAssetsError as error:
            trouble = error
        except KeyboardInterrupt as stopped:
            number = getattr(stopped, "number", signal.SIGINT)
            trouble, code = _stopped(sent, number), 128 + number
    sent.seconds = round(time.monotonic() - began, 3)
    _print(sent, as_json=as_json)
    if trouble is None and sent.failed:
        trouble = _undelivered(sent)
    if trouble is not None:
        report(trouble)
        raise typer.Exit(code)


def _stopped(sent: Sent, number: signal.Signals) -> KafkaAssetsError:
    left = f"{sent.failed:,} of these were not delivered" if sent.failed else "none of these has failed"
    return Permanent(
        f"stopped by {number.name} after {sent.read:,} lines",
        why=left if sent.committed is None else "its transaction was not committed",
        cure=f"{_undelivered(sent).cure}; " * bool(sent.failed)
        + ("go on with the next line" if sent.committed is None else "send all lines again"),
    )


def _undelivered(sent: Sent) -> KafkaAssetsError:
    named = "; ".join(f"{one.where}: {one.why}" for one in sent.failures[:3])
    return Permanent(
        f"{sent.failed:,} of {sent.read:,} lines were not delivered",
        why=named + ("; …" if sent.failed > 3 else ""),
        cure="look whether those that are in doubt are there, correct the others, and send them again; "
        f"--json names the first {len(sent.failures):,}",
    )


def _print(sent: Sent, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(sent))
        return
    if sent.partitions:
        print_table(
            ("partition", "delivered"), [{"partition": place, "delivered": n} for place, n in sent.partitions.items()]
        )
    end = {None: "", True: " · committed", False: " · aborted, none is visible"}[sent.committed]
    out.print(f"{sent.topic}: {sent.delivered:,} of {sent.read:,} lines delivered{end}", highlight=False, markup=False)


def _size(paths: Sequence[str]) -> int | None:
    """Bytes to read, where they are known; a file that cannot be read is bad usage, before anything is sent."""
    for path in paths:
        if path != STDIN and not Path(path).is_file() and not Path(path).is_fifo():
            raise UsageError(f"there is no file {path!r}", cure="name files with one record a line, or - for stdin")
        if path != STDIN and not os.access(path, os.R_OK):
            raise UsageError(f"the file {path!r} cannot be read", cure="allow this user to read it")
    if all(path != STDIN and Path(path).is_file() for path in paths):
        return sum(Path(path).stat().st_size for path in paths)
    return None


def _lines(paths: Sequence[str]) -> Iterator[Line]:
    for path in paths:
        try:
            if path == STDIN:
                yield from _read(sys.stdin.buffer, "stdin")
            else:
                with Path(path).open("rb") as file:
                    yield from _read(file, path)
        except OSError as error:
            raise Permanent(
                f"{path!r} cannot be read on",
                why=str(error),
                cure="what was read before is as the summary says: make the rest readable, and send that",
            ) from error


def _read(file: BinaryIO, name: str) -> Iterator[Line]:
    for number, line in enumerate(file, start=1):
        # The end of a line, of either kind; a carriage return within it is the value's own.
        yield line.removesuffix(b"\n").removesuffix(b"\r"), name, number


class _Shown:
    """Counts what goes by, and moves the bar now and then."""

    def __init__(self, sent: Sent, size: int | None) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._sent = sent
        columns = (TextColumn("producing"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
        self.bar = Progress(*columns, console=err, transient=True)
        self._task = self.bar.add_task("producing", total=size, said="")
        self._at, self._bytes = 0.0, 0

    def __call__(self, lines: Iterator[Line]) -> Iterator[Line]:
        try:
            for line in lines:
                self._bytes += len(line[0]) + 1
                if time.monotonic() - self._at > SHOW_EVERY:
                    self._at = time.monotonic()
                    said = f"{self._sent.read:,} lines"
                    self.bar.update(self._task, completed=self._bytes, said=said)
                yield line
        except KeyboardInterrupt:
            self._wait("; Ctrl-C again to give up")
            raise
        self._wait()

    def _wait(self, more: str = "") -> None:
        said = f"{self._sent.read:,} lines read, waiting for answers{more}"
        self.bar.update(self._task, completed=self._bytes, said=said)


@contextmanager
def _progress(sent: Sent, size: int | None) -> Generator[_Shown]:
    shown = _Shown(sent, size)
    with shown.bar:
        yield shown
