"""skip_when_behind on the real servers: the suite that all databases share, and a real broker's records."""

from __future__ import annotations

from collections.abc import Callable

from kafka_assets.broker.produce import Record, produce
from kafka_assets_tests.behind_contract import BehindContract
from kafka_assets_tests.integration.project import Landing

Declare = Callable[..., Landing]
OLD_MS = 1_600_000_000_000


class TestBehindOnServers(BehindContract):
    """The engine is of each server."""


def test_a_stream_that_is_behind_lands_its_newest_records(landing: Declare) -> None:
    stream = landing(skip_when_behind={"records": 100, "keep": 30, "every": "15m"})
    stream.topic()
    stream.produce_ids(0, 100)
    stream.land()
    assert stream.sql(f"select count(*) from {stream.name}") == 100
    stream.produce_ids(100, 300)
    stream.land()
    assert stream.rows(f"select min(id), max(id), count(*) from {stream.name} where id >= 100") == [(270, 299, 30)]
    stream.produce_ids(300, 500)
    stream.land()
    assert stream.sql(f"select count(*) from {stream.name}") == 330, "so soon after, all is landed"
    assert stream.sql("select count(*) from kafka_gap") == 0


def test_old_records_are_left_out_by_their_own_time(landing: Declare) -> None:
    stream = landing(skip_when_behind={"age": "1h", "keep": 5})
    stream.topic()
    years_ago = (Record(value=b'{"id": %d}' % number, partition=0, timestamp_ms=OLD_MS) for number in range(40))
    produce(stream.connection, stream.name, years_ago)
    stream.produce_ids(40, 60)
    stream.land()
    assert stream.rows(f"select min(id), count(*) from {stream.name}") == [(55, 5)]
    stream.produce_ids(60, 100)
    stream.land()
    assert stream.sql(f"select count(*) from {stream.name}") == 45, "young ones are landed, however many"
