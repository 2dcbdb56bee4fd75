"""A question that nobody answered is not asked again by the same client."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_assets.broker import topic_ids
from kafka_assets.broker.admin import Admin
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import BrokerUnavailable


@pytest.mark.slow
def test_a_client_that_got_no_answer_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Admin] = []

    def counted(*arguments: Any, **named: Any) -> Admin:
        made.append(Admin(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(topic_ids, "Admin", counted)
    ids = topic_ids.TopicIds(Connection("127.0.0.1:1", {}), timeout=0.2)
    for tries in (1, 2):
        with pytest.raises(BrokerUnavailable):
            ids.require({"orders": "an id"})
        assert len(made) == tries
