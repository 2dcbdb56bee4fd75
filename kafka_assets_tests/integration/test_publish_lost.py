"""The one transaction on real servers, when its connection is lost, busy, or idle."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from kafka_assets import devstack
from kafka_assets.errors import Fenced, LedgerBusy
from kafka_assets.ledger import engine as doors
from kafka_assets.ledger import fences
from kafka_assets.ledger import publishing as frame
from kafka_assets.ledger.backends import backend_of, terminate
from kafka_assets.ledger.engine import make_engine
from kafka_assets.sinks import publish as publishing
from kafka_assets_tests.integration.databases import DATABASES, held, ledger
from kafka_assets_tests.integration.faults import counted_tries, lose_in_commit, notes
from kafka_assets_tests.ledgers import Attempt, chunk_of, plan, rows_of, scalar

ENCRYPTED = True
"""As users of MySQL speak to it: what a broken connection says is another error there."""


def test_a_number_that_is_used_again_is_not_ended(engine: Engine) -> None:
    with engine.connect() as connection:
        database, number, start = backend_of(connection).split(":")
        assert terminate(engine, f"{database}:{number}:{int(start) - 1}")
        assert connection.scalar(text("select 1")) == 1
        assert terminate(engine, f"{database}:{number}:{start}")
        with pytest.raises(Exception, match=r"(?i)terminat|lost|gone|kill|closed"):
            connection.scalar(text("select 1"))
        connection.invalidate()
    assert terminate(engine, f"{database}:{number}:{start}")


def test_each_try_names_its_own_backend_before_it_begins(engine: Engine) -> None:
    keys = plan(engine, slices=[(0, 5)])
    named: list[object] = []

    def busy_once() -> None:
        named.append(scalar(engine, "select backend from kafka_claim"))
        if len(named) == 1:
            raise LedgerBusy("busy, once")

    Attempt(engine, keys).claim().publish(between=busy_once)
    assert len(set(named)) == 2
    assert None not in named
    assert len(rows_of(engine)) == 5


def test_the_backend_of_a_try_that_was_busy_is_ended(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that loses the connection tells the server nothing: it would keep what the try has locked."""
    keys = plan(engine, slices=[(0, 5)])
    held = Attempt(engine, keys).claim().claims
    kept: list[Connection] = []
    close = doors._close
    with monkeypatch.context() as patch, pytest.raises(LedgerBusy), frame.publishing(engine, held) as this:
        patch.setattr(doors, "_close", lambda one: kept.append(one) if one is this.connection else close(one))
        this.connection.execute(text("update kafka_publication set run_id = 'busy'"))
        raise LedgerBusy("busy, once")
    assert len(kept) == 1
    with pytest.raises(DBAPIError):
        kept[0].scalar(text("select 1"))
    kept[0].invalidate()


@pytest.mark.parametrize("committed", [True, False])
def test_a_connection_lost_during_commit_is_asked_about(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    keys = plan(engine, slices=[(0, 5)])
    attempt = Attempt(engine, keys, replaces=True).claim()
    tries = counted_tries(monkeypatch)
    lose_in_commit(engine, monkeypatch, after=committed)
    [published] = attempt.publish()
    assert published.outcome is not None
    assert len(tries) == (1 if committed else 2)
    assert len(rows_of(engine)) == 5
    assert scalar(engine, "select committed_attempt from kafka_publication") == 1


def test_who_was_taken_over_while_its_commit_gave_no_answer_does_not_guess(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = plan(engine, slices=[(0, 5)])
    attempt = Attempt(engine, keys).claim()
    heirs: list[Attempt] = []

    def heir() -> None:
        heirs.append(Attempt(engine, keys, run_id="heir", replaces=True).claim(force=True))
        heirs[0].publish(chunk_of(keys[0], note="heir"))

    lose_in_commit(engine, monkeypatch, after=True, then=heir)
    with pytest.raises(Fenced, match="nobody can tell"):
        attempt.publish()
    assert notes(engine) == {"heir"}


def test_a_lock_that_is_not_to_be_had_is_tried_again_with_the_whole_transaction(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = plan(engine, slices=[(0, 5)])
    tries = counted_tries(monkeypatch)
    attempt = Attempt(engine, keys).claim()
    with held(engine, "select publication_id from kafka_claim for update") as other:
        release = threading.Timer(3, other.rollback)
        # The claim's lock comes last: what was done until then is undone, and done again.
        monkeypatch.setattr(frame, "register_backend", lambda *given: None)
        release.start()
        attempt.publish()
        release.join()
    assert len(tries) == 2
    assert len(rows_of(engine)) == 5


def test_the_transaction_may_pause_for_spark_but_not_once_others_wait(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = plan(engine, slices=[(0, 5)])
    tries = counted_tries(monkeypatch)
    impatient = make_engine(engine.url, lock_seconds=2, idle_seconds=1)
    advance = publishing._advance

    def pause_once(*given: Any) -> None:
        advance(*given)
        if len(tries) == 1:
            time.sleep(2.5)

    monkeypatch.setattr(publishing, "_advance", pause_once)
    monkeypatch.setattr(fences, "IDLE_SECONDS", 1)
    Attempt(impatient, keys).claim().publish(between=lambda: time.sleep(1.5))
    assert len(tries) == 2
    assert len(rows_of(engine)) == 5


@pytest.mark.parametrize("service", DATABASES)
def test_a_server_that_was_restarted_in_the_middle_is_tried_again(
    service: str, breakable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger(devstack.up(breakable, [service]).urls[service]) as engine:
        keys = plan(engine, slices=[(0, 5)])
        tries = counted_tries(monkeypatch)

        def restart_once() -> None:
            if len(tries) == 1:
                devstack.down(breakable, only=[service])
                devstack.up(breakable, [service])

        attempt = Attempt(engine, keys).claim()
        attempt.publish(between=restart_once)
        assert len(tries) >= 2
        assert len(rows_of(engine)) == 5
        assert scalar(engine, "select committed_attempt from kafka_publication") == 1
