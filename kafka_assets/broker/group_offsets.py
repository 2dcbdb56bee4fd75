"""Offsets kept by the group's coordinator in Kafka: committed by librdkafka alone, in step, or behind the work."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafka_assets.broker.admin import kafka_error
from kafka_assets.broker.keepers import Attached, First, Nowhere
from kafka_assets.broker.units import Unit, Where
from kafka_assets.errors import BrokerUnavailable, CommitFailed

PATIENCE = 30.0
"""Seconds for an answer of the group's coordinator: less than a member may be silent for."""

_GONE = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
}
"""The group goes on without this member; what it has done will be done again by another."""
_NOTHING = {KafkaError._NO_OFFSET}
_OLDER = {KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH}
_REJOINING = 5.0
"""Seconds in which a member learns of a generation that the group has already: partitions that it keeps, or gives up
by `on_revoke` later, are its own meanwhile. One that was thrown out learns of none before its next poll."""
_AGAIN = {KafkaError.REBALANCE_IN_PROGRESS}
"""The group is being arranged anew, and this member is in it still."""


class GroupOffsets(Nowhere):
    """Reads where the group is, and commits before it answers. The keeper of `commit="sync"`."""

    needs_group = True

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._client: Client | None = None
        self._owed: dict[Where, int] = {}
        """Done, and not committed yet: what a failed commit leaves to the next one."""

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def attach(self, consumer: Attached) -> None:
        self._client = consumer.client

    def begins(self, places: Collection[Where], first: First) -> Mapping[Where, int]:
        """What begins by `start` is committed, too: next time it is known, whatever `start` says by then."""
        known = self.known(places)
        begun = first([place for place in places if place not in known])
        self.owe(begun)
        return {**known, **begun}

    def known(self, places: Collection[Where]) -> dict[Where, int]:
        """What the group has committed of these."""
        wanted = [TopicPartition(*place) for place in sorted(places)]
        try:
            found = self.client.committed(wanted, timeout=self.patience)
        except KafkaException as raised:
            raise BrokerUnavailable(
                "the group's offsets could not be read",
                why=_said(kafka_error(raised)),
                cure="nothing, if it passes; otherwise look at the state of the cluster",
            ) from raised
        return {(one.topic, one.partition): one.offset for one in found if one.offset >= 0}

    def owe(self, offsets: Mapping[Where, int]) -> None:
        """To be committed with the next ones."""
        self._owed = {**offsets, **self._owed}

    def done(self, unit: Unit) -> None:
        self._owed |= unit.ends
        self._pay()

    def undo(self, unit: Unit) -> None:
        if unit.done:
            self.done(unit)

    def released(self, places: Collection[Where]) -> None:
        try:
            self._pay()
        finally:
            # Committed later, it would move the next owner's offset back.
            for place in places:
                self._owed.pop(place, None)

    def lost(self, places: Collection[Where]) -> None:
        for place in places:
            self._owed.pop(place, None)

    def idle(self) -> Collection[Where]:
        self._pay()
        return ()

    def close(self) -> None:
        self._pay()

    def _pay(self) -> None:
        try:
            self.commit(self._owed)
        except CommitFailed as error:
            if error.moved_on:
                self._owed = {}
            raise
        self._owed = {}

    def commit(self, offsets: Mapping[Where, int], *, patience: float | None = None) -> None:
        """Commit these next offsets and wait for the answer; what may pass is asked again for some time."""
        begun = time.monotonic()
        longest = self.patience if patience is None else patience
        while offsets:
            error = self._ask(offsets)
            if error is None or error.code() in _NOTHING:
                return
            waited = time.monotonic() - begun
            if waited > (_REJOINING if error.code() in _OLDER else longest if _passes(error) else 0):
                raise failed(error)
            time.sleep(0.1)

    def _ask(self, offsets: Mapping[Where, int]) -> KafkaError | None:
        try:
            answer = self.client.commit(offsets=as_places(offsets), asynchronous=False)
        except KafkaException as raised:
            return kafka_error(raised)
        return next((one.error for one in answer or () if one.error is not None), None)


class AutoCommitted(GroupOffsets):
    """librdkafka commits by itself, every few seconds, what it has given out: done or not."""

    def __init__(self, *, interval: float) -> None:
        super().__init__()
        self.properties: Mapping[str, str] = {
            "enable.auto.commit": "true",
            "enable.auto.offset.store": "true",
            "auto.commit.interval.ms": str(max(1, round(interval * 1000))),
        }

    def owe(self, offsets: Mapping[Where, int]) -> None:
        return

    def done(self, unit: Unit) -> None:
        return


def as_places(offsets: Mapping[Where, int]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]


def failed(error: KafkaError) -> CommitFailed:
    """What a commit that was refused means."""
    if error.code() in _GONE | _OLDER:
        return CommitFailed(
            "the offsets were not committed: the group has moved on without this consumer",
            why=f"{_said(error)}; it was silent, or busy with its records, for longer than the group waits",
            cure="nothing: another member does these records again; make batches smaller, or max_poll_interval longer",
            moved_on=True,
        )
    return CommitFailed(
        "the offsets could not be committed",
        why=_said(error),
        cure="nothing, if it passes: the same records come again; otherwise look at the cluster and the group's rights",
    )


def _passes(error: KafkaError) -> bool:
    return error.code() in _AGAIN or (error.retriable() and error.code() not in _GONE)


def _said(error: KafkaError) -> str:
    return f"{error.str()} ({error.name()})"
