"""A run's Spark session: of the warm Connect server, of any other endpoint, or of a classic master.

Whoever opens one closes it: on Spark Connect a session is the server's memory, and nobody else gives it back.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from pyspark.sql import SparkSession

from kafka_assets.settings import SPARK_PATIENCE, Settings
from kafka_assets.spark.reached import reached

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """A session, and how to give it back: within seconds, also where its server is gone."""

    session: SparkSession
    close: Callable[[], None]


def spark_config(settings: Settings) -> dict[str, Any]:
    """How the session is opened that the settings name."""
    endpoint = settings.require_spark()
    if settings.spark_remote is not None:
        return {"spark.remote": endpoint}
    return {
        "spark.master": endpoint,
        "spark.ui.enabled": "false",
        # Decoding takes a text without a zone as UTC, wherever the session runs.
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": os.environ.get("KAFKA_ASSETS_SPARK_DRIVER_MEMORY", "2g"),
    }


def open_session(
    config: Mapping[str, Any], *, patience: timedelta = SPARK_PATIENCE, say: Callable[[str], None] = _log.warning
) -> Opened:
    """A session of this configuration, whose server has answered; raises `SparkUnavailable` where none does.

    `patience`: so long a server that answered before is waited for. `say` is told of each wait.
    """
    options = _flat(config)
    remote = options.pop("spark.remote", None)
    if remote is None:
        return Opened(_classic(options), _stays)
    from kafka_assets.spark.connected import connect

    return Opened(*connect(remote, options, patience=patience, say=say))


def _flat(config: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Dagster's configuration may be nested where Spark's names have a point."""
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(cast("Mapping[str, Any]", value), f"{above}{name}.")
        else:
            found[above + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _classic(options: Mapping[str, str]) -> SparkSession:
    """The classic session of this process; there is one, and it ends with the process."""
    # Its Python workers would be whatever `python3` is first on the PATH, without the packages of this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    with reached():
        return builder.getOrCreate()


def _stays() -> None:
    """A JVM takes ten seconds to start: the next run in this process finds it warm."""
