"""Streams in YAML and in Python: the same assets, one sensor, one folder, one function that loads it."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.testing import create_defs_folder_sandbox
from pyspark.sql import DataFrame

import kafka_assets
from kafka_assets import KafkaTopic, build_definitions, kafka_asset, load_assets, slice_asset
from kafka_assets.assets.decorator import stream_of
from kafka_assets.assets.folder import broken_in, streams_in
from kafka_assets.assets.resources import KafkaResource
from kafka_assets.assets.sensor import streams_of
from kafka_assets.assets.yaml_files import assets_in
from kafka_assets.errors import StreamError
from kafka_assets.streams import Derived, Stream
from kafka_assets.verdicts import NAMES

ORDERS = """
type: kafka_assets.KafkaTopic
attributes:
  topic: orders
  target: orders
  schema: "id BIGINT NOT NULL, customer STRING COMMENT 'who', amount DECIMAL(12,2)"
  slices: {max_records: 500_000, max_delay: 10s}
  skip_when_behind: {records: 500, keep: 500, every: 15m}
  start: 2026-01-01T00:00:00Z
  group_name: shop
  owners: [team:shop]
  tags: {tier: gold}
  pool: kafka
  freshness: 1h
  description: Orders of the shop.
  code_version: v1
"""
PAYMENTS = """
from kafka_assets import kafka_asset

@kafka_asset(topic="orders", target="payments", schema="id BIGINT")
def payments(records):
    return records
"""
LARGE = """
from kafka_assets import slice_asset

from {module} import payments

@slice_asset(upstream=payments, target="large")
def large(rows):
    return rows.where("id > 10")
