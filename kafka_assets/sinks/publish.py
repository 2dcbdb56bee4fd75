"""The one transaction: a slice's rows and the fact that its offsets are done, committed together.

    lock publications in order · replace · rows · quarantine · ask Kafka again · (upsert: merge)
    · verify the attempt under lock · counts · committed_through · COMMIT · outcome known

Killed anywhere before COMMIT, nothing of the attempt is visible. After it, everything is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, Engine

from kafka_assets.errors import SliceRefused
from kafka_assets.faults import reached
from kafka_assets.ledger import windows
from kafka_assets.ledger.claims import Claim
from kafka_assets.ledger.committed import advance
from kafka_assets.ledger.fences import verify_attempts
from kafka_assets.ledger.publications import Outcome, Publication, lock, mark_committed
from kafka_assets.ledger.publishing import publishing
from kafka_assets.ledger.retries import retried
from kafka_assets.records import Chunk, Chunks, Fetch, Refused, Seen
from kafka_assets.sinks.accounting import BadPolicy, Examples, Landed, judge, outcome_of
from kafka_assets.sinks.modes import Mode, mode_of, place_in, settled
from kafka_assets.sinks.quarantine import delete_quarantine, insert_quarantine
from kafka_assets.sinks.refusals import not_again, of_no_record, refusals, replacing, said_at_commit
from kafka_assets.sinks.road import Road, Table
from kafka_assets.sinks.rounds import Refusing, in_rounds, of_topic
from kafka_assets.sinks.sieve import sifted
from kafka_assets.sinks.steps import Steps
from kafka_assets.slices import SliceKey


@dataclass(frozen=True)
class Work:
    """All that a publication of one run's slices needs; nothing of it changes when the transaction is retried."""

    claims: Sequence[Claim]
    table: Table
    chunks: Chunks
    confirm: Callable[[Mapping[SliceKey, Seen]], None]
    """Asks Kafka, after the last record was read, whether what was read is all there was; raises where not."""
    expired: Mapping[SliceKey, int]
    """Per slice up to which offset its records had expired before they were read, where the policy records it."""
    bad_policy: BadPolicy
    run_id: str
    code_version: str
    replaces: bool
    """False for a run that the sensor asked for: it does nothing for what is committed already."""
    keeps: Collection[str] = ()
    """Runs whose results stay, though this one replaces: those that it tries again."""
    fetch: Fetch = not_again
    """Reads the bytes of records that the table refuses: they are quarantined."""
    force: bool = False
    """Replace even by fewer records than were committed."""
    recheck: Callable[[Connection], None] | None = None
    """Asks, in the transaction, whether rows that were read from another asset's table still stand; raises."""
    fingerprints: Mapping[SliceKey, str] = field(default_factory=dict[SliceKey, str])
    """What each slice was made of, where that is another asset's rows."""
    steps: Steps = field(default_factory=Steps)
    """The transaction's stopwatch."""


@dataclass(frozen=True)
class Published:
    """What became of one slice in this run."""

    publication: Publication
    attempt: int
    outcome: Outcome | None
    """None: it was committed before, and this run had nothing to do."""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """What each step of its transaction took, for all of that one's slices together."""

    @property
    def other_records(self) -> bool:
        """Whether this replay read other records than those that were committed before (information, no error)."""
        before, now = self.publication.fingerprint, self.outcome and self.outcome.fingerprint
        return before is not None and now is not None and before != now


def publish(engine: Engine, road: Road, work: Work) -> list[Published]:
    """Publish the claimed slices in one transaction, or none of them."""
    started = time.monotonic()
    sieved, steps = work.chunks, work.steps
    if work.table.ordinal:
        work = replace(work, fetch=of_no_record)
    steps.now("read")

    def read() -> Iterator[Chunk]:
        # Whoever keeps an error keeps what was reading: it would hold its queries, and its threads the process.
        with closing(steps.waiting(sieved())) as found:
            yield from _bounded((sifted(chunk, road, work.fetch) for chunk in found), work)

    with road.spooled(read) as chunks:
        if road.spools:
            steps.now("offsets")
            held = [one.publication.key for one in work.claims]
            work.confirm({**dict.fromkeys(held, Seen()), **_seen_in(chunks())})
        steps.mark()

        def attempt(kept: Callable[[Chunk], Chunk]) -> list[Published]:
            rest = replace(work, chunks=lambda: (kept(chunk) for chunk in chunks()))
            return retried(lambda: _transaction(engine, road, rest, started=started))

        return in_rounds(attempt, table=work.table, fetch=work.fetch)


