"""Publications that nobody can land: of slices of a deleted topic that another asset had landed.

A slice that no asset has committed becomes lost when its topic is created again. One that some asset has committed
stays as it is, and for an asset that has not, and reads the records itself, there is nothing left to read.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Engine, or_, select, update

from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ms
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.publications import batches, lock_rows

GONE = "the topic was deleted before this asset had landed the slice; another asset had, and keeps its rows"
"""The failure in the claim of such a publication; by it they are told from those that somebody has to see to."""


def not_gone() -> ColumnElement[bool]:
    """Whether a publication's claim is of anything but these."""
    failure = t.claim.c.failure
    return or_(failure.is_(None), failure != GONE)


def leave_gone(engine: Engine, *, asset: str, upstream: str | None = None) -> int:
    """Fail the publications of an asset that reads records itself, of topics that are gone; how many there were.

    Of one that reads the rows of `upstream`, those which that has not landed, and cannot either. Nobody counts them as
    given up, or tries them under other code. A run that is at one of them still may commit it.
    """
    p, s, src, c = t.publication.c, t.slice_.c, t.source.c, t.claim.c
    above, its = t.publication.alias("above"), t.claim.alias("its")
    may_come = (
        select(above.c.id)
        .join_from(above, its, its.c.publication_id == above.c.id)
        .where(above.c.slice_id == p.slice_id, above.c.asset == upstream)
        .where(or_(above.c.state == "committed", its.c.failure.is_(None), its.c.failure != GONE))
        .exists()
    )
    with read(engine) as connection:
        found = connection.scalars(
            select(p.id)
            .join_from(t.publication, t.slice_, p.slice_id == s.id)
            .join(t.source, src.id == s.source_id)
            .join(t.claim, c.publication_id == p.id)
            .where(
                p.asset == asset,
                p.state.in_(("planned", "failed")),
                p.state != "committed",  # the index leaves out what is committed, and SQLite wants it said
                s.kind == "normal",
                src.retired_at.is_not(None),
                not_gone(),
                c.lease_until.is_(None) | (c.lease_until <= now_ms()),
                *([] if upstream is None else [~may_come]),
            )
            .order_by(p.id)
        ).all()
    left = 0
    for some in batches(found):
        with write(engine) as connection:
            lock_rows(connection, some, nowait=True)
            # Read again under the lock: what was committed meanwhile stays so.
            still = connection.scalars(select(p.id).where(p.id.in_(some), p.state != "committed")).all()
            connection.execute(update(t.publication).where(p.id.in_(still)).values(state="failed", code_version=None))
            connection.execute(update(t.claim).where(c.publication_id.in_(still)).values(failure=GONE, not_before=None))
            left += len(still)
    return left