"""


@kafka_asset(
    topic="orders",
    target="orders",
    schema="id BIGINT NOT NULL, customer STRING COMMENT 'who', amount DECIMAL(12,2)",
    slices={"max_records": 500_000, "max_delay": "10s"},
    skip_when_behind={"records": 500, "keep": 500, "every": "15m"},
    start="2026-01-01T00:00:00Z",
    group_name="shop",
    owners=["team:shop"],
    tags={"tier": "gold"},
    pool="kafka",
    freshness="1h",
    code_version="v1",
)
def orders(records: DataFrame) -> DataFrame:
    """Orders of the shop."""
    return records


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_yaml", ".yaml").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_yaml_and_decorator_give_the_same_asset(tmp_path: Path) -> None:
    [asset] = load_assets(written(tmp_path, orders_yaml=ORDERS))
    assert stream_of(asset) == stream_of(orders)
    [spec], [expected] = asset.specs, orders.specs
    assert spec == expected
    assert asset.op.pool == orders.op.pool == "kafka"
    assert asset.backfill_policy == orders.backfill_policy == dg.BackfillPolicy.single_run()
    assert asset.required_resource_keys == orders.required_resource_keys


def test_an_asset_shows_its_columns_its_topic_and_how_fresh_it_must_be() -> None:
    [spec] = orders.specs
    columns = {column.name: column for column in spec.metadata["dagster/column_schema"].columns}
    assert list(columns) == ["id", "customer", "amount", "kafka_source", "kafka_partition", "kafka_offset"]
    assert (columns["id"].type, columns["id"].constraints.nullable) == ("BIGINT", False)
    assert columns["customer"].description == "who"
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["kafka", "orders"])]
    assert spec.freshness_policy == dg.FreshnessPolicy.time_window(fail_window=_an_hour())
    assert spec.owners == ["team:shop"]


def test_the_component_knows_every_attribute_of_a_stream_and_says_what_it_is() -> None:
    ours = {field.alias or name for name, field in Stream.model_fields.items()}
    appearance = {"group_name", "owners", "tags", "pool", "freshness", "description", "code_version"}
    # What `dg docs`, an editor and Dagster+ are shown: not what the fields say, but what Dagster makes of them.
    shown = KafkaTopic.model().model_json_schema()
    theirs = {name: one.get("description") for name, one in shown["properties"].items()}
    assert set(theirs) == ours | appearance
    assert [name for name, said in theirs.items() if not said] == []
    for part in shown["$defs"].values():
        assert [name for name, one in part["properties"].items() if not one.get("description")] == []


def test_dg_finds_the_component_in_the_package() -> None:
    assert "KafkaTopic" in dir(kafka_assets)
    assert hasattr(kafka_assets.KafkaTopic, "__dg_package_entry__")


def test_a_components_file_in_a_project_of_dg_gives_asset_topic_and_sensor() -> None:
    with create_defs_folder_sandbox() as sandbox:
        sandbox.scaffold_component(component_cls=KafkaTopic, defs_path="orders", defs_yaml_contents=_parsed(ORDERS))
        sandbox.scaffold_component(
            component_cls=KafkaTopic,
            defs_path="returns",
            defs_yaml_contents=_parsed(
                ORDERS.replace("target: orders", "target: returns").replace("start: 2026-01-01T00:00:00Z", "")
            ),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Dagster's own, of its loader
            with sandbox.build_all_defs() as found:
                repository = found.get_repository_def()
                keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
                assert keys == {"orders", "returns", "kafka/orders"}
                assert {sensor.name for sensor in repository.sensor_defs} == {"kafka_slices", "kafka_health"}
                assert len({key.name for key in repository.asset_graph.asset_check_keys}) == len(NAMES)


def project_of_dg(**files: str) -> dg.RepositoryDefinition:
    """What `dg` makes of a project's folder `defs/`."""
    with create_defs_folder_sandbox() as sandbox, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dagster's own, of its loader
        for name, text in files.items():
            path = sandbox.defs_folder_path / name.replace("__", "/").replace("_yaml", ".yaml").replace("_py", ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        with sandbox.build_all_defs() as found:
            repository = found.get_repository_def()
            assert repository.asset_graph  # computed once, and kept
            return repository


def _checked(repository: dg.RepositoryDefinition) -> set[str]:
    return {key.asset_key.to_user_string() for key in repository.asset_graph.asset_check_keys}


STREAMS = "type: kafka_assets.KafkaStreams\n"
OWN = """
import dagster as dg
from kafka_assets.assets.resources import KafkaResource

@dg.definitions
def resources():
    return dg.Definitions(resources={"kafka_assets_broker": KafkaResource(bootstrap_servers="k:1"), "kafka": "theirs"})
"""


def test_functions_alone_in_a_project_of_dg_are_served_by_one_component() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"KafkaStreams"):
        project_of_dg(payments_py=PAYMENTS)
    repository = project_of_dg(payments_py=PAYMENTS, kafka__defs_yaml=STREAMS)
    assert {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()} == {"payments", "kafka/orders"}
    assert repository.asset_graph.get(dg.AssetKey(["kafka", "orders"])).group_name == "kafka_topics"
    assert {sensor.name for sensor in repository.sensor_defs} == {"kafka_slices", "kafka_health"}
    assert len(repository.asset_graph.asset_check_keys) == len(NAMES)


def test_functions_beside_components_have_their_checks_and_a_shared_topic_is_there_once() -> None:
    other = PAYMENTS.replace("payments", "returns").replace('topic="orders"', 'topic="returns"')
    repository = project_of_dg(orders__defs_yaml=ORDERS, payments_py=PAYMENTS, returns_py=other)
    assert _checked(repository) == {"orders", "payments", "returns"}
    topics = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()} - _checked(repository)
    assert topics == {"kafka/orders", "kafka/returns"}


def test_a_file_that_builds_its_own_definitions_is_taken_at_its_word() -> None:
    own = PAYMENTS + "from kafka_assets import build_definitions\ndefs = build_definitions([payments])\n"
    repository = project_of_dg(orders__defs_yaml=ORDERS, payments_py=own)
    assert _checked(repository) == {"orders", "payments"}
    assert {sensor.name for sensor in repository.sensor_defs} == {"kafka_slices", "kafka_health"}


