"""Why nothing of a stream is planned or lands, where the ledger knows no partition of it, or it is stalled."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.assets.judging import look
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import BrokerUnavailable
from kafka_assets.ledger.stalls import stall
from kafka_assets.streams import Derived, Stream
from kafka_assets_tests.ledgers import ASSET, Attempt, plan
from kafka_assets_tests.ticking import Broker, answering, orders

HERE = Connection("nowhere:1")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    return answering(monkeypatch)


def trouble(engine: Engine, stream: Stream) -> str | None:
    return look(engine, lambda: HERE, [stream])[stream.name].trouble


def below(**attributes: Any) -> Stream:
    return Derived(
        name="below", topic="orders", target="below", schema="id BIGINT", upstream=ASSET, upstream_target="orders",
        root=ASSET, **attributes,
    )  # fmt: skip


def test_of_a_stream_that_was_never_planned_the_broker_says_why(engine: Engine, broker: Broker) -> None:
    never = "nothing of orders was ever planned: "
    assert trouble(engine, orders()) == f"{never}the topic 'orders' does not exist"
    broker.set("orders", 7, 3)
    assert f"{never}10 offsets wait in 2 partitions · the sensor kafka_slices has not ticked" in str(
        trouble(engine, orders())
    )
    broker.down = BrokerUnavailable("no Kafka broker answered")
    assert "the broker did not answer: no Kafka broker answered" in str(trouble(engine, orders()))


def test_of_a_pattern_that_nothing_matches_that_is_said(engine: Engine, broker: Broker) -> None:
    broker.set("orders", 7)
    shop = orders(topics=r"shop\..*")
    assert "the broker shows no topic of such a name" in str(trouble(engine, shop))
    broker.set("shop.a", 5)
    assert "5 offsets wait in 1 partitions" in str(trouble(engine, shop))


def test_an_asset_below_names_the_one_whose_slices_it_shares_and_asks_no_broker(engine: Engine, broker: Broker) -> None:
    assert "it shares the slices of orders, of which none is planned for it" in str(trouble(engine, below()))
    assert broker.asked == 0


def test_a_stream_that_the_ledger_refuses_says_what_the_ledger_says(engine: Engine, broker: Broker) -> None:
    plan(engine, slices=[(0, 10)])
    broker.set("orders", 10)
    renamed = orders(name="another", group=ASSET)
    assert "under which the stream 'orders' has landed" in str(trouble(engine, renamed))
    refused = orders(name="another", target="shop.orders")
    assert "names a schema, and SQLite has none" in str(trouble(engine, refused))


def test_one_that_is_planned_and_looked_at_is_in_no_trouble_unless_nothing_of_it_can_land(
    engine: Engine, broker: Broker
) -> None:
    [key] = plan(engine, slices=[(0, 10)])
    broker.set("orders", 10)
    assert trouble(engine, orders()) is None
    stall(engine, asset=ASSET, failure="it has no column 'currency'", code_version=None)
    assert str(trouble(engine, orders())).startswith("nothing lands: it has no column 'currency' · ")
    Attempt(engine, [key]).claim().publish()
    stall(engine, asset=ASSET, failure="it had no column 'currency'", code_version=None)
    assert trouble(engine, orders()) is None, "nothing waits"
