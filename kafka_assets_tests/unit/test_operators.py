"""The operators' commands that need only the ledger; and every one of them without a broker, or with a wrong name."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from kafka_assets.audit import streams
from kafka_assets.audit.taking_over import Columns, origins, sql_offsets, table_offsets
from kafka_assets.broker.offsets import PartitionOffsets
from kafka_assets.cli.asking import milliseconds, shown_time
from kafka_assets.errors import KafkaAssetsError, SettingsError, UsageError
from kafka_assets.ledger.claims import record_failure
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.stalls import stall
from kafka_assets.sinks.accounting import BadPolicy
from kafka_assets_tests.commands import Commands
from kafka_assets_tests.ledgers import Attempt, chunk_of, committed_through, plan, rows
from kafka_assets_tests.skip_contract import whole

STREAMS = """
type: kafka_assets.KafkaTopic
attributes: {topic: orders, target: orders, schema: "id BIGINT, note STRING", slices: {max_records: 10}}
"""
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def command(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    """In a project with the stream `orders`, on this test's ledger, and a broker that is down."""
    (tmp_path / "defs").mkdir()
    (tmp_path / "defs" / "orders.yaml").write_text(STREAMS)
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", str(engine.url))
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", NOWHERE)
    monkeypatch.setenv("KAFKA_ASSETS_SPARK_REMOTE", "sc://localhost:1")
    monkeypatch.delenv("KAFKA_ASSETS_STREAMS", raising=False)
    return Commands(monkeypatch, capsys)


@pytest.fixture
def history(engine: Engine) -> Engine:
    """A committed slice with a bad record, one that was given up, and one that waits."""
    keys = plan(engine, slices=[(0, 10), (10, 20), (20, 30)], end=45)
    attempt = Attempt(engine, keys[:1]).claim()
    attempt.publish(chunk_of(keys[0], bad=[4]), policy=BadPolicy("quarantine", 1.0))
    record_failure(engine, Attempt(engine, keys[1:2]).claim().claims, reason="it is bad", max_attempts=1)
    return engine


@pytest.mark.slow
def test_streams_show_where_they_stand(command: Commands, history: Engine) -> None:
    [one] = command("streams", "--json", code=1).json
    assert (one["stream"], one["reads"], one["target"], one["mode"]) == ("orders", "orders", "orders", "append")
    assert (one["partitions"], one["lag"], one["waiting"], one["failed"], one["quarantined"]) == (1, 35, 1, 1, 1)
    assert "orders" in command("streams", code=1).out