def _bounded(chunks: Iterable[Chunk], work: Work) -> Iterator[Chunk]:
    """The chunks, up to where a slice has more bad records than all of its offsets allow: no more are kept for it."""
    seen = {one.publication.key: Seen() for one in work.claims}
    examples = Examples(seen)
    for chunk in chunks:
        mine = [key for key in chunk.seen if key in seen]
        examples.add(chunk.bad, mine)
        for key in mine:
            seen[key] += chunk.seen[key]
            judge(key, replace(seen[key], read=key.offsets), work.bad_policy, examples=examples.of(key))
        yield chunk


def _transaction(engine: Engine, road: Road, work: Work, *, started: float) -> list[Published]:
    attempts = {held.publication.id: held for held in work.claims}
    outcomes: dict[SliceKey, Outcome] = {}
    steps = work.steps
    steps.back()
    steps.now("lock")
    with said_at_commit(work.table) as ended, publishing(engine, work.claims) as this:
        connection = this.connection
        # 1. Lock the publications, in order, and decide.
        standing = lock(connection, attempts)
        todo = [one for one in standing if _decide(connection, one, attempts[one.id], work)]
        slices = {publication.key: publication for publication in todo}
        this.written = [attempts[publication.id] for publication in todo]
        # 2. Replace: what an earlier attempt committed goes.
        mode = mode_of(connection, road, work.table)
        with replacing(work.table, slices):
            for publication in todo:
                mode.replace(publication)
                delete_quarantine(connection, publication)
        if todo:
            # 3. Rows. 4. Quarantine.
            steps.now("insert")
            with refusals(work.table, slices):
                road.undefer(connection, work.table)
            examples = Examples(slices)
            seen = _insert(connection, road, mode, work, slices, examples)
            # 5. Ask Kafka again, before the first lock that others wait for.
            if not road.spools:
                steps.now("offsets")
                work.confirm(seen)
            steps.now("insert" if work.table.upsert is None else "merge")
            for publication in todo:
                key = publication.key
                judge(key, seen[key], work.bad_policy, examples=examples.of(key))
            landed = _settled(connection, road, mode, work, seen, slices)
            if work.recheck is not None:
                work.recheck(connection)
            # 6. Verify the attempts under lock.
            steps.now("commit")
            reached("verify", work.claims[0].publication.asset)
            verify_attempts(connection, this.written)
            # 7. Counts.
            for key, publication in slices.items():
                closed = outcome_of(key, seen[key], landed=landed[key], expired_to=work.expired.get(key))
                outcomes[key] = replace(closed, fingerprint=work.fingerprints.get(key, closed.fingerprint))
                # A merge takes nothing away: compaction may well have taken records since. Another asset's rows may be
                # fewer than they were: they stand in its table as it replayed them.
                fewer = work.force or work.table.upsert is not None or work.recheck is not None
                _refuse_shrinking(publication, outcomes[key], force=fewer)
                mark_committed(
                    connection,
                    publication,
                    attempt=attempts[publication.id].attempt,
                    run_id=work.run_id,
                    code_version=work.code_version,
                    duration_ms=int((time.monotonic() - started) * 1000),
                    outcome=outcomes[key],
                )
            # 8. committed_through, then COMMIT; where that gave no answer, the ledger is asked for it.
            _advance(connection, todo)
        ended.append(True)
    steps.now(None)
    return [
        Published(publication, attempts[publication.id].attempt, outcomes.get(publication.key), steps.seconds())
        for publication in standing
    ]


