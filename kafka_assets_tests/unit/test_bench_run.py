"""`bench run` without services: its figures, its records, and that it sees when a table has something else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pyarrow as pa
import pytest
from sqlalchemy import Engine, make_url, text

from kafka_assets.audit.bulk import bulk_limit
from kafka_assets.broker.connection import Connection
from kafka_assets.decode.decoder import decoder
from kafka_assets.errors import CountsDisagree
from kafka_assets.lab.bench.connect_road import connector
from kafka_assets.lab.bench.course import Course, Landing
from kafka_assets.lab.bench.figure_plot import plot
from kafka_assets.lab.bench.hand_loops import LOOPS, Target
from kafka_assets.lab.bench.packed_rows import PACKERS, numeric
from kafka_assets.lab.bench.record_function import GIVES, values_maker
from kafka_assets.lab.bench.record_shapes import PARTITIONS, SHAPES, Produced, Shape, produced
from kafka_assets.lab.bench.run_figures import Load, RoadLaps, figures_of
from kafka_assets.lab.bench.streaming_road import jdbc_options
from kafka_assets.lab.bench.table_content import Content, of_function, of_merged, of_produced, of_table
from kafka_assets.lab.bench.usage import CLIENT, Meter, Usage
from kafka_assets.ledger.engine import make_engine, write
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.live.decode import Decoder
from kafka_assets.schema import declared, fields_of
from kafka_assets.sinks.copy_binary import binary
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.streams import declare

RECORDS = 1_001
SVG = "{http://www.w3.org/2000/svg}"
LOAD = Load((0.5, 1.0), (2.0, 1.5))

shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))


def usage(client: float, *, pss: int = 0) -> Usage:
    return Usage({CLIENT: client, "database": 1.0}, rss=pss * 2, pss=pss)


@pytest.fixture
def laps() -> list[RoadLaps]:
    by_hand, spark = RoadLaps("by hand"), RoadLaps("spark")
    for took, clock, command in ((2.0, 1.0, 4.0), (4.0, 2.0, 5.0), (8.0, 1.0, 4.0)):
        by_hand.add({"": took}, usage(took, pss=50_000_000))
        spark.add({"clock": clock, "command": command}, usage(3 * took, pss=100_000_000), {"before": command - clock})
    return [by_hand, spark]


def test_medians_stand_beside_those_of_the_same_run_with_their_spread(laps: list[RoadLaps]) -> None:
    figures = figures_of(laps, records=1_000, against={"spark: clock": ["by hand"]}, rival="by hand", load=LOAD)
    listed: list[dict[str, Any]] = json.loads(json.dumps([asdict(one) for one in figures]))
    assert all(set(one) == {"name", "value", "unit", "against", "ratio"} for one in listed)
    found = {one["name"]: one for one in listed}
    assert len(found) == len(listed)
    assert found["by hand"] == {"name": "by hand", "value": 250, "unit": "rows/s", "against": None, "ratio": None}
    assert found["by hand, slowest of 3"]["value"] == 125
    assert found["by hand, fastest of 3"]["value"] == 500
    assert (found["spark: clock"]["value"], found["spark: clock"]["against"]) == (1000, "by hand")
    assert found["spark: clock"]["ratio"] == 4.0
    assert found["spark: command"]["ratio"] is None
    assert (found["spark: before"]["value"], found["spark: before"]["unit"]) == (3.0, "s")


def test_costs_stand_beside_those_of_the_rival_for_a_million_rows(laps: list[RoadLaps]) -> None:
    figures = figures_of(laps, records=500_000, against={}, rival="by hand", load=LOAD)
    found = {one.name: one for one in figures}
    assert found["by hand: CPU"].value == 2 * (4 + 1)
    assert found["spark: CPU"].value == 2 * (12 + 1)
    assert (found["spark: CPU"].against, found["spark: CPU"].ratio) == ("by hand: CPU", 2.6)
    assert found["spark: CPU of the database"].ratio == 1.0
    memory = found["spark: peak PSS of the client"]
    assert (memory.value, memory.unit, memory.ratio) == (100, "MB", 2.0)
    assert found["load average before, 1 minute"].value == 0.5
    assert found["load average after, 5 minutes"].value == 1.5


def test_a_rate_stands_beside_each_of_several_others(laps: list[RoadLaps]) -> None:
    third = RoadLaps("third", {"": [1.0]}, [usage(1.0)])
    beside = {"spark: command": ["third", "by hand"]}
    figures = figures_of([*laps, third], records=1_000, against=beside, rival="by hand", load=LOAD)
    found = [(one.against, one.ratio) for one in figures if one.name == "spark: command"]
    assert found == [("third", 0.25), ("by hand", 1.0)]


def test_the_picture_has_a_bar_for_each_figure_and_its_spread(laps: list[RoadLaps]) -> None:
    third = RoadLaps("limit: <fast> & good", {"": [1.0, 2.0, 4.0]}, [usage(1.0)])
    beside = {"spark: clock": ["by hand", third.name]}  # listed twice, drawn once
    figures = figures_of([third, *laps], records=1_000, against=beside, rival="by hand", load=LOAD)
    drawn = ElementTree.fromstring(plot(figures, title="what was measured"))
    texts = [str(one.text) for one in drawn.iter(f"{SVG}text")]
    for name in (third.name, "by hand", "spark: clock", "spark: command"):
        assert name in texts
    assert texts.count("spark: clock") == 1
    assert texts.count("by hand") == 3  # its rate, its processor time, its memory
    assert not [one for one in texts if "slowest of" in one]
    assert texts[-1] == "load average before and after: 0.5, 2.0"
    widths = {bar.get("y"): float(bar.get("width", "")) for bar in drawn.iter(f"{SVG}rect") if bar.get("x")}
    rates = sorted(widths.items(), key=lambda one: float(one[0] or ""))[:4]
    # By what was measured: 500, 250, 1,000 and 250 rows a second.
    assert [width / rates[2][1] for _, width in rates] == pytest.approx([0.5, 0.25, 1.0, 0.25], rel=1e-2)
    assert len(list(drawn.iter(f"{SVG}path"))) == 4


@shapes
def test_the_records_are_the_same_in_each_form_and_each_time(shape: Shape) -> None:
    records = produced(shape.name, RECORDS)
    messages = [one for chunk in records.messages() for one in chunk]
    assert messages == [one for chunk in produced(shape.name, RECORDS).messages() for one in chunk]
    rows = pa.concat_tables(records.tables())
    read = decoder(declared(shape.schema, "json"), "json").read(pa.array([one.value for one in messages], pa.binary()))
    assert not read.bad
    names = list(shape.columns)
    assert rows.select(names).to_pylist() == [
        dict(zip(names, row, strict=True)) for chunk in records.chunks() for row in chunk
    ]
    assert read.rows.select(names).to_pylist() == rows.select(names).to_pylist()
    partitions = rows.column("kafka_partition").to_pylist()
    assert partitions == [one.partition for one in messages]
    assert [partitions.count(number) for number in range(PARTITIONS)] == [
        records.in_partition(number) for number in range(PARTITIONS)
    ]


def test_the_plain_records_have_about_two_hundred_bytes_and_the_wide_ones_forty_fields() -> None:
    for name in ("plain", "decimals"):
        [messages] = produced(name, 1_000).messages()
        assert 180 < sum(len(one.value or b"") for one in messages) / 1_000 < 240
    assert len(SHAPES["wide"].columns) == 40


def test_an_id_comes_again_in_its_own_partition() -> None:
    [messages] = produced("plain", RECORDS, upsert=True).messages()
    partitions: dict[int, set[int | None]] = {}
    for one in messages:
        partitions.setdefault(msgspec.json.decode(one.value or b"")["id"], set()).add(one.partition)
    assert len(partitions) == 500
    assert all(len(found) == 1 for found in partitions.values())


@shapes
def test_rows_packed_by_hand_are_those_of_the_encoder(shape: Shape) -> None:
    [rows] = produced(shape.name, 200).tables()
    nothing = pa.Table.from_pylist([{"kafka_partition": 1, "kafka_offset": 7}], schema=rows.schema)
    rows = pa.concat_tables([rows, nothing])
    names = ["kafka_partition", "kafka_offset", *shape.columns]
    packed = [
        PACKERS[shape.name](row["kafka_partition"], row["kafka_offset"], shape.struct(*(row[c] for c in shape.columns)))
        for row in rows.to_pylist()
    ]
    sent = b"".join(binary(rows.select(names), names, first=1))
    decimals = [place + 3 for place in shape.of_kind("DECIMAL(12,2)")]
    assert _fields(b"".join(packed), decimals) == _fields(sent, decimals)


def test_rows_that_the_function_made_are_packed_as_by_the_encoder() -> None:
    [chunk] = produced("decimals", 200).chunks()
    made = values_maker()
    values = [row for record in chunk if (row := made(record)) is not None]
    assert 100 < len(values) < 200
    values.append((None,) * len(GIVES.columns))
    kinds = [(field.name, field.type) for field in fields_of(declared(GIVES.schema, "json"))]
    schema: Any = pa.schema([("kafka_partition", pa.int32()), ("kafka_offset", pa.int64()), *kinds])
    rows = pa.Table.from_pylist(
        [dict(zip(schema.names, (1, offset, *row), strict=True)) for offset, row in enumerate(values)], schema=schema
    )
    packed = [PACKERS["paid"](1, offset, GIVES.struct(*row)) for offset, row in enumerate(values)]
    decimals = [place + 3 for place in GIVES.of_kind("DECIMAL(12,2)")]
    sent = b"".join(binary(rows, schema.names, first=1))
    assert _fields(b"".join(packed), decimals) == _fields(sent, decimals)


def _fields(rows: bytes, decimals: list[int]) -> list[list[Any]]:
    """The rows of a binary COPY, their decimals as numbers: zeros before one may be sent or not."""
    found: list[list[Any]] = []
    at = 0
    while at < len(rows):
        found.append([])
        count, at = int.from_bytes(rows[at : at + 2], "big"), at + 2
        for place in range(count):
            size, at = int.from_bytes(rows[at : at + 4], "big", signed=True), at + 4
            value = None if size < 0 else rows[at : at + size]
            found[-1].append(_number(value) if value is not None and place in decimals else value)
            at += max(size, 0)
    return found


def _number(field: bytes) -> Decimal:
    count, weight, sign, scale = (int.from_bytes(field[at : at + 2], "big", signed=True) for at in (0, 2, 4, 6))
    groups = [int.from_bytes(field[at : at + 2], "big") for at in range(8, len(field), 2)]
    assert (count, scale) == (len(groups), 2)
    total = sum((Decimal(group).scaleb(4 * (weight - place)) for place, group in enumerate(groups)), Decimal(0))
    return -total if sign else total


@pytest.mark.parametrize("value", ["0.00", "0.05", "-1.10", "9999.99", "10000.00", "-12345678.90", "9999999999.99"])
def test_a_decimal_of_any_size_is_packed(value: str) -> None:
    size, field = numeric(Decimal(value))[:4], numeric(Decimal(value))[4:]
    assert int.from_bytes(size, "big") == len(field)
    assert _number(field) == Decimal(value)


class Message:
    """As the client gives it to a loop."""

    def __init__(self, value: bytes, partition: int, offset: int) -> None:
        self.value, self.partition, self.offset = (lambda: value), (lambda: partition), (lambda: offset)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = make_engine(f"sqlite:///{tmp_path / 'w.db'}")
    ensure_schema(engine)
    yield engine
    engine.dispose()


def table_of(engine: Engine, records: Produced, name: str) -> Table:
    schema = Decoder(declare(name=name, topic="orders", target=name, schema=records.shape.schema)).schema
    return ensure_table(engine, road_for(engine), name=name, asset=name, schema=schema)


@shapes
@pytest.mark.parametrize("loop", ["json + executemany", "msgspec + executemany"])
def test_a_loop_leaves_in_the_table_what_was_produced(shape: Shape, loop: str, engine: Engine) -> None:
    records = produced(shape.name, RECORDS)
    table_of(engine, records, "landed")
    _loop(engine, records, loop)
    assert of_produced(records).differences(of_table(engine, "landed", shape, places=True)) == []


@pytest.mark.parametrize(
    ("product", "price", "paid"),
    [
        (0, "10000.00", "10000.55"),  # the first has no discount
        (333, "10000.10", "9667.63"),  # 10000.65 × 0.9667 = 9667.628355
        (1_000, "99999.95", "90000.45"),  # 100000.50 × 0.9
        (2_500, "10000.43", "7500.74"),  # 10000.98 × 0.75 = 7500.735: half a cent is a cent
        (4_000, "9999.99", None),  # cheap
    ],
)
def test_the_function_filters_joins_and_calculates(product: int, price: str, paid: str | None) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    record = (70_000 + product, "me", Decimal(price), Decimal("0.55"), at, at, "note")
    made = values_maker()(record)
    wanted = (70_000 + product, "me", f"category {product % 40}", Decimal(price), Decimal("0.55"))
    assert made == (None if paid is None else (*wanted, Decimal(paid), at, at, "note"))


def test_a_loop_leaves_in_the_table_what_the_function_makes(engine: Engine) -> None:
    records = produced("decimals", RECORDS)
    expected = of_function(records)
    assert RECORDS * 0.85 < expected.facts["rows"] < RECORDS * 0.95
    course = Course(Connection("nowhere:1"), engine, "orders", records, expected, Path("products.parquet"))
    table = course.empty_table().name
    _loop(engine, records, "msgspec + executemany", table=table, function=True)
    course.finish(Landing(table, {}), road="by hand")
    again = course.empty_table().name
    _loop(engine, records, "msgspec + executemany", table=again, function=True)
    with write(engine) as connection:
        connection.execute(text(f"UPDATE {again} SET paid = paid + 0.01 WHERE kafka_offset = 7"))
    with pytest.raises(CountsDisagree, match="paid: sum"):
        course.finish(Landing(again, {}), road="by hand")


def _loop(engine: Engine, records: Produced, loop: str, *, table: str = "landed", function: bool = False) -> None:
    places = ((one.value, number % PARTITIONS, number // PARTITIONS) for number, one in enumerate(_all(records)))
    with engine.connect() as connection, connection.begin():
        LOOPS[loop](connection, Target(table, records.shape, function), [Message(*place) for place in places])


def _all(records: Produced) -> list[Any]:
    return [one for chunk in records.messages() for one in chunk]


@shapes
def test_a_loop_that_replaces_leaves_the_last_record_of_each_id(shape: Shape, engine: Engine) -> None:
    records = produced(shape.name, RECORDS, upsert=True)
    expected = of_merged(records)
    course = Course(Connection("nowhere:1"), engine, "orders", records, of_produced(records))
    table = course.keyed_table()
    _loop(engine, records, "msgspec + executemany, replacing", table=table)
    course.finish(Landing(table, {}, expected), road="replacing")
    again = course.keyed_table()
    _loop(engine, records, "msgspec + executemany, replacing", table=again)
    with write(engine) as connection:
        connection.execute(text(f"DELETE FROM {again} WHERE id = 7"))
    with pytest.raises(CountsDisagree, match="rows is 499, and should be 500"):
        course.finish(Landing(again, {}, expected), road="replacing")


@shapes
def test_the_databases_limit_takes_the_same_rows(shape: Shape, engine: Engine) -> None:
    records = produced(shape.name, RECORDS)
    table = table_of(engine, records, "landed")
    assert bulk_limit(engine, road_for(engine), table, records.tables()) > 0
    assert of_produced(records).differences(of_table(engine, "landed", shape, places=True)) == []


@pytest.mark.parametrize(
    ("harm", "seen"),
    [
        ("DELETE FROM landed WHERE kafka_offset = 3 AND kafka_partition = 1", "rows"),
        ("UPDATE landed SET kafka_offset = 5000 WHERE kafka_offset = 3 AND kafka_partition = 1", "kafka_offsets of"),
        ("UPDATE landed SET price = price + 0.01 WHERE id = 7", "price: sum"),
        ("UPDATE landed SET tax = NULL WHERE id = 7", "tax: values"),
        ("UPDATE landed SET placed_at = '2026-01-01 00:00:01' WHERE id = 7", "placed_at: sum"),
        ("UPDATE landed SET note = note || ' ' WHERE id = 7", "note: sum"),
        ("UPDATE landed SET id = CASE id WHEN 7 THEN 8 ELSE 7 END WHERE id IN (7, 8)", "places × ids"),
    ],
)
def test_a_row_that_is_another_one_is_seen(harm: str, seen: str, engine: Engine) -> None:
    records = produced("decimals", RECORDS)
    table_of(engine, records, "landed")
    _loop(engine, records, "msgspec + executemany")
    with write(engine) as connection:
        connection.execute(text(harm))
    different = of_produced(records).differences(of_table(engine, "landed", records.shape, places=True))
    assert any(one.startswith(seen) for one in different), different


def test_of_an_id_that_came_again_the_last_record_is_expected() -> None:
    records = produced("plain", 10, upsert=True)
    [rows] = records.chunks()
    expected = of_merged(records).facts
    assert expected["rows"] == 4
    last = {row[0]: row[2] for row in rows}
    assert expected["amount: sum"] == sum(round(amount * 100) for amount in last.values())
    assert "distinct places" not in expected


def test_content_says_in_words_what_differs() -> None:
    expected = Content({"rows": 3, "amount: sum": 1.0, "note: least": "a"})
    assert expected.differences(Content({"rows": 3, "amount: sum": 1.0 + 1e-12, "note: least": "a"})) == []
    assert expected.differences(Content({"rows": 2, "amount: sum": None, "note: least": "a"})) == [
        "rows is 2, and should be 3",
        "amount: sum is None, and should be 1.0",
    ]


@pytest.mark.slow
def test_what_a_child_uses_is_its_roads_and_not_the_services() -> None:
    burn = "import time; x = b'x' * 50_000_000\nwhile time.process_time() < 0.7: pass"
    service = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        meter = Meter({"database": [service.pid]})
        _, used = meter.measured(lambda: subprocess.run([sys.executable, "-c", burn], check=True))
        assert used.seconds[CLIENT] >= 0.7
        assert used.seconds["database"] < used.seconds[CLIENT]
        assert used.rss >= used.pss > 50_000_000
    finally:
        service.kill()
        service.wait()


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False], ids=["waited for", "forgotten"])
def test_what_a_service_s_process_used_that_has_ended_is_counted(waits: bool) -> None:
    """Spark's daemon of Python workers waits for none of them, and the system forgets what they used."""
    program = (
        "import os, signal, sys, time\n"
        f"signal.signal(signal.SIGCHLD, signal.{'SIG_DFL' if waits else 'SIG_IGN'})\n"
        "def work(seconds):\n"
        "    if (child := os.fork()) == 0:\n"
        "        while time.process_time() < seconds: pass\n"
        "        time.sleep(2)\n"  # so long a worker waits for more work
        "        os._exit(0)\n"
        "    try: os.waitpid(child, 0)\n"
        "    except ChildProcessError: pass\n"  # it has ended, and the system knows no more of it
        "work(0.3)\n"
        "print('first', flush=True); sys.stdin.readline()\n"
        "work(0.7)\n"
        "print('done', flush=True); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as service:
        assert service.stdin is not None and service.stdout is not None
        service.stdout.readline()
        meter = Meter({"Spark server": [service.pid]})
        service.stdin.write("go on\n")
        service.stdin.flush()
        _, used = meter.measured(service.stdout.readline)
        assert 0.6 < used.seconds["Spark server"] < 2
        service.stdin.write("end\n")
        service.stdin.flush()


def test_the_jdbc_sink_is_told_where_the_database_is_and_no_password_in_its_address() -> None:
    options = jdbc_options(make_url("postgresql+psycopg://me:secret@127.0.0.1:5433/orders"))
    assert options["url"] == "jdbc:postgresql://127.0.0.1:5433/orders?reWriteBatchedInserts=true"
    assert (options["user"], options["password"]) == ("me", "secret")


def test_kafka_connect_is_told_the_schema_once_and_no_password_in_an_address() -> None:
    records = produced("decimals", 10)
    engine = make_engine("postgresql+psycopg://me:secret@127.0.0.1:5433/orders")
    config = connector(Course(Connection("nowhere:1"), engine, "orders", records, Content({})), "landed")
    assert (config["topics"], config["collection.name.format"]) == ("orders", "landed")
    assert "secret" not in config["connection.url"]
    assert config["connection.password"] == "secret"
    schema = json.loads(config["value.converter.schema.content"])
    fields = {field["field"]: field for field in schema["fields"]}
    assert list(fields) == list(records.shape.columns)
    assert fields["price"]["parameters"] == {"scale": "2"}
    assert fields["placed_at"]["name"].endswith("ZonedTimestamp")  # as text in the record, with its zone


def test_times_are_compared_as_seconds_of_utc() -> None:
    records = produced("plain", 2)
    first = datetime(2026, 1, 1, tzinfo=UTC)
    assert of_produced(records).facts["placed_at: least"] == first.timestamp()
