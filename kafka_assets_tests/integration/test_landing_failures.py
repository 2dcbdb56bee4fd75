"""What an asset's function does wrong, through real runs: written down, given up, and landed once it is cured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_assets_tests.integration.project import Landing, failure_of

Declare = Callable[..., Landing]


def claim_of(stream: Landing) -> tuple[Any, ...]:
    [found] = stream.rows(
        "select u.state, c.attempt, c.failures_alone, c.failure from kafka_claim c"
        " join kafka_publication u on u.id = c.publication_id"
    )
    return found


def test_a_function_that_raises_is_given_up_and_lands_once_it_is_cured(landing: Declare) -> None:
    def broken(records: Any) -> Any:
        raise RuntimeError("the rate is not known")

    stream = landing(transform=broken, max_attempts=1)
    stream.topic()
    stream.produce_ids(0, 10)
    [request] = stream.tick().requests
    assert not stream.run(request).success
    assert claim_of(stream) == ("failed", 1, 1, "RuntimeError: the rate is not known")
    again = stream.tick()
    assert again.requests == []
    assert "failed too often" in str(again.troubles)
    cured = stream.declared_again(transform=None)
    assert cured.replay(stream.keys()[0]).success
    assert claim_of(stream) == ("committed", 2, 1, None)
    assert stream.sql(f"select count(*) from {stream.name}") == 10


def test_a_function_without_a_return_is_told_what_is_missing(landing: Declare) -> None:
    def silent(records: Any) -> None:
        records.where("id > 3")

    stream = landing(transform=silent)
    stream.topic()
    stream.produce_ids(0, 10)
    [request] = stream.tick().requests
    assert "returned None, which is no DataFrame" in failure_of(stream.run(request))
    assert "end it with `return`" in claim_of(stream)[3]
