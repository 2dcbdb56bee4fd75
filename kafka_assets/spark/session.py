"""How a Spark session is configured: the warm Connect server, any other endpoint, or a classic master."""

from __future__ import annotations

import os
from typing import Any

from kafka_assets.settings import Settings


def spark_config(settings: Settings) -> dict[str, Any]:
    """What dagster-pyspark's resource hands to the session builder."""
    endpoint = settings.require_spark()
    if settings.spark_remote is not None:
        return {"spark.remote": endpoint}
    return {
        "spark.master": endpoint,
        "spark.jars": ",".join(str(jar) for jar in _connector_jars()),
        "spark.ui.enabled": "false",
        # Decoding takes a text without a zone as UTC, wherever the session runs.
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": os.environ.get("KAFKA_ASSETS_SPARK_DRIVER_MEMORY", "2g"),
    }


def _connector_jars() -> list[Any]:
    from kafka_assets.devstack import connector_jars

    return connector_jars()
