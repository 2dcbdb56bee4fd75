"""The live consumer on a real broker and every database: exact, whatever becomes of its members and topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import TopicPartition

from kafka_assets.broker.admin import admin
from kafka_assets.broker.configs import add_partitions
from kafka_assets.broker.groups import describe_group
from kafka_assets.broker.offsets import TopicOffsets, observe
from kafka_assets.broker.produce import Record, produce, transaction
from kafka_assets.broker.topic_ids import TopicIds
from kafka_assets.broker.topics import delete_topic
from kafka_assets.errors import BrokerUnavailable, NotCaughtUp, SliceFailed, TopicChanged, TopicMissing
from kafka_assets.live import beginning
from kafka_assets.live.consumer import LiveConsumer
from kafka_assets.live.landing import Landing
from kafka_assets.live.limits import Limits
from kafka_assets.settings import Settings
from kafka_assets_tests.integration.groups import fresh
from kafka_assets_tests.integration.living import Living, orders, waited

Declare = Callable[..., Living]


@pytest.fixture
def living(tmp_path: Path, broker: str) -> Iterator[Declare]:
    """Declares a stream that lands in a SQLite file."""
    made: list[Living] = []

    def declare(*, function: Any = None, **attributes: Any) -> Living:
        url = f"sqlite:///{tmp_path / 'warehouse.db'}"
        made.append(Living(broker, url, tmp_path, orders(**attributes), function))
        return made[-1]

    yield declare
    for one in made:
        one.engine.dispose()


def test_records_land_as_they_come_and_the_window_grows_until_it_is_closed(living: Declare) -> None:
    stream = living()
    stream.topic(partitions=2)
    stream.ids(0, 50)
    with stream.consuming():
        waited(lambda: stream.count == 50)
        stream.ids(50, 80)
        stream.ids(80, 100, partition=1)
        waited(lambda: stream.count == 100)
        slices = "select partition, start_offset, end_offset, is_open from kafka_slice order by partition"
        assert stream.rows(slices) == [(0, 0, 80, 1), (1, 0, 20, 1)]
    assert stream.rows(slices) == [(0, 0, 80, 0), (1, 0, 20, 0)]
    assert stream.exact() and stream.sql("select count(*) from kafka_progress where owner is not null") == 0
    assert stream.sql("select count(*) from kafka_lineage") is not None
    [consumer] = stream.consumers
    assert (consumer.figures.records, consumer.figures.rows, consumer.figures.lag) == (100, 100, 0)


def test_bad_records_are_quarantined_and_too_many_end_it(living: Declare) -> None:
    stream = living()
    stream.topic()
    stream.produce(b'{"id": 1, "note": "n"}', b"{cut", b'{"id": 2}')
    with stream.consuming():
        waited(lambda: stream.count == 2)
    assert stream.rows("select kafka_offset, value from kafka_quarantine") == [(1, b"{cut")]
    stream.produce(*[b"no"] * 200)
    with pytest.raises(SliceFailed, match="max_bad_ratio"):
        stream.consumer().run()
    assert stream.count == 2
    assert stream.sql("select count(*) from kafka_progress where owner is not null") == 0


def test_control_records_and_what_was_aborted_are_holes(living: Declare) -> None:
    stream = living()
    stream.topic()
    for ends in ("commit", "abort"):
        with transaction(stream.connection, stream.stream.reads, transactional_id=fresh("tx")) as one:
            one.produce([Record(value=b'{"id": 7}', partition=0)])
            getattr(one, ends)()
    with stream.consuming():
        waited(lambda: stream.count == 1)
        waited(lambda: stream.sql("select planned_through from kafka_progress") == 4)
    assert stream.sql("select holes from kafka_publication") == 3 and stream.exact()


def test_an_arrow_form_filters_and_changes_the_rows(living: Declare) -> None:
    def form(records: pa.Table) -> pa.Table:
        kept = records.filter(pc.greater(records.column("id"), 10))
        return kept.append_column("twice", pc.multiply(kept.column("id"), 2))

    stream = living(function=form)
    stream.topic()
    stream.ids(0, 20)
    with stream.consuming():
        waited(lambda: stream.count == 9)
    assert stream.rows(f"select min(id), max(twice) from {stream.stream.target}") == [(11, 38)]
    assert stream.sql("select filtered from kafka_publication") == 11


def test_a_partition_that_is_added_and_a_topic_that_matches_later_are_landed_and_counted(
    living: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = fresh("shop")
    stream = living(topics=rf"{prefix}\..*")
    stream.topic(name=f"{prefix}.a")
    with caplog.at_level(logging.INFO, logger="kafka_assets"), stream.consuming():
        stream.ids(0, 10, topic=f"{prefix}.a")
        waited(lambda: stream.count == 10)
        before = stream.consumers[0].figures.rebalances
        stream.topic(name=f"{prefix}.b")
        stream.ids(10, 20, topic=f"{prefix}.b")
        waited(lambda: stream.count == 20)
        add_partitions(stream.connection, f"{prefix}.a", 2)
        stream.ids(20, 30, partition=1, topic=f"{prefix}.a")
        waited(lambda: stream.count == 30)
        assert stream.consumers[0].figures.rebalances >= before + 2
    assert f"the topic {prefix}.b matches now" in caplog.text and stream.exact()
    assert stream.rows("select topic, incarnation from kafka_source order by topic") == [
        (f"{prefix}.a", 1),
        (f"{prefix}.b", 1),
    ]


def test_a_pattern_may_begin_with_flags(living: Declare) -> None:
    prefix = fresh("shop")
    stream = living(topics=rf"(?i){prefix}\..*")
    stream.topic(name=f"{prefix.upper()}.a")
    stream.ids(0, 10, topic=f"{prefix.upper()}.a")
    assert stream.consumer().run(until_caught_up=True).records == 10


def test_a_member_that_joins_and_one_that_leaves_lose_nothing(living: Declare) -> None:
    stream = living()
    stream.topic(partitions=4)
    with stream.consuming():
        for partition in range(4):
            stream.ids(0, 100, partition)
        waited(lambda: stream.count > 0)
        with stream.consuming() as [second]:
            waited(lambda: second.figures.partitions == 2, also=lambda: stream.ids(100, 105, 3))
            for partition in range(4):
                stream.ids(200, 300, partition)
            produced = 800 + stream.sql("select 0")
            waited(lambda: stream.count >= produced)
        for partition in range(4):
            stream.ids(300, 310, partition)
        waited(lambda: stream.sql("select count(*) from kafka_progress where owner is not null") == 4)
        waited(lambda: stream.count == stream.sql("select sum(records_read) from kafka_publication"))
    assert stream.exact()
    ends = stream.sql("select sum(planned_through) from kafka_progress")
    assert stream.count == ends


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_assignors_that_take_all_and_give_anew_lose_nothing(living: Declare, assignor: str) -> None:
    stream = living()
    stream.topic(partitions=4)
    with stream.consuming(assignor=assignor) as [first]:
        for partition in range(4):
            stream.ids(0, 50, partition)
        waited(lambda: stream.count > 0)
        with stream.consuming(assignor=assignor) as [second]:
            waited(lambda: (first.figures.partitions, second.figures.partitions) == (2, 2))
            assert stream.described().partition_assignor == assignor
            for partition in range(4):
                stream.ids(50, 100, partition)
            waited(lambda: stream.count == 400)
    assert stream.exact() and stream.sql("select count(*) from kafka_progress where owner is not null") == 0


def test_a_topic_that_is_created_again_is_begun_with_and_the_rest_of_the_old_one_is_lost(living: Declare) -> None:
    stream = living()
    stream.topic()
    stream.ids(0, 30)
    with stream.consuming() as [consumer]:
        waited(lambda: stream.count == 30)
        delete_topic(stream.connection, stream.stream.reads)
        stream.topic()
        stream.ids(100, 140)  # beyond the offset that the consumer has in the old one
        waited(lambda: stream.count == 70, patience=90)
        # A member that is slow hears of it from the group, which takes the partition away in between.
        assert consumer.figures.restarts or consumer.figures.rebalances > 1
    assert stream.rows("select incarnation, retired_at is null from kafka_source order by id") == [(1, 0), (2, 1)]
    assert stream.rows(f"select min(id), max(id) from {stream.stream.target} where id >= 100") == [(100, 139)]
    assert stream.exact()


def test_a_topic_of_the_same_name_is_not_the_same_topic(living: Declare) -> None:
    stream = living()
    topic = stream.stream.reads
    stream.topic()
    known = observe(stream.connection, [topic])[topic]
    assert isinstance(known, TopicOffsets)
    ids = TopicIds(stream.connection)
    ids.require({topic: known.topic_id})
    delete_topic(stream.connection, topic)
    with pytest.raises(TopicMissing):
        ids.require({topic: known.topic_id})
    stream.topic()
    with pytest.raises(TopicChanged, match="deleted and created again"):
        ids.require({topic: known.topic_id})


def test_nothing_is_committed_before_the_topics_id_was_asked(living: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, str]] = []

    def require(self: TopicIds, ids: dict[str, str]) -> None:
        asked.append(ids)
        if len(asked) == 1:
            raise TopicChanged("it was created again just now")

    monkeypatch.setattr(TopicIds, "require", require)
    stream = living()
    stream.topic()
    stream.ids(0, 30)
    with stream.consuming() as [consumer]:
        waited(lambda: stream.count == 30)
    assert (consumer.figures.restarts, consumer.figures.commits, len(asked)) == (1, 1, 2) and stream.exact()


@pytest.mark.parametrize("policy", ["record", "fail"])
def test_what_expired_before_it_was_read_is_recorded_or_said(living: Declare, policy: str) -> None:
    stream = living(on_expired=policy)
    stream.topic()
    stream.ids(0, 10)
    with stream.consuming():
        waited(lambda: stream.count == 10)
    stream.ids(10, 40)
    with admin(stream.connection) as asking:
        asking.answers(asking.client.delete_records([TopicPartition(stream.stream.reads, 0, 25)]))
    with stream.consuming() as [consumer]:
        if policy == "record":
            waited(lambda: stream.count == 25)
        else:
            waited(lambda: consumer.figures.troubles)
            assert "expired before they were planned" in next(iter(consumer.figures.troubles.values()))
    lost = stream.rows("select start_offset, end_offset from kafka_slice where kind = 'lost'")
    assert lost == ([(10, 25)] if policy == "record" else [])
    assert stream.exact()


def test_what_expires_under_a_consumer_is_never_jumped_over(living: Declare) -> None:
    stream = living(on_expired="record")
    stream.topic()
    stream.ids(0, 10)
    with stream.consuming() as [consumer]:
        waited(lambda: stream.count == 10)
        # An open transaction keeps the consumer where it is while retention passes it.
        with transaction(stream.connection, stream.stream.reads, transactional_id=fresh("tx")) as one:
            one.produce([Record(value=b'{"id": %d}' % number, partition=0) for number in range(10)])
            stream.ids(20, 25)
            with admin(stream.connection) as asking:
                asking.answers(asking.client.delete_records([TopicPartition(stream.stream.reads, 0, 22)]))
            waited(lambda: consumer.figures.restarts)
            one.commit()
        waited(lambda: stream.sql("select planned_through from kafka_progress") == 26)
    lost = stream.rows("select start_offset, end_offset from kafka_slice where kind = 'lost'")
    assert lost == [(10, 22)] and stream.count == 13 and stream.exact()


def test_a_stream_that_is_too_far_behind_is_read_from_its_newest_offsets_on(
    living: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beginning, "_REVIEWED_EVERY", 0.2)
    stream = living(skip_when_behind={"records": 100, "keep": 10, "every": "1s"})
    stream.topic()
    stream.ids(0, 90)
    with stream.consuming():
        waited(lambda: stream.count == 90)  # not too many
    stream.ids(90, 390)
    with stream.consuming():
        waited(lambda: stream.count == 100)
        skipped = "select start_offset, end_offset from kafka_slice where kind = 'skipped' order by start_offset"
        assert stream.rows(skipped) == [(90, 380)]
        time.sleep(1.1)
        # An open transaction keeps the consumer where it is: what it holds back is jumped over when it ends.
        with transaction(stream.connection, stream.stream.reads, transactional_id=fresh("tx")) as one:
            one.produce([Record(value=b'{"id": 1}', partition=0)])
            stream.ids(400, 600)
            one.commit()
        waited(lambda: stream.sql("select planned_through from kafka_progress") == 592)
    assert stream.exact() and stream.sql("select count(*) from kafka_slice where kind = 'skipped'") in {1, 2}


def test_old_records_are_left_out_by_their_own_time(living: Declare) -> None:
    stream = living(skip_when_behind={"age": "1h", "keep": 5})
    stream.topic()
    old_ms = 1_600_000_000_000
    records = (Record(value=b'{"id": %d}' % number, partition=0, timestamp_ms=old_ms) for number in range(40))
    produce(stream.connection, stream.stream.reads, records)
    stream.ids(40, 60)
    with stream.consuming():
        waited(lambda: stream.count == 5)
        stream.ids(60, 100)
        waited(lambda: stream.count == 45)  # young ones are landed, however many
    skipped = stream.rows("select start_offset, end_offset, reason from kafka_slice where kind = 'skipped'")
    assert [one[:2] for one in skipped] == [(0, 55)] and skipped[0][2].startswith("skip_when_behind")
    assert stream.exact()


def test_what_retention_took_is_lost_and_not_jumped_over(living: Declare) -> None:
    stream = living(on_expired="record", skip_when_behind={"records": 100, "keep": 10, "every": "1s"})
    stream.topic()
    stream.ids(0, 10)
    stream.consumer().run(until_caught_up=True)
    stream.ids(10, 400)
    with admin(stream.connection) as asking:
        asking.answers(asking.client.delete_records([TopicPartition(stream.stream.reads, 0, 200)]))
    stream.consumer().run(until_caught_up=True)
    slices = "select start_offset, end_offset, kind from kafka_slice order by start_offset"
    assert stream.rows(slices) == [(0, 10, "normal"), (10, 200, "lost"), (200, 390, "skipped"), (390, 400, "normal")]
    assert stream.count == 20 and stream.exact()


def test_it_ends_when_it_has_caught_up_and_kafka_is_told_only_on_request(living: Declare) -> None:
    stream = living()
    stream.topic(partitions=3)
    for partition in range(3):
        stream.ids(0, 40, partition)
    done = stream.consumer(tell_kafka=True).run(until_caught_up=True)
    assert (done.records, stream.count) == (120, 120)
    assert set(describe_group(stream.connection, stream.stream.asset).offsets.values()) == {40}
    stream.ids(40, 50)
    assert stream.consumer().run(until_caught_up=True).records == 10
    assert describe_group(stream.connection, stream.stream.asset).offsets[stream.stream.reads, 0] == 40
    assert stream.consumer().run(until_caught_up=True).records == 0


def test_a_backlog_of_several_batches_is_landed_before_it_counts_as_caught_up(
    living: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    land = Landing.land

    def slowly(self: Landing, parts: Any) -> Any:
        time.sleep(0.4)  # the partition is leased, and most of it not landed, whenever the ledger is asked
        return land(self, parts)

    monkeypatch.setattr(Landing, "land", slowly)
    stream = living()
    stream.topic()
    stream.ids(0, 900)
    done = stream.consumer(limits=Limits(records=100, delay=0.05)).run(until_caught_up=True)
    assert (done.records, stream.count) == (900, 900) and done.commits >= 9


def test_a_partition_in_trouble_has_not_caught_up(living: Declare) -> None:
    stream = living(on_expired="fail")
    stream.topic(partitions=2)
    stream.ids(0, 30)
    stream.ids(0, 40, partition=1)
    stream.consumer().run(until_caught_up=True)
    stream.ids(30, 60)
    with admin(stream.connection) as asking:
        asking.answers(asking.client.delete_records([TopicPartition(stream.stream.reads, 0, 45)]))
    with pytest.raises(NotCaughtUp, match="30 offsets are not committed") as raised:
        stream.consumer().run(until_caught_up=True, patience=timedelta(seconds=2))
    assert "expired before they were planned" in raised.value.why
    assert stream.sql("select count(*) from kafka_progress where owner is not null") == 0


def test_nothing_to_connect_to_and_no_topic_are_said_at_once(living: Declare, tmp_path: Path) -> None:
    stream = living()
    with pytest.raises(TopicMissing, match=stream.stream.reads):
        stream.consumer().run()
    nowhere = Settings(
        project=tmp_path, streams=tmp_path, bootstrap_servers="127.0.0.1:1", database_url=stream.database_url
    )
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        LiveConsumer(stream.form, settings=nowhere).run()
