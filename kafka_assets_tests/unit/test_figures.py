"""What a live consumer says of itself: while it runs, when it ends, and why it gives up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from kafka_assets.errors import NotCaughtUp
from kafka_assets.live import consumer
from kafka_assets.live.figures import Figures, last_line, line, total
from kafka_assets_tests.ledgers import ASSET
from kafka_assets_tests.lives import Live, meet


def test_who_reads_no_partition_knows_no_lag() -> None:
    assert "reads no partition" in line(Figures())
    assert "lag" not in line(Figures())
    assert "lag 7 · 1 partitions" in line(Figures(partitions=1, lag=7))


def test_its_last_line_has_all_that_it_did_and_what_is_left() -> None:
    said = last_line(Figures(records=20_000, rows=19_990, commits=4, quarantined=10, seconds=10.0, left=5_000))
    assert "20,000 records in 4 commits · 19,990 rows" in said
    assert "10 quarantined" in said
    assert "5,000 offsets left" in said
    assert "left" not in last_line(Figures(records=1, commits=1))


def test_what_is_left_of_a_stream_is_not_added_up_over_its_consumers() -> None:
    summed = total([Figures(records=1, left=5), Figures(records=2, left=4)])
    assert (summed.records, summed.left) == (3, 5)


@pytest.mark.parametrize(
    ("figures", "why"),
    [
        (Figures(partitions=2, committing=500), "a batch of 500 records of its own is under way"),
        (Figures(partitions=2), "no more records came of the 2 partitions that it reads"),
        (Figures(), "it reads no partition: other members of its group have them"),
        (Figures(committing=5, waiting={"orders:0": "run 7 is landing it"}), "run 7 is landing it"),
    ],
)
def test_who_gives_up_says_what_keeps_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, figures: Figures, why: str
) -> None:
    monkeypatch.setattr(consumer, "_ASK_EVERY", 0.0)
    source = meet(engine)
    Live(engine, source).take().land(0, 40)
    turns = consumer._Turns(True, timedelta(0), None, 1.0)
    turns.begin(engine, {(ASSET, source.id, 0): 100})
    assert not turns.over(figures)
    with pytest.raises(NotCaughtUp, match="60 offsets are not committed") as raised:
        turns.over(figures)
    assert why in str(raised.value)
    assert figures.left == 60
