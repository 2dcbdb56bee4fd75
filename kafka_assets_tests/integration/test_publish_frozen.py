"""The one transaction on real servers, when a process is frozen or killed in it."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import Engine, text

from kafka_assets.errors import LedgerBusy
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.janitor import end_expired
from kafka_assets_tests.integration.faults import notes, without_retries
from kafka_assets_tests.integration.publisher import Frozen
from kafka_assets_tests.ledgers import Attempt, chunk_of, committed_through, plan, rows_of, scalar, target

ENCRYPTED = True
"""As users of MySQL speak to it: what a broken connection says is another error there."""
LOG = logging.getLogger(__name__)


@pytest.mark.parametrize("where", ["between", "copy", "verified", "advanced"])
def test_a_frozen_holder_is_ended_and_its_slice_taken_over(engine: Engine, where: str) -> None:
    keys = plan(engine, slices=[(0, 500)])
    target(engine)
    with Frozen(engine, where, keys) as frozen:
        heir = Attempt(engine, keys, run_id="heir").claim()
        heir.publish(chunk_of(keys[0], note="heir"))
        assert notes(engine) == {"heir"}
        assert frozen.woken() == "Fenced"
    assert notes(engine) == {"heir"}
    assert scalar(engine, "select committed_attempt from kafka_publication") == 2


@pytest.mark.parametrize("where", ["between", "verified"])
def test_what_a_killed_process_had_inserted_is_gone_and_holds_no_lock(engine: Engine, where: str) -> None:
    keys = plan(engine, slices=[(0, 500)])
    target(engine)
    with Frozen(engine, where, keys) as frozen:
        frozen.kill()
        assert rows_of(engine) == []
        # No claim ends it here: the server notices by itself.
        with write(engine) as connection:
            connection.execute(text("select id from kafka_publication for update")).all()
    Attempt(engine, keys).claim().publish()
    assert len(rows_of(engine)) == 500


def test_the_sensor_ends_a_frozen_replay_of_a_committed_slice(engine: Engine) -> None:
    first, second = plan(engine, slices=[(0, 5), (5, 9)])
    Attempt(engine, [first]).claim().publish()
    with Frozen(engine, "advanced", [first]) as frozen:
        # It holds the row of committed_through, for which every neighbour waits.
        with pytest.raises(LedgerBusy):
            without_retries(lambda: Attempt(engine, [second]).claim().publish())
        assert end_expired(engine, log=LOG) == []
        Attempt(engine, [second]).claim(force=True).publish()
        assert committed_through(engine) == 9
        assert scalar(engine, "select count(*) from kafka_claim where backend is not null and attempt = 1") == 0
        frozen.kill()
    assert notes(engine) == {"a"}
