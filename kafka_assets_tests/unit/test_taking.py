"""Beginning with a partition, on SQLite and without a broker: what becomes of leases when that fails half-way."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.broker.offsets import PartitionOffsets, TopicOffsets
from kafka_assets.errors import LedgerBusy
from kafka_assets.live import taking
from kafka_assets.live.taking import Begun, Taking
from kafka_assets.streams import declare
from kafka_assets_tests.lives import owners

SEEN = TopicOffsets("orders", "id-1", {part: PartitionOffsets(0, 10, 10) for part in (0, 1)})


def test_leases_that_nobody_will_hear_of_are_given_back(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    stream: Any = declare(name="orders", topic="orders", target="orders", schema="id bigint")
    connection: Any = None
    taker = Taking(engine, connection, stream, owner="me", lease_ms=60_000)
    ready = taking.ready

    def busy(*_: object, **__: object) -> Any:
        assert owners(engine) == ["me", "me"]
        raise LedgerBusy("not now")

    monkeypatch.setattr(taking, "observe", lambda *_: {"orders": SEEN})
    monkeypatch.setattr(taking, "ready", busy)
    with pytest.raises(LedgerBusy, match="not now"):
        taker.begin([("orders", 0), ("orders", 1)])
    assert owners(engine) == [None, None]
    monkeypatch.setattr(taking, "ready", ready)
    begun = taker.begin([("orders", 0), ("orders", 1)])
    assert all(isinstance(one, Begun) for one in begun.values())
    assert owners(engine) == ["me", "me"]
