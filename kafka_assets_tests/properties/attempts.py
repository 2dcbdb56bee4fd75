"""One run's attempt at some slices: claimed and published by the code, judged by the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
from sqlalchemy import Engine

from kafka_assets.errors import Fenced, LeaseHeld, SliceFailed, SliceRefused
from kafka_assets.ledger.claims import Claim, claim, record_failure, release
from kafka_assets.ledger.publications import Publication
from kafka_assets.records import BadRecord, Chunk, Seen
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets.sinks.publish import Work, publish
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import SCHEMA
from kafka_assets_tests.properties.append_model import Delivered, Model, Slice
from kafka_assets_tests.properties.stepping import Killed, Run, at

MAX_FAILURES = 2


@dataclass(frozen=True)
class Plan:
    """How a run goes about it, and what happens to it."""

    replaces: bool
    claims_by_force: bool
    shrinks_by_force: bool
    lease_has_ended: bool
    records: str
    """What Kafka delivers, for each offset: r a record, b a bad one, f one that is filtered, - a hole; and where keys
    count, d a record that deletes its key, m and x the same two with a key that all partitions have."""
    expired: int
    """So many offsets at the start of its first slice have expired."""
    on_bad: str
    stops: tuple[str, ...]
    kill_at: str | None
    busy_at: str | None
    commit: str | None
    tells_its_end: bool
    """Whether it lives to give its claim back."""


@dataclass
class Attempt:
    keyed: ClassVar[bool] = False
    """Whether records have keys, and may delete them; and a replay may come with fewer than before."""

    engine: Engine
    table: Table
    model: Model
    seen: Counter[str]
    name: str
    plan: Plan
    publications: Sequence[Publication]
    claims: list[Claim] = field(default_factory=list[Claim])
    committed: list[list[Any]] = field(default_factory=list[list[Any]])
    """What COMMIT made durable and the model does not know yet."""
    done: bool = False

    def __post_init__(self) -> None:
        self.run = Run(
            self._work,
            stops=self.plan.stops,
            kill_at=self.plan.kill_at,
            busy_at=self.plan.busy_at,
            commit=self.plan.commit,
            committed=self.committed.append,
        )
        self._claimed: list[Claim] | None = None
        self._has_committed = False

    @property
    def slices(self) -> list[Slice]:
        return [self._slice(one) for one in self.publications]

    def holds_locks(self) -> bool:
        """Whether it stands still inside of its transaction; on SQLite it never does."""
        inside = ("locked", "deleted", "cleared", "quarantined", "chunk", "confirmed", "reduced")
        return self.engine.dialect.name != "sqlite" and self.run.where in inside

    def settle(self) -> None:
        """After each of its steps: what it did, in the model; and whether it might."""
        if self._claimed is not None:
            self._settle_claims(self._claimed)
            self._claimed = None
        for marked in self.committed:
            self._settle_commit(marked)
        self.committed.clear()
        if self.run.ended and not self.done:
            self.done = True
            self._settle_end()

    def tell_end(self, *, others: Sequence[Attempt]) -> None:
        """What the code around the transaction does after it, if it lives."""
        if not self.claims or not self.plan.tells_its_end or isinstance(self.run.error, Killed):
            return
        mine = [self._slice(one.publication) for one in self.claims]
        still = [one for one, held in zip(mine, self.claims, strict=True) if one.attempt == held.attempt]
        if self.run.error is None:
            release(self.engine, self.claims)
            for one in still:
                one.lease = "none"
            return
        if any(other.holds_locks() and set(map(id, other.slices)) & set(map(id, mine)) for other in others):
            return  # it would wait for a publication's lock, and give up
        record_failure(self.engine, self.claims, reason="no", max_attempts=MAX_FAILURES)
        for one in still:
            one.lease = "ended"
            one.failures_alone += int(len(mine) == 1)
            if len(mine) == 1 and one.failures_alone >= MAX_FAILURES and one.state == "planned":
                one.state = "failed"
                self.seen["given up"] += 1

    def delivered(self, key: SliceKey) -> Delivered:
        first = key == self.publications[0].key
        start = min(key.start + (self.plan.expired if first else 0), key.end)
        kinds = {offset: self.plan.records[offset % len(self.plan.records)] for offset in range(start, key.end)}

        def of(some: str) -> frozenset[int]:
            return frozenset(offset for offset, one in kinds.items() if one in some)

        found = Delivered(landed=of("rdmx"), bad=of("b"), filtered=of("f"), expired=start - key.start)
        return replace(found, landed=of("rm"), deleting=of("dx"), moving=of("mx")) if self.keyed else found

    def _work(self) -> Any:
        self._claimed = self.claims = claim(
            self.engine,
            self.publications,
            run_id=self.name,
            force=self.plan.claims_by_force,
            lease_ms=-1 if self.plan.lease_has_ended else 600_000,
        )
        keys = [one.key for one in self.publications]
        expired = {key: key.start + self.delivered(key).expired for key in keys if self.delivered(key).expired}
        return publish(
            self.engine,
            road_for(self.engine),
            Work(
                claims=self.claims,
                table=self.table,
                chunks=self._chunks,
                confirm=lambda seen: at("confirmed"),
                expired=expired,
                bad_policy=BadPolicy("fail" if self.plan.on_bad == "fail" else "quarantine", 1.0),
                run_id=self.name,
                code_version="v1",
                replaces=self.plan.replaces,
                force=self.plan.shrinks_by_force,
            ),
        )

    def _chunks(self) -> Iterator[Chunk]:
        for held in self.claims:
            key = held.publication.key
            middle = (key.start + key.end) // 2
            for part in (range(key.start, middle), range(middle, key.end)):
                yield self._chunk(key, part, note=f"{self.name}#{held.attempt}")
                at("chunk")

    def _chunk(self, key: SliceKey, offsets: range, *, note: str) -> Chunk:
        found = self.delivered(key)
        landed = sorted(found.landed.intersection(offsets))
        bad = sorted(found.bad.intersection(offsets))
        columns: list[list[Any]] = [landed, [note] * len(landed), [key.partition] * len(landed), landed]
        return Chunk(
            rows=pa.table(columns, schema=SCHEMA),
            seen={key: Seen(read=len(landed) + len(bad) + len(found.filtered.intersection(offsets)), bad=len(bad))},
            bad=tuple(BadRecord(key.partition, offset, "no good", None, b"\xff", (), 1) for offset in bad),
        )

    def _settle_claims(self, claims: Sequence[Claim]) -> None:
        self.seen["claim"] += 1
        for held in claims:
            one = self._slice(held.publication)
            assert one.lease != "live" or self.plan.claims_by_force, "a live lease was not respected"
            self.seen["takeover"] += one.lease != "none"
            one.attempt += 1
            assert held.attempt == one.attempt, "attempts are not counted one by one"
            one.lease = "ended" if self.plan.lease_has_ended else "live"
            one.holder = self.name

    def _settle_commit(self, marked: Sequence[Any]) -> None:
        todo = {one.key for one in self.slices if self.plan.replaces or one.result is None}
        written = {self._slice(publication).key for publication, _, _ in marked}
        assert written == todo, "a run committed other slices than it was to"
        assert not self._has_committed, "a run committed twice"
        for publication, attempt, _ in marked:
            one = self._slice(publication)
            assert one.attempt == attempt, "a fenced attempt committed"
            assert one.kind == "normal", "a slice was committed that is lost"
            assert not self._shrinks(one), "a replay lost records"
            self.seen["replay" if one.result else "commit"] += 1
        self._commit([(self._slice(publication), self.delivered(publication.key)) for publication, _, _ in marked])
        for publication, _, outcome in marked:
            result = self._slice(publication).result
            assert result is not None
            told = (outcome.records_read, outcome.landed, outcome.superseded, outcome.tombstoned)
            assert told == (result.delivered.read, result.landed, result.superseded, result.tombstoned)
        self._has_committed = True

    def _commit(self, written: Sequence[tuple[Slice, Delivered]]) -> None:
        self.model.commit(self.name, written)

    def _settle_end(self) -> None:
        error = self.run.error
        self.seen[type(error).__name__ if error else "done"] += 1
        if error is None:
            for one in self.run.result:
                assert one.outcome is not None or self._slice(one.publication).result is not None, "nothing was done"
            told = any(one.outcome is not None for one in self.run.result)
            assert told == self._has_committed, "a run does not know whether it committed"
        elif not self._justified(error):
            raise AssertionError(f"{self.name} ended with {type(error).__name__}, and had no reason to") from error

    def _justified(self, error: BaseException) -> bool:
        reasons = self._reasons()
        # After its COMMIT it may be killed, or taken over before it asked what became of it; nothing else.
        possible = (Killed, Fenced) if self._has_committed else tuple(reasons)
        return type(error) in possible and reasons[type(error)]

    def _reasons(self) -> dict[type[BaseException], bool]:
        mine = self.slices
        return {
            Killed: True,
            LeaseHeld: not self.plan.claims_by_force and any(one.lease == "live" for one in mine),
            Fenced: any(self._slice(held.publication).attempt > held.attempt for held in self.claims),
            SliceRefused: any(one.kind != "normal" or self._shrinks(one) for one in mine),
            SliceFailed: self.plan.on_bad == "fail" and any(self.delivered(one.key).bad for one in self.publications),
        }

    def _shrinks(self, one: Slice) -> bool:
        if self.keyed or one.result is None or not self.plan.replaces or self.plan.shrinks_by_force:
            return False
        key = next(found.key for found in self.publications if self._slice(found) is one)
        return self.delivered(key).read < one.result.delivered.read

    def _slice(self, publication: Publication) -> Slice:
        return self.model.slice_at(publication.key.incarnation, publication.key.partition, publication.key.start)
