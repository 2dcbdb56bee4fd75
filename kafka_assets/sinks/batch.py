"""What one live transaction commits: the parts of a batch, and the windows that they grow or begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from kafka_assets.errors import KeysUnknown
from kafka_assets.ledger.leases import Lease
from kafka_assets.ledger.owning import Moves
from kafka_assets.ledger.publications import Outcome, Publication
from kafka_assets.ledger.windows import Total, Window, tail
from kafka_assets.records import Chunk, Fetch, Seen
from kafka_assets.sinks.refusals import not_again
from kafka_assets.slices import SliceKey


@dataclass(frozen=True)
class WindowPolicy:
    """When a window is over: its slice then gets its Dagster key, and the next commit begins another."""

    seconds: float = 60
    max_records: int = 500_000

    def is_over(self, window: Window) -> bool:
        return window.age_ms >= self.seconds * 1000 or window.offsets >= self.max_records


@dataclass(frozen=True)
class Batch:
    """What was read since the last commit, decoded; nothing of it changes when the transaction is retried.

    The chunks' keys are the batch's own slices, one for each partition: from the position before its first record
    to the position after its last. What lies between and was not delivered is counted as holes.
    """

    chunks: Sequence[Chunk]
    fetch: Fetch = not_again
    """Gives the bytes of records that the table refuses: they are quarantined."""
    confirm: Callable[[], None] = lambda: None
    """Asks Kafka, after the last record was read, whether the topic is still the same; raises where it is not.

    What was not delivered is a hole: of what expires under it a consumer is told, and never jumps."""


@dataclass(frozen=True)
class Committed:
    """What one partition's part of a batch came to."""

    key: SliceKey
    outcome: Outcome


@dataclass
class Part:
    """One partition's part of a batch, in one transaction."""

    lease: Lease
    key: SliceKey
    seen: Seen
    window: Window | None
    """The window that it grows."""
    over: Window | None
    """The window that it closes: it begins another."""
    publication: Publication
    before: Total = field(default_factory=Total)
    """What the window has had so far."""


def parts_of(
    connection: Connection, moves: Moves, chunks: Sequence[Chunk], *, asset: str, policy: WindowPolicy
) -> dict[SliceKey, Part]:
    """A batch's parts, each with the window at its start, by plain reads: what is locked later is read again."""
    parts: dict[SliceKey, Part] = {}
    for lease, (start, end) in moves.items():
        key = SliceKey(lease.source.topic, lease.source.incarnation, lease.partition, start, end)
        found = tail(connection, asset=asset, source_id=lease.source.id, partition=lease.partition, position=start)
        over = found is not None and policy.is_over(found)
        parts[key] = Part(
            lease=lease,
            key=key,
            seen=sum((chunk.seen.get(key, Seen()) for chunk in chunks), Seen()),
            window=None if over else found,
            over=found if over else None,
            publication=_provisional(lease, key, asset=asset),
            before=Total() if over or found is None else found.total,
        )
    return parts


def moves_of(leases: Iterable[Lease], chunks: Iterable[Chunk]) -> Moves:
    """By partition from where to where the batch goes."""
    mine = {(lease.source.topic, lease.source.incarnation, lease.partition): lease for lease in leases}
    moves: dict[Lease, tuple[int, int]] = {}
    for key in {key for chunk in chunks for key in chunk.seen}:
        lease = mine.get((key.topic, key.incarnation, key.partition))
        if lease is None or moves.setdefault(lease, (key.start, key.end)) != (key.start, key.end):
            raise KeysUnknown(
                f"a batch of {key} cannot be committed",
                why="no lease of its partition was given" if lease is None else "it has two parts of one partition",
                cure="give the lease of each partition, and one range of each",
            )
    return moves


def _provisional(lease: Lease, key: SliceKey, *, asset: str) -> Publication:
    """What rows are inserted for before their window is locked; its ids are known then."""
    return Publication(
        id=0,
        asset=asset,
        slice_id=0,
        source_id=lease.source.id,
        key=key,
        topic_id=lease.source.topic_id,
        kind="normal",
        is_open=True,
        state="planned",
        committed_attempt=None,
        records_read=0,
    )
