"""Where reading begins: said by a number, a word or a time, and looked up before the first read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Literal

from kafka_assets.broker.admin import TIMEOUT
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.consume import check_begin
from kafka_assets.broker.listing import topic_offsets
from kafka_assets.broker.offsets import offsets_at
from kafka_assets.errors import UsageError

Start = int | Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""An offset for each partition alike, a word, a time (UTC, where it has no zone), or an offset per partition."""


def begin_at(
    connection: Connection,
    topic: str,
    start: Start,
    *,
    partitions: Collection[int] | None = None,
    given: bool = False,
    timeout: float = TIMEOUT,
) -> dict[int, int]:
    """The first offset to read of each of these partitions, or of all; nothing is guessed where one is not there.

    With `given` they are a group's: one that this broker does not show yet is left out, to be asked for again.
    """
    there = topic_offsets(connection, topic, timeout=timeout).partitions
    wanted = sorted(there) if partitions is None else sorted(set(partitions))
    if given:
        wanted = [one for one in wanted if one in there]
    if partitions is None and isinstance(start, Mapping):
        wanted = sorted(start)
    if missing := [one for one in wanted if one not in there]:
        raise UsageError(
            f"the topic {topic!r} has no partition {missing[0]}",
            why=f"it has {len(there)}, from 0 to {len(there) - 1}",
            cure="name partitions that it has, or none for all of them",
        )
    if isinstance(start, datetime):
        moment = start if start.tzinfo else start.replace(tzinfo=UTC)
        found = offsets_at(connection, topic, round(moment.timestamp() * 1000), timeout=timeout)
        return {one: found[one] for one in wanted}
    if start == "earliest":
        return {one: there[one].log_start for one in wanted}
    if start == "latest":
        return {one: there[one].last_stable for one in wanted}
    begin = _offsets(topic, start, wanted)
    check_begin(topic, begin, there)
    return begin


def _offsets(topic: str, start: int | str | Mapping[int, int], wanted: Collection[int]) -> dict[int, int]:
    if isinstance(start, Mapping):
        if without := [one for one in wanted if one not in start]:
            raise UsageError(
                f"no offset says where partition {without[0]} of the topic {topic!r} begins",
                cure="give an offset for each of the partitions, or name only those that have one",
            )
        return {one: start[one] for one in wanted}
    if isinstance(start, str | bool) or start < 0:
        raise UsageError(
            f"{start!r} is no place to begin",
            cure='give an offset from 0 on, "earliest", "latest", a datetime, or an offset for each partition',
        )
    return dict.fromkeys(wanted, start)
