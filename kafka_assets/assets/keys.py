"""Dagster's keys: its dynamic partitions, which are the slices that it may know of."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import dagster as dg
from sqlalchemy.exc import IntegrityError

from kafka_assets.streams import Stream

AT_ONCE = 1000
"""PostgreSQL takes at most 65,535 bound values in one statement."""

PAGE = 100
"""So many of the newest keys are read first: what is due was mostly added just now."""


def add_keys(instance: dg.DagsterInstance, stream: Stream, keys: Sequence[str]) -> None:
    """Add these keys in this order, where they are not there yet."""
    for at in range(0, len(keys), AT_ONCE):
        some = keys[at : at + AT_ONCE]
        try:
            instance.add_dynamic_partitions(stream.partitions_name, some)
        except IntegrityError:
            # Dagster looks which are missing and then inserts them: between the two, another tick did. Now they stand.
            instance.add_dynamic_partitions(stream.partitions_name, some)


def places(
    instance: dg.DagsterInstance, stream: Stream, keys: Collection[str], *, most: int | None = None
) -> dict[str, int]:
    """Where Dagster's keys stand, back to the oldest of these, which are all there: a run over a range takes all
    between its ends.

    With `most`, so many of the newest are read and no more. What stands before them stands beside nothing, as far as
    this says: it runs alone, since a range of one key takes no other.
    """
    if len(keys) == 1:
        return dict.fromkeys(keys, 0)
    found: dict[str, int] = {}
    wanted, size, cursor, more = set(keys), max(PAGE, len(keys)), None, True
    while more and wanted and (most is None or len(found) < most):
        limit = size if most is None else min(size, most - len(found))
        page = instance.get_paginated_dynamic_partitions(
            stream.partitions_name, limit=limit, ascending=False, cursor=cursor
        )
        found |= {key: -place for place, key in enumerate(page.results, start=len(found))}
        wanted -= found.keys()
        size, cursor, more = size * 10, page.cursor, page.has_more and bool(page.results)
    alone = {key: -len(found) - 2 * number for number, key in enumerate(sorted(wanted), start=1)}
    return found | alone
