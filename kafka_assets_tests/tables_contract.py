"""What making and widening a target table promises, the same on every database; the tests of each run this suite.

A class that runs it has a fixture `engine`: on a migrated ledger in which nothing is planned.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, column, inspect, select, text
from sqlalchemy import table as table_named

from kafka_assets.errors import SliceFailed, TableIncompatible
from kafka_assets.ledger.engine import write
from kafka_assets.records import OFFSET, PARTITION
from kafka_assets.sinks import blank_tables, tables
from kafka_assets.sinks.road import Table, road_for
from kafka_assets.sinks.shapes import Shape
from kafka_assets.sinks.tables import ensure_table
from kafka_assets.streams import Upsert
from kafka_assets_tests import upserts
from kafka_assets_tests.ledgers import ASSET, SCHEMA, Attempt, chunk_of, plan, rows, scalar, target

MORE = {"price": pa.decimal128(12, 2), "per%cent 大": pa.string(), "tags": pa.list_(pa.string())}

LINEAGE = "kafka_source bigint not null, kafka_partition integer not null, kafka_offset bigint not null"


def widened(engine: Engine, upsert: Upsert | None = None, **more: Any) -> Table:
    """The asset's table under a schema with these further columns, which may be added."""
    schema = SCHEMA if upsert is None else upserts.SCHEMA
    for name, kind in more.items():
        schema = schema.append(pa.field(name, kind))
    return ensure_table(engine, road_for(engine), name="orders", asset=ASSET, schema=schema, upsert=upsert, evolve=True)


def columns(engine: Engine, name: str = "orders") -> dict[str, bool]:
    """The table's columns, and whether each may be NULL."""
    return {one["name"]: one["nullable"] for one in inspect(engine).get_columns(name)}


def change(engine: Engine, *statements: str) -> None:
    with write(engine) as connection:
        for statement in statements:
            connection.execute(text(statement))


