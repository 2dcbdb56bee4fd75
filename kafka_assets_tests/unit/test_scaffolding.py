"""`dg scaffold`: the file that it writes is a stream that loads, and what is wrong is said before there is one."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from dagster.components.testing import create_defs_folder_sandbox

from kafka_assets import KafkaTopic
from kafka_assets.assets.decorator import stream_of

SCHEMA = "id BIGINT NOT NULL, note STRING"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "found"),
    [
        (None, ("order-lines", "order_lines", "append", (), "value STRING")),
        ({"schema": SCHEMA}, ("order-lines", "order_lines", "append", (), SCHEMA)),
        ({"schema": SCHEMA, "topic": "shop.lines"}, ("shop.lines", "shop_lines", "append", (), SCHEMA)),
        ({"schema": SCHEMA, "target": "raw.lines"}, ("order-lines", "raw.lines", "append", (), SCHEMA)),
        ({"schema": SCHEMA, "key": "id, note"}, ("order-lines", "order_lines", "upsert", ("id", "note"), SCHEMA)),
    ],
)
def test_what_is_written_loads(said: dict[str, str] | None, found: tuple[Any, ...]) -> None:
    with create_defs_folder_sandbox() as sandbox, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dagster's own, of its loader
        sandbox.scaffold_component(KafkaTopic, defs_path="order-lines", scaffold_params=said)
        with sandbox.build_all_defs() as definitions:
            assets = definitions.get_repository_def().assets_defs_by_key
    [stream] = [stream for asset in assets.values() if (stream := stream_of(asset)) is not None]
    assert (stream.topic, stream.target, stream.mode, stream.key, stream.schema_) == found


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"schema": "id BIGIT"}, "'BIGIT' is no type"),
        ({"schema": SCHEMA, "key": "ident"}, "the schema has no field 'ident'"),
        ({"key": "id"}, "the schema has no field 'id'"),
        ({"schema": SCHEMA, "topic": "no topic"}, "'no topic' is no Kafka topic"),
    ],
)
def test_what_does_not_land_is_not_written(said: dict[str, str], why: str) -> None:
    with create_defs_folder_sandbox() as sandbox:
        with pytest.raises(ValueError, match=why):
            sandbox.scaffold_component(KafkaTopic, defs_path="orders", scaffold_params=said)
        assert not (sandbox.defs_folder_path / "orders" / "defs.yaml").exists()
