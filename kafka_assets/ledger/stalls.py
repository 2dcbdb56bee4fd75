"""Stalls: what keeps all of an asset from landing, and is no slice's fault. One run at a time sees whether it lasts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ms, now_ts, storable
from kafka_assets.ledger.engine import read, write

MAX_PAUSE_MS = 300_000
"""However long it lasts, somebody who has cured it waits no longer than this."""
NEW_CODE_MS = 30_000
"""Other code than that which met it tries at once, but no more often: two deployments may differ for long."""
TRYING_MS = 60_000
"""How long a run that tries may stay without an answer before another one does."""


@dataclass(frozen=True)
class Stall:
    """What keeps an asset from landing, as one statement saw it."""

    asset: str
    failure: str
    code_version: str | None
    since: datetime
    tries: int
    tried_ms: int
    """So long ago it was tried last."""
    wait_ms: int
    """In so long it is tried again; never below 0."""

    def may_be_tried(self, code_version: str | None) -> bool:
        """Whether a run may see now whether it lasts."""
        other_code = code_version is not None and code_version != self.code_version
        return self.wait_ms <= 0 or (other_code and self.tried_ms >= NEW_CODE_MS)

    def said(self) -> str:
        """For people: why nothing lands, and when it is tried again."""
        again = f"tried again in {-(-self.wait_ms // 1000)} s" if self.wait_ms else "being tried again"
        return f"nothing lands: {self.failure} · {again} (met {self.tried_ms // 1000} s ago)"


def stalls(engine: Engine, *, assets: Collection[str]) -> dict[str, Stall]:
    """What keeps which of these assets from landing."""
    c = t.stall.c
    with read(engine) as connection:
        rows = connection.execute(
            select(
                c.asset, c.failure, c.code_version, c.since, c.tries, now_ms() - c.tried_at, c.not_before - now_ms()
            ).where(c.asset.in_(sorted(assets)))
        ).all()
    return {row[0]: Stall(*row[:6], wait_ms=max(0, row[6])) for row in rows}


def stall(engine: Engine, *, asset: str, failure: str, code_version: str | None) -> None:
    """Write down what a run of the asset met, and that it is tried again after a pause, which grows with the tries."""
    try:
        _note(engine, asset, failure, code_version)
    except IntegrityError:  # another run has met it first, in this moment
        _note(engine, asset, failure, code_version)


def begin_try(engine: Engine, found: Stall) -> bool:
    """Take the next try; False where somebody else has it."""
    c = t.stall.c
    with write(engine) as connection:
        taken = connection.execute(
            update(t.stall)
            .where(c.asset == found.asset, c.tries == found.tries)
            .values(tries=c.tries + 1, tried_at=now_ms(), not_before=now_ms() + TRYING_MS)
        )
    return taken.rowcount == 1


def lift(engine: Engine, found: Stall) -> None:
    """What was met is no more, as somebody sees who has not tried: unless a run has met something else since."""
    c = t.stall.c
    with write(engine) as connection:
        connection.execute(delete(t.stall).where(c.asset == found.asset, c.failure == found.failure))


def end_stalls(connection: Connection, assets: Collection[str]) -> None:
    """A slice of these assets has landed: nothing keeps them any more."""
    connection.execute(delete(t.stall).where(t.stall.c.asset.in_(sorted(assets))))


def _note(engine: Engine, asset: str, failure: str, code_version: str | None) -> None:
    c = t.stall.c
    with write(engine) as connection:
        tries = connection.scalar(select(c.tries).where(c.asset == asset).with_for_update())
        met = {
            "failure": storable(failure[:2000]),
            "code_version": code_version,
            "tried_at": now_ms(),
            "not_before": now_ms() + min(MAX_PAUSE_MS, 5_000 * 2 ** min((tries or 1) - 1, 10)),
        }
        if tries is None:
            connection.execute(insert(t.stall).values(asset=asset, since=now_ts(), tries=1, **met))
        else:
            connection.execute(update(t.stall).where(c.asset == asset).values(**met))