def test_a_projects_own_resources_stand_beside_the_components_or_in_their_place() -> None:
    for server in ({}, {"kafka__defs_yaml": STREAMS}):
        given = project_of_dg(orders__defs_yaml=ORDERS, own_py=OWN, **server).get_top_level_resources()
        assert {"kafka", "kafka_assets_broker", "kafka_assets_io", "kafka_assets_spark"} <= given.keys()
        assert "k:1" in str(given["kafka_assets_broker"].config_schema.default_value)


@pytest.mark.slow
def test_components_in_python_files_and_functions_in_folders_are_met() -> None:
    inline = """
import dagster as dg
from kafka_assets import KafkaTopic

@dg.component_instance
def load(context):
    return KafkaTopic(topic="orders", target="inline", schema="id BIGINT")
"""
    for server in ({}, {"kafka__defs_yaml": STREAMS}, {"orders__defs_yaml": ORDERS}):
        repository = project_of_dg(
            inline_py=inline,
            shop__deep__payments_py=PAYMENTS,
            shop__defs_yaml="type: dagster.DefsFolderComponent\n",
            **server,
        )
        assert _checked(repository) == {"inline", "payments"} | ({"orders"} if "orders__defs_yaml" in server else set())
        assert dg.AssetKey(["kafka", "orders"]) in repository.asset_graph.get_all_asset_keys()
        assert {sensor.name for sensor in repository.sensor_defs} == {"kafka_slices", "kafka_health"}


def test_one_component_serves_and_a_second_is_refused() -> None:
    with pytest.raises(ComponentTreeException) as doubled:
        project_of_dg(one__defs_yaml=STREAMS, two__defs_yaml=STREAMS)
    assert "several components" in str(doubled.value.__cause__)


def test_assets_in_plain_definitions_name_what_would_serve_them() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"kafka_assets\.build_definitions\(\[.*KafkaStreams"):
        dg.Definitions(assets=[orders]).get_repository_def()


def test_a_resource_under_a_key_that_no_stream_asks_for_is_refused() -> None:
    mine = KafkaResource(bootstrap_servers="k:1")
    with pytest.raises(StreamError, match=r"'kafka', a KafkaResource, would be used by no stream.*kafka_assets_broker"):
        build_definitions([orders], resources={"kafka": mine})
    # Theirs may have any name, and the same cluster may serve them, too.
    build_definitions([orders], resources={"kafka": mine, "kafka_assets_broker": mine, "pyspark": object()})


def test_a_key_that_was_changed_afterwards_is_refused_where_it_is_looked_for() -> None:
    module = ModuleType("shop")
    module.orders = orders  # type: ignore[attr-defined]
    [renamed] = dg.load_assets_from_modules([module], key_prefix="shop")
    assert isinstance(renamed, dg.AssetsDefinition)
    context = dg.build_sensor_context(definitions=build_definitions([renamed]))
    with pytest.raises(StreamError, match=r"stream 'orders' has the key 'shop/orders'.*key_prefix.*`name`"):
        streams_of(context, None)


def test_definitions_of_several_hands_merge_into_one_sensor_and_one_topic(tmp_path: Path) -> None:
    [payments] = load_assets(written(tmp_path, payments_py=PAYMENTS))
    mine = dg.Definitions(assets=[dg.AssetSpec("downstream", deps=[payments])])
    merged = dg.Definitions.merge(build_definitions([orders]), build_definitions([payments]), mine)
    repository = merged.get_repository_def()
    assert {sensor.name for sensor in repository.sensor_defs} == {"kafka_slices", "kafka_health"}
    topic = repository.asset_graph.get(dg.AssetKey(["kafka", "orders"]))
    assert (topic.kinds, topic.metadata["kafka/topic"], topic.is_materializable) == ({"kafka"}, "orders", False)


