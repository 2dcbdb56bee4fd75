"""The one transaction on real servers, with others at the same time: frozen, killed, lost, late."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, text

from kafka_assets.errors import Fenced, LedgerBusy
from kafka_assets.ledger import fences
from kafka_assets.ledger import publishing as frame
from kafka_assets.ledger.backends import backend_of, terminate
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets.ledger.janitor import end_expired
from kafka_assets.ledger.publications import Publication
from kafka_assets.sinks import publish as publishing
from kafka_assets_tests.integration.databases import held, kill_backend
from kafka_assets_tests.integration.publisher import Frozen
from kafka_assets_tests.ledgers import Attempt, chunk_of, committed_through, plan, rows_of, scalar, target

LOG = logging.getLogger(__name__)


def notes(engine: Engine) -> set[str]:
    return {note for _, _, note in rows_of(engine)}


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
            _without_retries(lambda: Attempt(engine, [second]).claim().publish())
        assert end_expired(engine, log=LOG) == []
        Attempt(engine, [second]).claim(force=True).publish()
        assert committed_through(engine) == 9
        assert scalar(engine, "select count(*) from kafka_claim where backend is not null and attempt = 1") == 0
        frozen.kill()
    assert notes(engine) == {"a"}


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


def test_neighbours_that_commit_at_the_same_time_leave_committed_through_right(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = plan(engine, slices=[(0, 5), (5, 9)])
    target(engine)
    advance, locked = publishing._advance, threading.Event()

    def one_after_the_other(connection: Any, done: list[Publication]) -> None:
        if done[0].key == second:
            locked.wait(10)
        advance(connection, done)
        if done[0].key == first:
            locked.set()
            time.sleep(0.7)  # the other one waits for the row by now

    monkeypatch.setattr(publishing, "_advance", one_after_the_other)
    _both(lambda: Attempt(engine, [first]).claim().publish(), lambda: Attempt(engine, [second]).claim().publish())
    assert committed_through(engine) == 9


def test_publishers_of_several_partitions_never_wait_for_each_other_in_a_circle(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The publications of the second pair were planned in the other order.
    one = [*plan(engine, slices=[(0, 5)]), *plan(engine, slices=[(0, 5)], partition=1)]
    two = [*plan(engine, slices=[(5, 9)], partition=1), *plan(engine, slices=[(5, 9)])]
    target(engine)
    advance, meet = publishing.advance, threading.Barrier(2)

    def slowly(*given: Any, **where: Any) -> None:
        advance(*given, **where)
        time.sleep(0.5)

    monkeypatch.setattr(publishing, "advance", slowly)
    monkeypatch.setattr(publishing, "retried", lambda transaction: transaction())

    def publish(keys: Any) -> Callable[[], object]:
        return lambda: Attempt(engine, keys).claim().publish(confirm=lambda seen: meet.wait(10) and None)

    _both(publish(one), publish(two))
    assert (committed_through(engine), committed_through(engine, 1)) == (9, 9)


@pytest.mark.parametrize("committed", [True, False])
def test_a_connection_lost_during_commit_is_asked_about(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    keys = plan(engine, slices=[(0, 5)])
    attempt = Attempt(engine, keys, replaces=True).claim()
    tries = _tries(monkeypatch)
    _lose_in_commit(engine, monkeypatch, after=committed)
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

    _lose_in_commit(engine, monkeypatch, after=True, then=heir)
    with pytest.raises(Fenced, match="nobody can tell"):
        attempt.publish()
    assert notes(engine) == {"heir"}


def test_a_lock_that_is_not_to_be_had_is_tried_again_with_the_whole_transaction(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = plan(engine, slices=[(0, 5)])
    tries = _tries(monkeypatch)
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
    tries = _tries(monkeypatch)
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


def _both(*work: Callable[[], object]) -> None:
    errors: list[Exception] = []

    def run(one: Callable[[], object]) -> None:
        try:
            one()
        except Exception as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]


def _without_retries(work: Callable[[], object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "retried", lambda transaction: transaction())
        work()


def _tries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each try at the publishing transaction."""
    tries: list[int] = []
    transaction = publishing._transaction

    def counted(*given: Any, **more: Any) -> Any:
        tries.append(1)
        return transaction(*given, **more)

    monkeypatch.setattr(publishing, "_transaction", counted)
    return tries


def _lose_in_commit(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, *, after: bool, then: Callable[[], object] = lambda: None
) -> None:
    """The first publishing transaction loses its connection in COMMIT: after the server did it, or before."""
    advance, commit = publishing._advance, engine.dialect.do_commit
    victims: list[str] = []
    lost: list[str] = []

    def arm(connection: Any, done: Any) -> None:
        advance(connection, done)
        if not lost:
            victims.append(backend_of(connection))

    def lose(raw: Any) -> None:
        if not victims:
            commit(raw)
            return
        lost.append(victims.pop())
        if after:
            commit(raw)
        kill_backend(engine, lost[0])
        then()
        commit(raw)
        with raw.cursor() as cursor:  # where the driver has nothing to commit, it does not ask the server
            cursor.execute("select 1")

    monkeypatch.setattr(publishing, "_advance", arm)
    monkeypatch.setattr(engine.dialect, "do_commit", lose)
