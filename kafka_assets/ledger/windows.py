"""Windows: the slices that live consumers grow with each commit, until they are closed and are as any other.

An open window is the last slice of its partition: whoever plans after it closes it first. It grows, and
is closed, under its publication's lock, so nobody replays what grows, or tells Dagster of a key that no slice has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, Engine, and_, insert, select, true, update

from kafka_assets.errors import LedgerBusy, SliceRefused
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ms, now_ts
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.publications import NOTHING, Outcome, counts_of, inserted, lock_rows
from kafka_assets.records import Seen
from kafka_assets.slices import SliceKey

ATTEMPT = 1
"""The attempt that a window's rows are of."""


@dataclass(frozen=True)
class Total:
    """What a window has come to so far."""

    outcome: Outcome = NOTHING
    duration_ms: int = 0

    @property
    def seen(self) -> Seen:
        return Seen(read=self.outcome.records_read, bad=self.outcome.quarantined)


@dataclass(frozen=True)
class Window:
    """An open window, as one statement saw it."""

    slice_id: int
    publication_id: int
    source_id: int
    partition: int
    start: int
    end: int
    age_ms: int
    total: Total

    @property
    def offsets(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Placed:
    """The slice and publication that a batch is committed with."""

    slice_id: int
    publication_id: int


@dataclass(frozen=True)
class Author:
    """Who commits: what stands in the publications that it writes."""

    asset: str
    run_id: str
    code_version: str


def tail(connection: Connection, *, asset: str, source_id: int, partition: int, position: int) -> Window | None:
    """The open window that ends at this position; read without a lock."""
    s, p = t.slice_.c, t.publication.c
    row = connection.execute(
        select(t.publication, s.created_at, now_ms().label("now"))
        .join_from(t.slice_, t.publication, p.slice_id == s.id)
        .where(
            s.end_offset == position,
            s.source_id == source_id,
            s.partition == partition,
            s.is_open,
            p.asset == asset,
        )
    ).first()
    if row is None:
        return None
    return Window(
        slice_id=row.slice_id,
        publication_id=row.id,
        source_id=source_id,
        partition=partition,
        start=row.start_offset,
        end=row.end_offset,
        age_ms=row.now - int(row.created_at.timestamp() * 1000),
        total=_total(row),
    )


def lock_window(connection: Connection, window: Window) -> Total:
    """Lock a window's publication, and read again what it has; busy, where it was closed meanwhile."""
    s, p = t.slice_.c, t.publication.c
    lock_rows(connection, [window.publication_id])
    row = connection.execute(
        select(t.publication, s.is_open, s.end_offset.label("reached"))
        .join_from(t.publication, t.slice_, p.slice_id == s.id)
        .where(p.id == window.publication_id)
    ).one()
    if not row.is_open or row.reached != window.end:
        raise LedgerBusy(
            f"the window [{window.start}, {window.end}) of partition {window.partition} was closed at this moment",
            why=f"it ends at {row.reached}" + ("" if row.is_open else ", and does not grow any more"),
            cure="nothing: the whole transaction is tried again, and begins another window",
        )
    return _total(row)


def grow(connection: Connection, window: Window, *, end: int) -> Placed:
    """Move a window's end on; the caller holds its publication's lock and has moved planned_through.

    Its publication has no end until `mark` writes it, with the counts that are checked against it.
    """
    none = {"state": "planned", "committed_attempt": None, "committed_at": None, "end_offset": None}
    connection.execute(update(t.publication).where(t.publication.c.id == window.publication_id).values(**none))
    connection.execute(update(t.slice_).where(t.slice_.c.id == window.slice_id).values(end_offset=end))
    return Placed(window.slice_id, window.publication_id)


def begin(connection: Connection, place: tuple[int, int], *, start: int, end: int, by: Author) -> Placed:
    """A new window; the caller has moved planned_through from its start to its end."""
    source_id, partition = place
    g = t.progress.c
    origin = connection.scalar(select(g.origin).where(g.source_id == source_id, g.partition == partition))
    first = start == origin
    made = connection.execute(
        insert(t.slice_).values(
            source_id=source_id,
            partition=partition,
            start_offset=start,
            end_offset=end,
            prior_end=None if first else start,
            is_first=1 if first else None,
            is_open=True,
            kind="normal",
            created_at=now_ts(),
        )
    )
    slice_id = inserted(made)
    published = connection.execute(
        insert(t.publication).values(slice_id=slice_id, start_offset=start, end_offset=end, asset=by.asset)
    )
    number = inserted(published)
    # The window is the first attempt at its slice: a replay is the second, and can be told from it.
    connection.execute(insert(t.claim).values(publication_id=number, attempt=ATTEMPT, run_id=by.run_id))
    return Placed(slice_id, number)


def mark(
    connection: Connection, publication_id: int, *, end: int, by: Author, total: Outcome, duration_ms: int
) -> None:
    """Write what a window has come to, with its end; the caller holds its lock."""
    connection.execute(
        update(t.publication)
        .where(t.publication.c.id == publication_id)
        .values(
            end_offset=end,
            state="committed",
            committed_attempt=ATTEMPT,
            committed_at=now_ts(),
            run_id=by.run_id,
            code_version=by.code_version,
            duration_ms=duration_ms,
            **counts_of(total),
        )
    )


def close_tails(connection: Connection, places: Iterable[tuple[int, int]]) -> list[SliceKey]:
    """Close the open windows at the end of these partitions, under their publications' locks; their keys."""
    return close_windows(connection, [one for place in sorted(places) for one in tail_of(connection, place)])


def tail_of(connection: Connection, place: tuple[int, int]) -> list[tuple[int, int]]:
    """The open window at the end of a partition, if there is one: its slice and publication."""
    return [(one.id, one.publication_id) for one in _open_tails(connection, _at(place))]


def close_windows(connection: Connection, windows: Sequence[tuple[int, int]]) -> list[SliceKey]:
    """Close these windows, each a slice and its publication; the keys of those that were open."""
    s, src = t.slice_.c, t.source.c
    lock_rows(connection, [publication for _, publication in windows])
    closed: list[SliceKey] = []
    for slice_id, _ in sorted(windows):
        done = connection.execute(update(t.slice_).where(s.id == slice_id, s.is_open).values(is_open=False))
        if done.rowcount == 1:
            row = connection.execute(
                select(src.topic, src.incarnation, s.partition, s.start_offset, s.end_offset)
                .join_from(t.slice_, t.source, s.source_id == src.id)
                .where(s.id == slice_id)
            ).one()
            closed.append(SliceKey(*row))
    return closed


def close_over(engine: Engine, places: Iterable[tuple[int, int]], *, seconds: float) -> list[SliceKey]:
    """Close the windows at the end of these partitions that are as old; their keys."""
    with read(engine) as connection:
        found = [one for place in sorted(places) for one in _open_tails(connection, _at(place))]
        now = connection.scalar(select(now_ms())) or 0
    over = [(one.id, one.publication_id) for one in found if now - one.created_at.timestamp() * 1000 >= seconds * 1000]
    if not over:
        return []
    with write(engine) as connection:
        return close_windows(connection, over)


def close_left(engine: Engine) -> list[SliceKey]:
    """Close every window whose owner's lease has ended, or that nobody owns; their keys.

    What somebody grows or replays at this moment is left for the next time: nobody is waited for.
    """
    g = t.progress.c
    with read(engine) as connection:
        ended = g.owner_lease_until.is_(None) | (g.owner_lease_until <= now_ms())
        left = [(row.id, row.publication_id) for row in _open_tails(connection, ended)]
    closed: list[SliceKey] = []
    for window in left:
        with suppress(LedgerBusy), write(engine) as connection:
            lock_rows(connection, [window[1]], nowait=True)
            closed += close_windows(connection, [window])
    return closed


def open_windows(connection: Connection, source_id: int) -> list[tuple[int, int]]:
    """The open windows of a source, each a slice and its publication."""
    return [(one.id, one.publication_id) for one in _open_tails(connection, t.progress.c.source_id == source_id)]


def open_publications(connection: Connection) -> list[int]:
    """The publications of all open windows: at most one for each partition."""
    return [row.publication_id for row in _open_tails(connection, true())]


def closed_when(connection: Connection, slice_id: int) -> str:
    """Who grows an open window, and when it will be as any other slice: for whoever has to wait for that."""
    g, s = t.progress.c, t.slice_.c
    row = connection.execute(
        select(g.owner, (g.owner_lease_until - now_ms()).label("held_ms"))
        .join_from(t.slice_, t.progress, and_(s.source_id == g.source_id, s.partition == g.partition))
        .where(s.id == slice_id)
    ).one()
    if row.owner is None or row.held_ms <= 0:
        return "nobody grows it any more: the next tick of the sensor closes it (`kafka-assets plan`)"
    return (
        f"{row.owner} grows it: it is closed when its time is over, or when that gives the partition back;"
        f" if it died, by the sensor in {row.held_ms / 1000:.0f} s"
    )


def refused(connection: Connection, key: SliceKey, slice_id: int) -> SliceRefused:
    """An open window cannot be landed: it is not known yet what is in it."""
    return SliceRefused(
        f"slice {key} cannot be landed", why="a live consumer is growing it", cure=closed_when(connection, slice_id)
    )


def _open_tails(connection: Connection, which: Any) -> Sequence[Any]:
    """The open windows of the partitions `which`, each found by where its partition's planning ends."""
    g, s, p = t.progress.c, t.slice_.c, t.publication.c
    tail = and_(s.end_offset == g.planned_through, s.source_id == g.source_id, s.partition == g.partition)
    rows = connection.execute(
        select(s.id, s.is_open, s.created_at, p.id.label("publication_id"))
        # Outer, and chosen and sorted here: else SQLite begins at the slices, and reads all of history.
        .outerjoin_from(t.progress, t.slice_, tail)
        .outerjoin(t.publication, p.slice_id == s.id)
        .where(which)
    )
    return sorted((row for row in rows if row.is_open), key=lambda row: row.id)


def _at(place: tuple[int, int]) -> Any:
    return and_(t.progress.c.source_id == place[0], t.progress.c.partition == place[1])


def _total(row: Any) -> Total:
    outcome = Outcome(**{name.name: getattr(row, name.name) for name in fields(Outcome)})
    return Total(outcome=outcome, duration_ms=row.duration_ms or 0)