@pytest.mark.slow
def test_streams_count_bad_records_up_to_a_number(
    command: Commands, history: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with write(history) as connection:
        connection.execute(
            text(
                "insert into kafka_quarantine (asset, kafka_source, kafka_partition, kafka_offset, slice_id, reason,"
                " quarantined_at) select asset, kafka_source, kafka_partition, 5, slice_id, reason, quarantined_at"
                " from kafka_quarantine"
            )
        )
    for most, shown in ((2, (2, False)), (1, (1, True))):
        monkeypatch.setattr(streams, "QUARANTINED", most)
        [one] = command("streams", "--json", code=1).json
        assert (one["quarantined"], one["more_quarantined"]) == shown
    assert "1+" in command("streams", code=1).out


@pytest.mark.slow
def test_streams_are_listed_before_there_is_a_ledger(
    command: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_DATABASE_URL", f"sqlite:///{tmp_path / 'new.db'}")
    assert [(one["partitions"], one["lag"]) for one in command("streams", "--json").json] == [(0, 0)]
    for wants_one in (["lag"], ["slices", "orders"], ["quarantine", "list"]):
        assert "has no ledger" in command(*wants_one, code=1).err


@pytest.mark.slow
def test_lag_is_shown_for_each_partition(command: Commands, history: Engine) -> None:
    [one] = command("lag", "orders", "--json", code=1).json
    assert (one["topic"], one["partition"], one["committed_through"], one["lag"]) == ("orders", 0, 10, 35)
    assert "last planned from what was there at" in command("lag", code=1).out


@pytest.mark.slow
def test_that_the_broker_is_away_or_nobody_looks_is_said_in_words(command: Commands, history: Engine) -> None:
    for words in ("lag", "streams"):
        assert "orders: the broker did not answer, so nobody knows" in command(words, code=1).out
        said = command(words, "--json", code=1)
        assert "orders: the broker did not answer, so nobody knows" in said.err
        assert said.json[0]["trouble"].startswith("the broker did not answer, so nobody knows")
    with write(history) as connection:
        connection.execute(text("update kafka_progress set observed_at = '2020-01-01 00:00:00.000000'"))
    said = command("lag", code=1).out
    assert "orders: nothing was planned of orders for" in said
    assert "the broker does not answer" in said


@pytest.mark.slow
def test_a_stream_that_was_never_planned_has_its_line_and_the_reason(
    command: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_assets.broker.admin.ALL_DOWN_GRACE", 0.2)
    why = "nothing of orders was ever planned"
    [one] = command("streams", "--json", code=1).json
    assert (one["stream"], one["partitions"], one["trouble"][: len(why)]) == ("orders", 0, why)
    [one] = command("lag", "--json", code=1).json
    assert (one["asset"], one["topic"], one["partition"], one["lag"]) == ("orders", "orders", None, None)
    assert one["trouble"].startswith(why) and NOWHERE in one["trouble"]
    for words in ("streams", "lag"):
        said = command(words, code=1).out
        assert [line.split()[0] for line in said.splitlines()[1:]] == ["orders", "orders:"], said
        assert f"orders: {why}" in said


@pytest.mark.slow
def test_what_keeps_a_stream_from_landing_stands_beside_where_it_is(
    command: Commands, history: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_assets.broker.admin.ALL_DOWN_GRACE", 0.2)
    stall(history, asset="orders", failure="the table has no column 'currency'", code_version="v1")
    for words in ("streams", "lag"):
        [one] = command(words, "--json", code=1).json
        assert "nothing lands: the table has no column 'currency' · " in one["trouble"]
        assert "nothing lands: the table has no column 'currency'" in command(words, code=1).out


@pytest.mark.slow
def test_slices_are_listed_by_state(command: Commands, history: Engine) -> None:
    found = command("slices", "orders", "--json").json
    assert [(one["slice"], one["state"]) for one in found] == [
        ("orders:0:0-10", "committed"),
        ("orders:0:10-20", "failed"),
        ("orders:0:20-30", "planned"),
    ]
    assert [one["reason"] for one in found] == [None, "it is bad", None]
    assert (found[0]["records_read"], found[0]["landed"], found[0]["quarantined"]) == (10, 9, 1)
    [failed] = command("slices", "orders", "--state", "failed", "--json").json
    assert failed["slice"] == "orders:0:10-20"
    assert "orders:0:20-30" in command("slices", "orders", "--limit", "1").out


@pytest.mark.slow
def test_quarantine_is_counted_and_shown(command: Commands, history: Engine) -> None:
    [reason] = command("quarantine", "list", "--json").json
    assert (reason["asset"], reason["example"], reason["records"]) == ("orders", "no good", 1)
    [bad] = command("quarantine", "show", "orders", "--json").json
    assert (bad["partition"], bad["offset"], bad["value"], bad["value_base64"]) == (0, 4, None, "/w==")
    assert "no good" in command("quarantine", "list").out
    assert "orders:0:4" in command("quarantine", "show", "orders").out
    assert command("quarantine", "show", "orders", "--offset", "5", "--json").json == []


@pytest.mark.slow
def test_skip_takes_slices_by_key(command: Commands, history: Engine) -> None:
    done = command("skip", "orders", "orders:0:10-20", "--reason", "bad batch", "--yes", "--json").json
    assert done == {"skipped": ["orders:0:10-20"], "left": {}, "offsets": 10}
    assert rows(history, "select reason from kafka_slice where kind = 'skipped'") == [("bad batch",)]
    assert committed_through(history) == 20
    assert whole(history)


@pytest.mark.slow
def test_skip_takes_a_range_and_leaves_what_crosses_its_bounds(command: Commands, history: Engine) -> None:
    at = ["--partition", "0", "--from", "5", "--to", "25"]
    done = command("skip", "orders", *at, "--reason", "r", "--yes", "--json").json
    assert done["skipped"] == ["orders:0:10-20"]
    assert list(done["left"]) == ["orders:0:0-10", "orders:0:20-30"]
    assert whole(history)


@pytest.mark.slow
def test_skip_asks_first_and_nobody_is_no_yes(command: Commands, history: Engine) -> None:
    said = command("skip", "orders", "orders:0:10-20", "--reason", "r", code=2)
    assert "nothing was done" in said.err and "--yes" in said.err
    assert rows(history, "select count(*) from kafka_slice where kind <> 'normal'") == [(0,)]


@pytest.mark.slow  # all of them together
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["skip", "orders", "orders:0:0-10", "--reason", "r", "--yes"], "has committed it"),
        (["skip", "orders", "orders:0:99-100", "--reason", "r", "--yes"], "has no slice orders:0:99-100"),
        (["skip", "orders", "nonsense", "--reason", "r", "--yes"], "is not the key of a slice"),
        (["skip", "orders", f"orders:0:0-{10**30}", "--reason", "r"], "is not the key of a slice"),
        (["skip", "orders", "orders:0:10-20", "--yes"], "a skip needs its reason"),
        (["skip", "orders", "--reason", "r", "--yes"], "say which slices"),
        (["skip", "orders", "--from", "3", "--reason", "r"], "offsets are of one partition"),
        (["skip", "orders", "--partition", "0", "--from", "9", "--to", "3", "--reason", "r"], "is not after"),
        (["skip", "orders", "--partition", "0", "--from", "2", "--to", "8", "--reason", "r"], "nothing to skip"),
        (["skip", "orders", "--partition", "7", "--from", "2", "--reason", "r"], "no partition 7"),
        (["skip", "nobody", "k", "--reason", "r"], "there is no stream 'nobody'"),
        (["skip", "orders", "--since", "soon", "--reason", "r"], "'soon' is no time"),
        (
            ["skip", "orders", "--partition", "0", "--from", "1" + "0" * 30, "--reason", "r"],
            "value for '--from'",
        ),
        (["quarantine", "show", "orders", "--offset", "1" + "0" * 30], "Invalid value for '--offset'"),
        (["replay", "orders"], "say which slices"),
        (["replay", "orders", "orders:0:0-10", "--failed"], "in one way at a time"),
        (["replay", "orders", "--partition", "0", "--from", "90"], "no slice is in that range"),
        (["replay", "nobody", "k"], "there is no stream 'nobody'"),
        (["lag", "nobody"], "there is no stream 'nobody'"),
        (["slices", "nobody"], "there is no stream 'nobody'"),
        (["slices", "orders", "--state", "odd"], "there is no state 'odd'"),
        (["quarantine", "list", "nobody"], "there is no stream 'nobody'"),
        (["quarantine", "show", "nobody"], "there is no stream 'nobody'"),
        (["import-offsets", "orders", "--group", "g"], "--means"),
        (["import-offsets", "orders", "--means", "next"], "say where the offsets are"),
        (["import-offsets", "orders", "--means", "next", "--table", "t", "--topic", "odd"], "does not read 'odd'"),
        (["plan", "nobody"], "there is no stream 'nobody'"),
        (["import-offsets", "nobody", "--means", "next", "--group", "g"], "there is no stream 'nobody'"),
        (["topics", "create", "t", "--config", "nonsense"], "no name=value"),
        (["topics", "alter", "t"], "nothing is to be changed"),
        (["groups", "reset", "g", "t"], "say where the group is to go on"),
        (["offsets", "t", "--at", "soon"], "'soon' is no time"),
    ],
)
def test_a_wrong_word_is_said_in_words(command: Commands, history: Engine, arguments: list[str], said: str) -> None:
    refused = "has committed it" in said
    answer = command(*arguments, code=1 if refused else 2)
    assert said in " ".join(answer.err.split())
    assert answer.out == "" or refused


@pytest.mark.slow  # each waits for somebody to answer
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["topics", "create", "t"],
        ["topics", "describe", "t"],
        ["topics", "alter", "t", "--partitions", "2", "--yes"],
        ["topics", "delete", "t", "--yes"],
        ["offsets", "t"],
        ["consume", "t"],
        ["groups", "list"],
        ["groups", "describe", "g"],
        ["groups", "reset", "g", "t", "--to", "earliest", "--yes"],
        ["groups", "delete", "g", "--yes"],
        ["import-offsets", "orders", "--group", "g", "--means", "next", "--yes"],
        ["replay", "orders", "orders:0:0-10", "--yes"],
        ["skip", "orders", "--since", "0", "--reason", "r", "--yes"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_broker_that_is_down_is_said_in_words(
    command: Commands, history: Engine, arguments: list[str], as_json: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_assets.broker.admin.ALL_DOWN_GRACE", 0.2)
    said = command(*arguments, *as_json, code=1)
    assert NOWHERE in said.err and "kafka-assets up" in " ".join(said.err.split())
    assert said.out == ""
    assert whole(history)


@pytest.mark.slow
def test_replay_names_what_of_a_range_does_not_land_again(command: Commands, history: Engine) -> None:
    command("skip", "orders", "orders:0:10-20", "--reason", "bad batch", "--yes")
    said = command("replay", "orders", "--partition", "0", "--from", "12", "--to", "15", code=2)
    assert "left alone: orders:0:10-20 · it is skipped: bad batch" in said.err
    said = command("replay", "orders", "--partition", "0", "--from", "0", "--to", "15", "--yes", code=1)  # no broker
    assert "left alone: orders:0:10-20 · it is skipped: bad batch" in said.err


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert milliseconds("1970-01-01T00:01") == 60_000
    assert milliseconds("1970-01-01T02:01+02:00") == 60_000
    assert milliseconds("60000") == 60_000
    assert milliseconds("1970-01-01T00:00:01.001") == 1001  # which no float has exactly
    assert milliseconds(None) is None


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999", "1" + "0" * 25, "-1", "soon"])
def test_a_time_that_no_record_has_is_refused(text: str) -> None:
    """The first would become -1, which is librdkafka's word for the end."""
    with pytest.raises(UsageError, match="is no time"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("time", "shown"),
    [(1000, "1970-01-01T00:00:01.000+00:00"), (-1, ""), (1_700_000_000_000_000, "1700000000000000")],
)
def test_a_time_in_another_unit_is_shown_as_it_is(time: int, shown: str) -> None:
    assert shown_time(time) == shown


THERE = {0: PartitionOffsets(5, 90, 100), 1: PartitionOffsets(0, 50, 50)}


def test_an_imported_offset_means_what_is_said() -> None:
    [last, _] = origins({0: 41, 1: 49}, THERE, means="last", missing="fail")
    [next_, _] = origins({0: 41, 1: 50}, THERE, means="next", missing="fail")
    assert (last.origin, next_.origin) == (42, 41)


@pytest.mark.parametrize(("missing", "origin"), [("earliest", 5), ("latest", 90)])
def test_a_partition_of_which_nothing_is_stored_begins_where_it_is_told(missing: str, origin: int) -> None:
    found = origins({1: 3}, THERE, means="next", missing=missing)  # type: ignore[arg-type]
    assert [(one.partition, one.origin) for one in found] == [(0, origin), (1, 3)]


def test_what_expired_under_the_other_system_is_counted_and_never_jumped() -> None:
    [one] = origins({0: 2}, THERE, means="next", missing="fail", only=(0,))
    assert (one.origin, one.expired) == (2, 3)


@pytest.mark.parametrize(
    ("stored", "means", "said"),
    [
        ({0: 101, 1: 0}, "next", "would begin at 101"),
        ({0: 100, 1: 0}, "last", "would begin at 101"),
        ({0: -1001, 1: 0}, "next", "would begin at -1001"),
        ({0: 7}, "next", "no offset is stored of partitions 1"),
        ({0: 7, 1: 0, 2: 1}, "next", "no partition 2"),
    ],
)
def test_offsets_that_cannot_be_this_topics_are_refused(stored: dict[int, int], means: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        origins(stored, THERE, means=means, missing="fail")  # type: ignore[arg-type]


def test_an_offset_table_is_read_by_the_names_of_its_columns(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(text("create table done (what text, part integer, upto integer, who text)"))
        connection.execute(
            text("insert into done values ('orders', 0, 4, 'a'), ('orders', 1, 5, 'a'), ('other', 0, 6, 'a')")
        )
    names = Columns("what", "part", "upto")
    assert table_offsets(engine, "done", "orders", names) == {0: 4, 1: 5}
    with write(engine) as connection:
        connection.execute(text("insert into done values ('orders', 0, 9, 'b')"))
    with pytest.raises(SettingsError, match="two offsets of partition 0: 4 and 9"):
        table_offsets(engine, "done", "orders", names)
    assert table_offsets(engine, "done", "orders", Columns("what", "part", "upto", "who", "b")) == {0: 9}
    assert sql_offsets(engine, "select part, max(upto) from done where what = 'orders' group by part") == {0: 9, 1: 5}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda engine: table_offsets(engine, "nowhere", "orders", Columns()),
        lambda engine: table_offsets(engine, "a; drop table b", "orders", Columns()),
        lambda engine: sql_offsets(engine, "select 1"),
        lambda engine: sql_offsets(engine, "select 'a', 'b'"),
        lambda engine: sql_offsets(engine, "nonsense"),
        lambda engine: sql_offsets(engine, "create table made (id integer)"),
        lambda engine: sql_offsets(engine, "select part, upto from done where what = :name"),
    ],
)
def test_a_table_that_is_none_is_said_in_words(engine: Engine, wrong) -> None:
    with pytest.raises(KafkaAssetsError) as said:
        wrong(engine)
    assert said.value.cure
