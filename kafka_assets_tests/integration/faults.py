"""Faults that the tests of the one transaction bring about."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from kafka_assets.ledger.backends import backend_of
from kafka_assets.sinks import publish as publishing
from kafka_assets_tests.integration.databases import kill_backend
from kafka_assets_tests.ledgers import rows_of


def both(*work: Callable[[], object]) -> None:
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


def without_retries(work: Callable[[], object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "retried", lambda transaction: transaction())
        work()


def counted_tries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each try at the publishing transaction."""
    tries: list[int] = []
    transaction = publishing._transaction

    def counted(*given: Any, **more: Any) -> Any:
        tries.append(1)
        return transaction(*given, **more)

    monkeypatch.setattr(publishing, "_transaction", counted)
    return tries


def lose_in_commit(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    *,
    after: bool,
    then: Callable[[], object] = lambda: None,
    last: tuple[Any, str] = (publishing, "_advance"),
) -> None:
    """The first publishing transaction loses its connection in COMMIT: after the server did it, or before.

    Which one it is, its `last` step tells.
    """
    advance, commit = getattr(*last), engine.dialect.do_commit
    victims: list[str] = []
    lost: list[str] = []

    def arm(connection: Any, *given: Any, **where: Any) -> None:
        advance(connection, *given, **where)
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

    monkeypatch.setattr(*last, arm)
    monkeypatch.setattr(engine.dialect, "do_commit", lose)


def notes(engine: Engine) -> set[str]:
    return {note for _, _, note in rows_of(engine)}