def test_one_sensor_serves_streams_with_partitions_of_their_own(tmp_path: Path) -> None:
    assets = [orders, *load_assets(written(tmp_path, payments_py=PAYMENTS))]
    dg.Definitions.validate_loadable(build_definitions(assets))
    sensor = build_definitions(assets).get_repository_def().get_sensor_def("kafka_slices")
    context = dg.build_sensor_context(definitions=build_definitions(assets))
    assert [stream.name for stream in streams_of(context, None)] == ["orders", "payments"]
    assert [stream.name for stream in streams_of(context, [orders.key])] == ["orders"]
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING


def test_a_folder_holds_both_kinds_of_files_and_folders_of_them(tmp_path: Path) -> None:
    two = ORDERS.replace("target: orders", "target: a") + "---" + ORDERS.replace("target: orders", "target: b")
    other = "type: dagster.DefsFolderComponent\n"
    folder = written(tmp_path, payments_py=PAYMENTS, two_yaml=two, deep__defs_yaml=ORDERS, other__defs_yaml=other)
    assert sorted(asset.key.to_user_string() for asset in load_assets(folder)) == ["a", "b", "orders", "payments"]


def test_a_file_takes_what_another_one_declares_by_a_relative_import(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        a_large_py=LARGE.format(module=".payments"),  # loaded first, and its import loads the other
        payments_py=PAYMENTS,
        deep__larger_py=LARGE.format(module="..payments").replace("large", "larger"),
    )
    for _ in range(2):
        found = {asset.key.to_user_string(): asset for asset in load_assets(folder)}
        assert sorted(found) == ["large", "larger", "payments"]
        upstream = {stream.name: stream.upstream for asset in found.values() if (stream := _derived(asset))}
        assert upstream == {"large": "payments", "larger": "payments"}
        dg.Definitions.validate_loadable(build_definitions(list(found.values())))
    # Another folder, or the same one changed, is loaded as it is now.
    changed = written(tmp_path, payments_py=PAYMENTS.replace('target="payments"', 'target="paid"'))
    targets = {stream.upstream_target for asset in load_assets(changed) if (stream := _derived(asset))}
    assert targets == {"paid"}


def test_the_version_of_an_asset_below_covers_its_declaration_and_what_it_reads(tmp_path: Path) -> None:
    def version(*changes: tuple[str, str]) -> str | None:
        files = [PAYMENTS, LARGE.format(module=".payments")]
        for old, new in changes:
            assert any(old in one for one in files)
            files = [one.replace(old, new) for one in files]
        for stale in tmp_path.rglob("*.py"):
            stale.unlink()
        found = load_assets(written(tmp_path, payments_py=files[0], large_py=files[1]))
        [large] = [asset for asset in found if _derived(asset)]
        assert isinstance(large, dg.AssetsDefinition)
        return large.code_versions_by_key[large.key]

    first = version()
    assert version() == first
    # What the function above makes is data to the one below, which no code of its own has changed.
    assert version(("    return records", "    return records.limit(1)")) == first
    changed = [
        version(("id > 10", "id > 11")),
        version(('target="large"', 'target="large", on_bad="fail"')),
        version(('target="large"', 'target="larger"')),
        version(("id BIGINT", "id BIGINT, amount INT")),
        version(('target="payments"', 'target="paid"')),
        version(('topic="orders"', 'topic="sold"')),
    ]
    assert len({first, *changed}) == 1 + len(changed)


