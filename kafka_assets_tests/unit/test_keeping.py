"""The leases' own thread, without a database: when it extends them, and what becomes of what it meets."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from kafka_assets.ledger.leases import Lease
from kafka_assets.ledger.sources import Source
from kafka_assets.live import keeping
from kafka_assets.live.keeping import Keeper

LEASE = Lease(Source(1, "consumer:mine", "orders", "id", 1), 0, "me")


def keeper(**given: Any) -> Keeper:
    engine: Any = None
    return Keeper(engine, lease_ms=60, aside=lambda _: None, **given)


def extended(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times: list[float] = []

    def extend(*_: object, **__: object) -> list[Lease]:
        times.append(time.monotonic())
        return []

    monkeypatch.setattr(keeping, "extend", extend)
    return times


class Clock:
    """The time of whoever holds the leases, which passes when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.looks: list[float] = []
        monkeypatch.setattr(keeping, "time", self)

    def monotonic(self) -> float:
        self.looks.append(self.now)
        return self.now


def grows(noted: list[float]) -> None:
    """Wait until it has happened twice more: once it was begun after this was asked."""
    wanted, deadline = len(noted) + 2, time.monotonic() + 60
    while len(noted) < wanted:
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.005)


@pytest.mark.slow
def test_who_is_silent_for_too_long_keeps_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    times, clock = extended(monkeypatch), Clock(monkeypatch)
    with keeper(silence=60) as leases:
        leases.hold([LEASE])
        for _ in range(3):
            clock.now += 50
            assert not leases.lost()
            grows(times)
        clock.now += 61
        grows(clock.looks)
        before = len(times)
        grows(clock.looks)
        assert len(times) == before
        assert not leases.lost()
        grows(times)


def test_without_a_bound_they_are_extended_for_as_long_as_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    times, clock = extended(monkeypatch), Clock(monkeypatch)
    with keeper() as leases:
        leases.hold([LEASE])
        grows(times)
        clock.now += 3600
        grows(times)


def test_whatever_ends_the_keeping_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    full = OperationalError("UPDATE", {}, Exception("no space left on device"))

    def fails(*_: object, **__: object) -> list[Lease]:
        raise full

    monkeypatch.setattr(keeping, "extend", fails)
    with keeper() as leases:
        leases.hold([LEASE])
        deadline = time.monotonic() + 60
        with pytest.raises(OperationalError) as raised:
            while time.monotonic() < deadline:
                leases.lost()
    assert raised.value is full
