"""Dagster's keys: its dynamic partitions, which are the slices that it may know of."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
from sqlalchemy.exc import IntegrityError

from kafka_assets.streams import Stream

AT_ONCE = 1000
"""PostgreSQL takes at most 65,535 bound values in one statement."""


def add_keys(instance: dg.DagsterInstance, stream: Stream, keys: Sequence[str]) -> None:
    """Add these keys in this order, where they are not there yet."""
    for at in range(0, len(keys), AT_ONCE):
        some = keys[at : at + AT_ONCE]
        try:
            instance.add_dynamic_partitions(stream.partitions_name, some)
        except IntegrityError:
            # Dagster looks which are missing and then inserts them: between the two, another tick did. Now they stand.
            instance.add_dynamic_partitions(stream.partitions_name, some)


def places(instance: dg.DagsterInstance, stream: Stream) -> dict[str, int]:
    """Dagster's keys and where they stand: a run over a range takes all between its ends."""
    return {key: place for place, key in enumerate(instance.get_dynamic_partitions(stream.partitions_name))}
