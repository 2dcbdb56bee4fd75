"""How the broker stores a partition: its files, read with Kafka's own DumpLogSegments where they lie."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_assets import devstack
from kafka_assets.devstack import artifacts, fetch
from kafka_assets.devstack.java import find_java
from kafka_assets.errors import ServiceError, TopicMissing, UsageError

KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
DUMPED = (".log", ".index", ".timeindex")
PATIENCE = 120.0


@dataclass(frozen=True)
class Stored:
    """One file of a partition. The name is the first offset that it is about."""

    file: str
    bytes: int
    used: int
    """An index of the segment that is written to is made in its full size at once; so much of it is on the disk."""


@dataclass(frozen=True)
class Batch:
    """Records that were written together: the unit of compression, of checksums and of idempotence."""

    segment: str
    position: int
    size: int
    base_offset: int
    last_offset: int
    records: int
    codec: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    transactional: bool
    control: bool
    crc: int


@dataclass(frozen=True)
class Entry:
    """One entry of an index: where reading begins for this offset, or which offset a time leads to."""

    index: str
    offset: int
    position: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True)
class Dump:
    """A partition on one broker's disk."""

    folder: Path
    files: Sequence[Stored]
    batches: Sequence[Batch]
    entries: Sequence[Entry]


def partition_folder(state: Path, topic: str, partition: int, *, broker: int) -> Path:
    """Where a local broker keeps the partition."""
    known = sorted(int(one.name.removeprefix("kafka-")) for one in devstack.status(state) if one.name[:6] == "kafka-")
    if not known:
        raise ServiceError(
            "no local broker is up", why="the files of a broker elsewhere are not here", cure="run `kafka-assets up`"
        )
    if broker not in known:
        raise UsageError(
            f"there is no local broker {broker}", cure=f"choose among {', '.join(str(one) for one in known)}"
        )
    data = state / f"kafka-{broker}" / "data"
    folder = data / f"{topic}-{partition}"
    if folder.is_dir():
        return folder
    numbers = [one.name.rpartition("-")[2] for one in data.glob(f"{topic}-*") if one.name.rpartition("-")[0] == topic]
    if numbers:
        raise UsageError(
            f"kafka-{broker} keeps no partition {partition} of the topic {topic!r}",
            cure=f"choose among {', '.join(sorted(numbers, key=int))}, or another broker with --broker",
        )
    raise TopicMissing(
        f"kafka-{broker} keeps nothing of the topic {topic!r}",
        why=f"there is no folder {topic}-{partition} in {data}",
        cure="correct the name (`kafka-assets topics list`), or name another broker with --broker",
    )


def dump(folder: Path) -> Dump:
    """The files, and what is in logs and indexes."""
    files = sorted(one for one in folder.iterdir() if one.suffix in KINDS)
    wanted = [one for one in files if one.suffix in DUMPED]
    text = dump_text(wanted)
    return Dump(
        folder,
        [Stored(one.name, one.stat().st_size, one.stat().st_blocks * 512) for one in files],
        batches_of(text),
        entries_of(text),
    )


def dump_text(files: Sequence[Path], *options: str) -> str:
    """What DumpLogSegments prints of these files."""
    jars = fetch.fetch([*artifacts.group("kafka"), *artifacts.group("kafka-tools")])
    # fmt: off
    command = [
        find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars)),
        "org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)),
    ]
    # fmt: on
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        size = sum(one.stat().st_size for one in files)
        raise ServiceError(
            f"Kafka's DumpLogSegments did not end within {PATIENCE:.0f} s",
            why=f"the partition has {size:,} bytes in {len(files)} files, or the machine is very busy",
            cure="look at a smaller partition, or at one file of this one with Kafka's own kafka-dump-log.sh",
        ) from error
    said = done.stdout.decode("utf-8", errors="replace")
    if done.returncode != 0:
        raise ServiceError(
            "Kafka's DumpLogSegments could not read the files",
            why=(done.stderr.decode("utf-8", errors="replace") or said).strip()[-1500:],
            cure="try again: a segment may have been deleted or rolled meanwhile",
        )
    return said


def batches_of(text: str) -> list[Batch]:
    """What it says of logs."""
    return list(_batches(text))


def entries_of(text: str) -> list[Entry]:
    """What it says of indexes."""
    return list(_entries(text))


def _batches(text: str) -> Iterator[Batch]:
    for name, line in _lines(text, ".log"):
        found = dict(re.findall(r"(\w+): (\S+)", line))
        if "baseOffset" not in found:
            continue
        yield Batch(
            segment=name,
            position=int(found["position"]),
            size=int(found["size"]),
            base_offset=int(found["baseOffset"]),
            last_offset=int(found["lastOffset"]),
            records=int(found["count"]),
            codec=found["compresscodec"].lower(),
            producer_id=int(found["producerId"]),
            producer_epoch=int(found["producerEpoch"]),
            base_sequence=int(found["baseSequence"]),
            leader_epoch=int(found["partitionLeaderEpoch"]),
            transactional=found["isTransactional"] == "true",
            control=found["isControl"] == "true",
            crc=int(found["crc"]),
        )


def _entries(text: str) -> Iterator[Entry]:
    for name, line in _lines(text, ".index"):
        # An index that holds nothing yet is full of zeros, and is printed as one entry of them.
        if (found := re.match(r"offset: (\d+) position: (\d+)$", line)) and int(found[2]) > 0:
            yield Entry(name, int(found[1]), position=int(found[2]))
    for name, line in _lines(text, ".timeindex"):
        if (found := re.match(r"timestamp: (-?\d+) offset: (\d+)$", line)) and int(found[1]) > 0:
            yield Entry(name, int(found[2]), timestamp=int(found[1]))


def _lines(text: str, suffix: str) -> Iterator[tuple[str, str]]:
    """The lines about files of one kind, each with its file's name."""
    name = ""
    for line in text.splitlines():
        if line.startswith("Dumping "):
            name = Path(line.removeprefix("Dumping ")).name
        elif name.endswith(suffix):
            yield name, line.strip()
