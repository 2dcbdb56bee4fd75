"""What of an asset can be landed without Spark: said by its declaration, and refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from kafka_assets import LiveConsumer, kafka_asset, slice_asset
from kafka_assets.assets.yaml_files import assets_in
from kafka_assets.errors import StreamError, UsageError
from kafka_assets.forms import form_of

DECLARED: dict[str, Any] = {"topic": "orders", "target": "orders", "schema": "id BIGINT"}


def as_arrow(records: pa.Table) -> pa.Table:
    return records


def orders(records: Any) -> Any:
    return records


def test_a_stream_without_a_function_lands_as_it_comes(tmp_path: Path) -> None:
    declared = tmp_path / "orders.yaml"
    declared.write_text(yaml.safe_dump({"type": "kafka_assets.KafkaTopic", "attributes": DECLARED}))
    [asset] = assets_in(declared)
    form = form_of(asset)
    assert form is not None and form.function is None
    form.require_live()


def test_a_spark_function_is_refused_unless_it_has_an_arrow_form() -> None:
    with pytest.raises(StreamError, match="needs Spark") as raised:
        LiveConsumer(kafka_asset(**DECLARED)(orders))
    assert "arrow=function" in raised.value.cure
    form = form_of(kafka_asset(**DECLARED, arrow=as_arrow)(orders))
    assert form is not None and form.function is as_arrow
    form.require_live()


def test_the_code_version_is_that_of_the_function_that_runs() -> None:
    asset = kafka_asset(**DECLARED, arrow=as_arrow)(orders)
    form = form_of(asset)
    assert form is not None and form.code_version != asset.code_versions_by_key[asset.key]


def test_whole_slices_and_rows_of_other_assets_are_refused_with_the_reason() -> None:
    with pytest.raises(StreamError, match="scope: slice"):
        LiveConsumer(kafka_asset(**DECLARED, scope="slice")(orders))
    with pytest.raises(StreamError, match="Arrow form"):
        kafka_asset(**DECLARED, scope="slice", arrow=as_arrow)(orders)
    upstream = kafka_asset(**DECLARED)(orders)

    @slice_asset(upstream=upstream, target="more")
    def more(rows: Any) -> Any:
        return rows

    with pytest.raises(UsageError, match="cannot be consumed live"):
        LiveConsumer(more)
    with pytest.raises(UsageError, match="cannot be consumed live"):
        LiveConsumer("orders")
