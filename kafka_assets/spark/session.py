"""How a Spark session is configured: the warm Connect server, any other endpoint, or a classic master."""

from __future__ import annotations

import atexit
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


def leave_quietly(session: Any) -> None:
    """Let a session have nothing left to say when its process ends.

    The client of Spark Connect would ask the server then to drop a cache of models, which nothing here fills; where
    the server is gone by that time, it asks again and again for about ten minutes, and a process that is over does
    not end (seen with 4.2.0).
    """
    farewell = getattr(getattr(session, "client", None), "_on_exit", None)
    if farewell is not None:
        atexit.unregister(farewell)


def _connector_jars() -> list[Any]:
    from kafka_assets.devstack import connector_jars

    return connector_jars()
