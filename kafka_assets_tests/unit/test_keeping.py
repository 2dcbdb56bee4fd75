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


def test_who_is_silent_for_too_long_keeps_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    times = extended(monkeypatch)
    with keeper(silence=0.2) as leases:
        leases.hold([LEASE])
        for _ in range(20):
            assert not leases.lost()
            time.sleep(0.02)
        assert len(times) > 5
        heard = time.monotonic()
        time.sleep(0.5)
        assert times[-1] < heard + 0.4
        again = len(times)
        assert not leases.lost()
        time.sleep(0.1)
        assert len(times) > again, "it is heard of again"


def test_without_a_bound_they_are_extended_for_as_long_as_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    times = extended(monkeypatch)
    with keeper() as leases:
        leases.hold([LEASE])
        time.sleep(0.3)
        assert times[-1] > time.monotonic() - 0.15


def test_whatever_ends_the_keeping_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    full = OperationalError("UPDATE", {}, Exception("no space left on device"))

    def fails(*_: object, **__: object) -> list[Lease]:
        raise full

    monkeypatch.setattr(keeping, "extend", fails)
    with keeper() as leases:
        leases.hold([LEASE])
        time.sleep(0.2)
        with pytest.raises(OperationalError) as raised:
            leases.lost()
    assert raised.value is full
