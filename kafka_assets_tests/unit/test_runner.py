"""Landing without a daemon: what passes by itself is no reason to end, and none to fail."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_assets.assets.decorator import kafka_asset
from kafka_assets.assets.runner import Runner
from kafka_assets.errors import BrokerUnavailable, LedgerBusy, TopicChanged
from kafka_assets.ledger import meeting
from kafka_assets.settings import load_settings
from kafka_assets_tests.ledgers import ASSET, rows
from kafka_assets_tests.ticking import Desk, orders


@pytest.fixture
def runner(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Of the desk's stream, ledger and Dagster; its runs need no Spark."""
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", str(desk.engine.url))
    desk.stream = orders(topics="shop.*")
    declared: Any = kafka_asset(name=ASSET, topics="shop.*", target=ASSET, schema="id BIGINT, note STRING")
    made = Runner(load_settings(), instance=desk.instance, assets=[declared(lambda records: records)])
    monkeypatch.setattr(made, "run", lambda request: desk.land(request) and None)
    return made


@pytest.mark.parametrize("passing", [LedgerBusy("another planner met it"), TopicChanged("it was created again")])
def test_what_another_planner_was_faster_with_is_looked_at_again(
    desk: Desk, runner: Runner, monkeypatch: pytest.MonkeyPatch, passing: Exception
) -> None:
    desk.broker.set("shop.a", 10)
    desk.settle()
    desk.broker.set("shop.a", 20)
    desk.broker.set("shop.b", 5)
    make, raised = meeting.make_sources, list[Exception]()

    def late(*given: Any, **more: Any) -> Any:
        if not raised:
            raised.append(passing)
            raise passing
        return make(*given, **more)

    monkeypatch.setattr(meeting, "make_sources", late)
    with runner:
        done = runner.until_caught_up(patience=timedelta(seconds=30))
    assert raised
    assert (done.troubles, done.caught_up) == ([], True)
    assert rows(desk.engine, "select count(*) from orders") == [(25,)]


def test_what_stays_so_is_waited_for_as_long_as_the_callers_patience(
    desk: Desk, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*given: object, **more: object) -> None:
        raise LedgerBusy("the database was busy")

    desk.broker.set("shop.a", 10)
    monkeypatch.setattr(meeting, "make_sources", busy)
    with runner:
        done = runner.until_caught_up(patience=timedelta(seconds=1))
    assert not done.caught_up
    assert "the database was busy" in done.troubles[0]


def test_a_broker_that_is_away_ends_it_at_once(desk: Desk, runner: Runner) -> None:
    desk.broker.down = BrokerUnavailable("no Kafka broker answered at nowhere:1")
    with runner:
        done = runner.until_caught_up(patience=timedelta(hours=1))
    assert not done.caught_up
    assert desk.broker.asked == 1