def test_a_row_of_a_whole_slice_is_no_record_for_an_asset_below(tmp_path: Path) -> None:
    folder = written(tmp_path, payments_py=PAYMENTS.replace("topic=", 'scope="slice", topic='))
    [payments] = load_assets(folder)
    with pytest.raises(StreamError, match="belong to no record"):
        slice_asset(upstream=payments, target="large", name="large")(lambda rows: rows)
    assert slice_asset(upstream=payments, target="large", name="large", scope="slice")(lambda rows: rows).keys


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("type: dbt.Project\nattributes: {}", "its type is 'dbt.Project'"),
        ("type: kafka_assets.KafkaTopic", "it has no attributes"),
        ("[1, 2", "while parsing a flow sequence"),
        ("type: kafka_assets.KafkaTopic\nattributes: {topic: a, target: b}", "schema"),
        ("type: kafka_assets.KafkaTopic\nattributes: {topic: a, target: b, schema: c INT, colour: red}", "colour"),
        ("type: kafka_assets.KafkaTopic\nattributes: {topic: a b, target: b, schema: c INT}", "no Kafka topic"),
        ("type: kafka_assets.KafkaTopic\nattributes: {topic: a, target: b, schema: c INT, freshness: 1s}", "freshness"),
        ("type: kafka_assets.KafkaTopic\nattributes: {topic: a, target: b, schema: c INT, owners: [shop]}", "owner"),
        ("type: kafka_assets.KafkaTopic\nattributes: {topic: a, target: b, schema: c INT, group_name: a b}", "group"),
        ("type: kafka_assets.KafkaTopic\nattributes: {topic: a, target: b, schema: c INT, tags: {a b: c}}", "tag"),
        ("type: kafka_assets.KafkaTopic\nattributes: {topic: a, target: b, schema: c INT, pool: a b}", "pool"),
    ],
)
def test_a_file_that_declares_no_stream_is_refused_by_its_name(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, wrong_yaml=text) / "wrong.yaml"
    with pytest.raises(StreamError) as error:
        assets_in(path)
    assert str(path) in str(error.value)
    assert said in str(error.value)


def test_the_example_project_loads_with_all_that_it_shows() -> None:
    shown = build_definitions(load_assets(Path(kafka_assets.__file__).parent / "defs"))
    repository = shown.get_repository_def()
    names = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    tables = {"orders", "customers", "order_totals", "shop_report", "shop_books"}
    assert names == {*tables, "kafka/orders", "kafka/customers"}
    [customers] = assets_in(Path(kafka_assets.__file__).parent / "defs" / "customers.yaml")
    stream = stream_of(customers)
    assert stream is not None
    assert stream.upsert is not None
    checks = {key.name for key in repository.asset_graph.asset_check_keys}
    assert checks == {*NAMES, "no_order_is_free"}
    # The sensors find their streams among assets and specs of all kinds.
    served = streams_of(dg.build_sensor_context(definitions=shown), None)
    assert sorted(one.name for one in served) == ["customers", "order_totals", "orders"]
    totals = repository.asset_graph.get(dg.AssetKey("order_totals"))
    assert totals.parent_keys == {dg.AssetKey("orders")}
    assert totals.partitions_def == repository.asset_graph.get(dg.AssetKey("orders")).partitions_def


def test_two_streams_with_one_name_or_one_table_are_refused(tmp_path: Path) -> None:
    for text, said in ((ORDERS, "two assets are named 'orders'"), (ORDERS + "  name: again\n", "the same target")):
        found = load_assets(written(tmp_path, a_yaml=ORDERS, b_yaml=text, payments_py=PAYMENTS))
        assert [stream.name for stream in streams_in(found)] == ["payments"]
        assert [one.path.name for one in broken_in(found)] == ["a.yaml", "b.yaml"]
        assert all(said in str(one.error) for one in broken_in(found))


def _parsed(text: str) -> dict[str, object]:
    import yaml

    found = yaml.safe_load(text)
    found["attributes"] = {
        name: value.isoformat() if name == "start" and value else value
        for name, value in found["attributes"].items()
        if value is not None
    }
    return found


def _derived(asset: object) -> Derived | None:
    stream = stream_of(asset) if isinstance(asset, dg.AssetsDefinition) else None
    return stream if isinstance(stream, Derived) else None


def _an_hour():
    from datetime import timedelta

    return timedelta(hours=1)