class TablesContract:
    def test_columns_that_the_stream_delivers_and_the_table_lacks_are_added(self, engine: Engine) -> None:
        first, second, third = plan(engine, slices=[(0, 2), (2, 4), (4, 6)])
        Attempt(engine, [first]).claim().publish(chunk_of(first))
        before = columns(engine)
        table = widened(engine, **MORE)
        assert columns(engine) == {**before, **dict.fromkeys(MORE, True)}
        wide = chunk_of(second)
        for name, values in {"price": [None, None], "per%cent 大": ["x", "y"], "tags": [["a"], None]}.items():
            wide = _with(wide, name, pa.array(values, MORE[name]))
        Attempt(engine, [second]).claim().publish(wide, table=table)
        # Told again it changes nothing; a column that is delivered no more stays, and is NULL.
        assert widened(engine, **MORE) == table
        assert target(engine) == widened(engine)
        Attempt(engine, [third]).claim().publish(chunk_of(third), table=target(engine))
        assert columns(engine) == {**before, **dict.fromkeys(MORE, True)}
        odd, place = column("per%cent 大"), column(OFFSET)
        with engine.connect() as connection:
            found = connection.scalars(select(odd).select_from(table_named("orders")).order_by(place)).all()
        assert found == [None, None, "x", "y", None, None]

    def test_an_upsert_table_is_widened_too(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 3)])
        upserts.land(engine, key, upserts.Put(0, 1))
        table = widened(engine, upserts.BY_OFFSET, more=pa.int64())
        assert columns(engine)["more"]
        chunk = _with(upserts.chunk_of(key, upserts.Put(0, 1), upserts.Put(1, 2)), "more", pa.array([10, 20]))
        Attempt(engine, [key], replaces=True).claim(force=True).publish(chunk, table=table)
        assert rows(engine, "select id, more from orders order by id") == [(1, 10), (2, 20)]
        with pytest.raises(TableIncompatible, match="primary key"):
            widened(engine, Upsert(("id", "more"), "offset"), more=pa.int64())

    @pytest.mark.parametrize(
        "name", ["kafka_source", "kafka_digest", "Kafka_Deleted", "kafka_key_text", "kafka_publication"]
    )
    def test_a_column_of_a_name_that_the_merge_works_with_is_refused(self, engine: Engine, name: str) -> None:
        with pytest.raises(TableIncompatible, match=f"(?i)column '{name}'.*rename it"):
            widened(engine, upserts.BY_OFFSET, **{name: pa.string()})

    def test_unasked_no_column_is_added_and_the_way_to_it_is_named(self, engine: Engine) -> None:
        target(engine)
        change(engine, BY_HAND)
        with pytest.raises(TableIncompatible, match=r"no column 'more' .*evolve: add_columns"):
            ensure_table(
                engine, road_for(engine), name="orders", asset=ASSET, schema=SCHEMA.append(pa.field("more", pa.int64()))
            )
        assert "more" not in columns(engine)

    def test_every_other_difference_is_refused_before_any_work_all_of_them_at_once(self, engine: Engine) -> None:
        kinds = "id varchar(9), kafka_source bigint not null, kafka_partition varchar(9) not null, note text"
        change(engine, f"create table orders ({kinds}, own bigint not null, primary key (own))")
        with pytest.raises(TableIncompatible) as refused:
            widened(engine, more=pa.int64())
        said = str(refused.value)
        for difference in (
            "primary key (own)",
            "no column 'kafka_offset'",
            "'id' is",
            "'own' must",
            "'kafka_partition'",
        ):
            assert difference in said, difference
        assert "more" not in columns(engine)

    @pytest.mark.parametrize("key", ["", ", primary key (kafka_partition, kafka_offset)", ", primary key (id)"])
    def test_a_table_without_the_lineage_key_is_refused_with_the_cure(self, engine: Engine, key: str) -> None:
        note = "longtext" if engine.dialect.name in {"mysql", "mariadb"} else "text"
        declared = f"create table orders (id bigint not null, note {note}, {LINEAGE}"
        change(engine, f"{declared}{key})")
        with pytest.raises(TableIncompatible, match=r"exactly once only under PRIMARY KEY \(.kafka_source.") as refused:
            target(engine)
        assert "no column" not in str(refused.value)
        change(engine, "drop table orders", f"{declared}, primary key (kafka_partition, kafka_source, kafka_offset))")
        keys = plan(engine, slices=[(0, 3)])
        Attempt(engine, keys).claim().publish()
        assert scalar(engine, "select count(*) from orders") == 3

    @pytest.mark.parametrize("upsert", [None, upserts.BY_OFFSET], ids=["append", "upsert"])
    def test_not_null_is_so_in_a_table_that_is_made_and_nowhere_else(
        self, engine: Engine, upsert: Upsert | None
    ) -> None:
        plain = SCHEMA if upsert is None else upserts.SCHEMA
        demanding = pa.schema([field.with_nullable(field.name != "note") for field in plain])

        def ensured(schema: pa.Schema, name: str = "orders", asset: str = ASSET) -> Table:
            return ensure_table(
                engine, road_for(engine), name=name, asset=asset, schema=schema, upsert=upsert, evolve=True
            )

        table = ensured(demanding)
        assert not columns(engine)["note"]
        # Declared otherwise later, and with more: what stands stays, and rows without the new column stand already.
        wider = demanding.append(pa.field("more", pa.int64(), nullable=False))
        assert ensured(wider) != table
        assert ensured(plain) == table
        assert (columns(engine)["note"], columns(engine)["more"]) == (False, True)
        ensured(plain, "loose", "another")
        ensured(demanding, "loose", "another")
        assert columns(engine, "loose")["note"]
        keys = plan(engine, slices=[(0, 3), (3, 6)])
        if upsert is None:
            Attempt(engine, keys).claim().publish(chunk_of(keys[0], note="a"), chunk_of(keys[1], note="b"), table=table)
            Attempt(engine, keys, replaces=True).claim(force=True).publish(table=table)
            assert scalar(engine, "select count(*) from orders") == 6
        else:
            upserts.land(engine, keys[0], upserts.Put(0, 1), upserts.Put(1, 2))
            upserts.land(engine, keys[1], upserts.Gone(3, 1), upserts.Put(4, 2))
            assert list(upserts.standing(engine)) == [2]

    @pytest.mark.parametrize("there", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["made", "widened"])
    def test_a_table_that_the_database_refuses_leaves_the_asset_free_to_take_another(
        self, engine: Engine, there: bool
    ) -> None:
        if there:
            change(engine, f"create table wide ({LINEAGE}, primary key (kafka_source, kafka_partition, kafka_offset))")
        columns = [pa.field(f"c{number}", pa.int64()) for number in range(2_100)]
        schema = pa.schema([*columns, (PARTITION, pa.int32()), (OFFSET, pa.int64())])
        road = road_for(engine)
        with pytest.raises(TableIncompatible, match=r"does not (make|widen) the table 'wide' · .*another target"):
            ensure_table(engine, road, name="wide", asset=ASSET, schema=schema, evolve=True)
        assert rows(engine, "select * from kafka_target") == []
        assert target(engine).name == "orders"

    @pytest.mark.parametrize("kind", [pa.time64("us"), pa.duration("us"), pa.month_day_nano_interval()], ids=str)
    def test_what_no_database_holds_is_refused_however_deep_it_lies(self, engine: Engine, kind: Any) -> None:
        deep: list[Any] = [kind, pa.list_(kind), pa.map_(pa.string(), pa.struct([("a", pa.int8()), ("b", kind)]))]
        for one in deep:
            with pytest.raises(TableIncompatible, match=r"a column 'more' of type .*cast it"):
                widened(engine, more=one)

    def test_a_name_that_differs_in_capitals_alone_is_no_new_column(self, engine: Engine) -> None:
        target(engine)
        change(engine, BY_HAND)
        schema = pa.schema([("ID", pa.int64()), ("note", pa.string()), (PARTITION, pa.int32()), (OFFSET, pa.int64())])
        with pytest.raises(TableIncompatible, match="column 'id' is 'ID' in the stream"):
            ensure_table(engine, road_for(engine), name="orders", asset=ASSET, schema=schema, evolve=True)

    def test_runs_that_widen_at_once_come_to_one_table(self, engine: Engine) -> None:
        target(engine)
        meet = threading.Barrier(3)
        given: list[dict[str, Any]] = [{"a": pa.int64()}, {"a": pa.int64(), "b": pa.string()}, {"b": pa.string()}]
        failed: list[Exception] = []

        def widen(more: dict[str, Any]) -> None:
            meet.wait(10)
            try:
                widened(engine, **more)
            except Exception as error:  # noqa: BLE001 - told by the assertion below
                failed.append(error)

        threads = [threading.Thread(target=widen, args=(more,)) for more in given]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        assert not failed, failed[0]
        assert {"a", "b"} <= {*columns(engine)}

    def test_another_column_that_came_between_look_and_alter_is_no_trouble(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if engine.dialect.name == "sqlite":
            return  # it looks under the one lock that others would need
        target(engine)
        add, raced = Shape.add, []

        def late(self: Shape, *given: Any) -> list[str]:
            if not raced:
                raced.append(True)
                change(engine, "alter table orders add column a bigint")
            return add(self, *given)

        monkeypatch.setattr(Shape, "add", late)
        widened(engine, a=pa.int64(), b=pa.string())
        assert raced
        assert {"a", "b"} <= {*columns(engine)}

    def test_killed_between_two_columns_the_next_run_adds_the_rest(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target(engine)
        add = Shape.add

        class Killed(BaseException):
            pass

        class Dying(list[str]):
            def __iter__(self) -> Any:
                yield from list.__iter__(self)
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(Shape, "add", lambda self, road, columns: Dying(add(self, road, columns[:1])))
            with pytest.raises(Killed):
                widened(engine, a=pa.int64(), b=pa.string())
        assert "b" not in columns(engine)
        widened(engine, a=pa.int64(), b=pa.string())
        assert {"a", "b"} <= {*columns(engine)}

    @pytest.mark.parametrize("upsert", [None, upserts.BY_OFFSET], ids=["append", "upsert"])
    def test_a_table_that_was_made_here_and_stayed_blank_is_made_anew_by_a_corrected_declaration(
        self, engine: Engine, upsert: Upsert | None
    ) -> None:
        widened(engine, upsert, price=MORE["price"])
        table = widened(engine, upsert, price=pa.string(), more=pa.int64())
        assert [*columns(engine)][-2:] == ["price", "more"]
        assert table == widened(engine, upsert, price=pa.string(), more=pa.int64())
        # As often as nothing lands.
        widened(engine, upsert, price=pa.bool_())
        assert "more" not in columns(engine)

    def test_a_first_slice_of_bad_records_lands_by_a_corrected_declaration(self, engine: Engine) -> None:
        [key] = plan(engine, slices=[(0, 150)])
        attempt = Attempt(engine, [key]).claim()
        with pytest.raises(SliceFailed):
            attempt.publish(chunk_of(key, bad=range(150)), table=target(engine))
        Attempt(engine, [key]).claim(force=True).publish(chunk_as_text(key), table=corrected(engine))
        assert scalar(engine, "select count(*) from orders where id = '149'") == 1

    @pytest.mark.parametrize("landed", ["rows", "none of them"])
    def test_a_table_in_which_anything_landed_is_never_made_anew(self, engine: Engine, landed: str) -> None:
        [key] = plan(engine, slices=[(0, 3)])
        Attempt(engine, [key]).claim().publish(
            chunk_of(key, offsets=None if landed == "rows" else [], read_count=3), table=target(engine)
        )
        with pytest.raises(TableIncompatible, match=r"column 'id' is \w+, the stream delivers") as refused:
            corrected(engine)
        assert "DROP" not in str(refused.value)
        assert scalar(engine, "select count(*) from orders") == (3 if landed == "rows" else 0)

    def test_a_row_of_somebody_s_own_keeps_the_table(self, engine: Engine) -> None:
        target(engine)
        change(engine, BY_HAND)
        with pytest.raises(TableIncompatible, match=r"column 'id' is \w+, the stream delivers") as refused:
            corrected(engine)
        assert "DROP" not in str(refused.value)
        assert scalar(engine, "select count(*) from orders") == 1

    def test_a_table_that_somebody_made_is_never_dropped_but_the_cure_is_named(self, engine: Engine) -> None:
        note = "longtext" if engine.dialect.name in {"mysql", "mariadb"} else "text"
        key = "primary key (kafka_source, kafka_partition, kafka_offset)"
        change(engine, f"create table orders ({LINEAGE}, id bigint, note {note}, {key})")
        with pytest.raises(TableIncompatible, match=r"agree, or declare another target$"):
            corrected(engine)  # not even the asset's own yet
        target(engine)
        with pytest.raises(TableIncompatible, match=r"nothing has landed.*DROP TABLE .orders., and the next run makes"):
            corrected(engine)
        assert "id" in columns(engine)
        target(engine)
        change(engine, "drop table orders")
        corrected(engine)

    @pytest.mark.parametrize("changed", ["alter table orders add column own bigint", "create index own on orders (id)"])
    def test_a_blank_table_that_somebody_has_changed_since_stays(self, engine: Engine, changed: str) -> None:
        target(engine)
        change(engine, changed)
        with pytest.raises(TableIncompatible, match=r"was changed since.*DROP TABLE .orders."):
            corrected(engine)
        assert rows(engine, "select id from orders") == []

    def test_killed_between_drop_and_create_the_next_run_makes_the_table(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target(engine)

        class Killed(BaseException):
            pass

        def killed(*given: Any) -> list[str]:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(tables, "creation", killed)
            with pytest.raises(Killed):
                corrected(engine)
        corrected(engine)
        keys = plan(engine, slices=[(0, 3)])
        Attempt(engine, keys).claim().publish(chunk_as_text(keys[0]), table=corrected(engine))
        assert rows(engine, "select id from orders order by id") == [("0",), ("1",), ("2",)]

    def test_runs_that_make_a_blank_table_anew_at_once_come_to_one_table(self, engine: Engine) -> None:
        target(engine)
        meet = threading.Barrier(3)
        failed: list[Exception] = []

        def make() -> None:
            meet.wait(10)
            try:
                corrected(engine)
            except Exception as error:  # noqa: BLE001 - told by the assertion below
                failed.append(error)

        threads = [threading.Thread(target=make) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        assert not failed, failed[0]
        keys = plan(engine, slices=[(0, 3)])
        Attempt(engine, keys).claim().publish(chunk_as_text(keys[0]), table=corrected(engine))
        assert scalar(engine, "select count(*) from orders") == 3

    def test_what_lands_between_the_look_and_the_lock_stays(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if engine.dialect.name == "sqlite":
            return  # it looks under the one lock that others would need
        target(engine)
        alone, raced = blank_tables.alone, list[bool]()

        def late(*given: Any) -> Any:
            if not raced:
                raced.append(True)
                change(engine, BY_HAND)
            return alone(*given)

        monkeypatch.setattr(blank_tables, "alone", late)
        with pytest.raises(TableIncompatible, match=r"column 'id' is \w+"):
            corrected(engine)
        assert raced
        assert scalar(engine, "select count(*) from orders") == 1


BY_HAND = "insert into orders (kafka_source, kafka_partition, kafka_offset, id, note) values (1, 0, 0, 7, 'by hand')"


def corrected(engine: Engine) -> Table:
    """The asset's table by a declaration in which the id is a text."""
    schema = SCHEMA.set(SCHEMA.get_field_index("id"), pa.field("id", pa.string()))
    return ensure_table(engine, road_for(engine), name="orders", asset=ASSET, schema=schema)


def chunk_as_text(key: Any) -> Any:
    whole = chunk_of(key)
    at = whole.rows.schema.get_field_index("id")
    return replace(whole, rows=whole.rows.set_column(at, "id", whole.rows["id"].cast(pa.string())))


def _with(chunk: Any, name: str, values: pa.Array[Any]) -> Any:
    return replace(chunk, rows=chunk.rows.append_column(name, values))
