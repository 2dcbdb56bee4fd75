"""The one transaction on real servers: the suite that all databases share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from kafka_assets_tests.integration.databases import emptied, ledger
from kafka_assets_tests.publish_contract import PublishContract


@pytest.fixture(scope="module", params=["postgresql"])
def server(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with ledger(request.getfixturevalue(f"{request.param}_url"), name="publish_contract") as engine:
        yield engine


@pytest.fixture
def engine(server: Engine) -> Engine:
    return emptied(server)


class TestPublishOnServers(PublishContract):
    """The engine is of a server's."""
