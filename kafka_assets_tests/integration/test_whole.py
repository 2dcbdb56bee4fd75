"""Rows of whole slices on real servers: the suite that all databases share, and a neighbour's transaction."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import Engine

from kafka_assets.sinks import publish as publishing
from kafka_assets_tests.ledgers import Attempt, committed_through, plan
from kafka_assets_tests.whole_contract import WholeContract, land, standing, whole_chunk, whole_target


class TestWholeOnServers(WholeContract):
    """The engine is of each server."""

    @pytest.mark.parametrize("higher_first", [False, True])
    def test_a_replay_waits_for_no_neighbour(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, higher_first: bool
    ) -> None:
        keys = plan(engine, slices=[(0, 5), (5, 9)])
        land(engine, *(whole_chunk(key, ["a", "a"]) for key in keys))
        slow, quick = reversed(keys) if higher_first else keys
        monkeypatch.setattr(publishing, "retried", lambda transaction: transaction())
        inserted, done = threading.Event(), threading.Event()
        attempt = Attempt(engine, [slow], replaces=True).claim(force=True)
        waiting = threading.Thread(
            target=lambda: attempt.publish(
                whole_chunk(slow, ["b"]),
                table=whole_target(engine),
                between=lambda: inserted.set() or (done.wait(20) and None),
            )
        )
        waiting.start()
        assert inserted.wait(20)
        land(engine, whole_chunk(quick, ["b", "b", "b"]))
        done.set()
        waiting.join(20)
        assert {note for _, _, note in standing(engine)} == {"b"}
        assert committed_through(engine) == 9
