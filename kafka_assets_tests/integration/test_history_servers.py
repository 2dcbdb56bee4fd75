"""On the servers, too, what was landed long ago costs nothing: by the rows that each statement reads."""

from __future__ import annotations

import pytest

from kafka_assets_tests.histories import grown

UNDER_LOCKS = ("run:", "live:", "tick: a topic created again", "tick: plan", "tick: a request")


@pytest.mark.parametrize("server", ["mariadb", pytest.param("mysql", marks=pytest.mark.campaign)])
def test_no_operation_reads_history(
    server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert grown(request.getfixturevalue(f"{server}_url"), monkeypatch, within=1.2, loaded=True) == {}


def test_what_holds_locks_reads_no_history(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL reads a small table whole, rather than by an index: of a plain read that says nothing here."""
    found = grown(postgresql_url, monkeypatch, within=1.5)
    assert {name: rows for name, rows in found.items() if name.startswith(UNDER_LOCKS)} == {}