def _decide(connection: Connection, publication: Publication, held: Claim, work: Work) -> bool:
    """What to do with a slice, decided under its publication's lock."""
    if publication.is_open:
        raise windows.refused(connection, publication.key, publication.slice_id)
    if publication.key != held.publication.key:
        raise SliceRefused(
            f"slice {held.publication.key} cannot be landed",
            why=f"it was an open window when its records were read, and is {publication.key} now",
            cure="land that one",
        )
    if publication.kind != "normal":
        raise SliceRefused(
            f"slice {publication.key} cannot be landed",
            why=f"it is recorded as {publication.kind}",
            cure="kafka_slice has its reason; what is lost or skipped stays so",
        )
    return not publication.stays(replaces=work.replaces, keeps=work.keeps)


def _insert(
    connection: Connection,
    road: Road,
    mode: Mode,
    work: Work,
    slices: Mapping[SliceKey, Publication],
    examples: Examples,
) -> dict[SliceKey, Seen]:
    seen = dict.fromkeys(slices, Seen())
    waiting: list[Refused] = []
    for chunk in work.chunks():
        # Of one topic: the rows of two carry the same partitions and offsets.
        mine = {key: slices[key] for key in chunk.seen if key in slices}
        for key in mine:
            seen[key] += chunk.seen[key]
        if not mine:
            continue
        with refusals(work.table, mine), of_topic(mine):
            refused = list(_judged(mode.insert(chunk, mine), mine, seen, work))
        insert_quarantine(connection, chunk.bad, mine)
        examples.add(chunk.bad, mine)
        if road.spools:
            waiting += refused
        elif refused:
            fetched = work.fetch(refused)
            insert_quarantine(connection, fetched, mine)
            examples.add(fetched, mine)
    if waiting:
        raise Refusing(waiting)
    return seen


def _settled(
    connection: Connection,
    road: Road,
    mode: Mode,
    work: Work,
    seen: dict[SliceKey, Seen],
    slices: Mapping[SliceKey, Publication],
) -> dict[SliceKey, Landed]:
    landed: dict[SliceKey, Landed] = {}

    def settle() -> Generator[Refused]:
        landed.update((yield from settled(connection, road, work.table, mode, slices)))

    with refusals(work.table, slices):
        refused = list(_judged(settle(), slices, seen, work))
    if refused:
        raise Refusing(refused)
    return landed


def _judged(
    refused: Iterable[Refused], slices: Iterable[SliceKey], seen: dict[SliceKey, Seen], work: Work
) -> Generator[Refused]:
    """Count refused records as bad; no more are looked for where their slice fails by so many for certain."""
    keys = tuple(slices)
    for one in refused:
        key = place_in(keys, one)
        seen[key] += Seen(bad=1)
        # More records than it has offsets a slice cannot have.
        judge(key, replace(seen[key], read=key.offsets), work.bad_policy, reason=one.reason)
        yield replace(one, topic=key.topic)


def _advance(connection: Connection, done: Iterable[Publication]) -> None:
    """Last, and in key order, so that two publishers never wait for each other."""
    for asset, source_id, partition in sorted({(one.asset, one.source_id, one.key.partition) for one in done}):
        advance(connection, asset=asset, source_id=source_id, partition=partition)


def _refuse_shrinking(publication: Publication, outcome: Outcome, *, force: bool) -> None:
    if publication.state == "committed" and outcome.records_read < publication.records_read and not force:
        raise SliceRefused(
            f"replay of slice {publication.key} is refused: it would lose records",
            why=f"{publication.records_read} were committed, and only {outcome.records_read} can still be read "
            "(expired or compacted since)",
            cure="leave it as it is; only if those rows may go, materialize it with the tag kafka_assets/force=true",
        )


def _seen_in(chunks: Iterable[Chunk]) -> dict[SliceKey, Seen]:
    seen: dict[SliceKey, Seen] = {}
    for chunk in chunks:
        for key, part in chunk.seen.items():
            seen[key] = seen.get(key, Seen()) + part
    return seen
