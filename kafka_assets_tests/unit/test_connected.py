"""What a session of Spark Connect does besides its work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASKED = """
import logging.config
import kafka_assets.spark.connected
from pyspark.sql.connect.logging import logger
logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})  # as Dagster does
print(logger.isEnabledFor(logging.ERROR))
"""


@pytest.mark.slow
@pytest.mark.parametrize("asked_for", [False, True])
def test_errors_that_are_dealt_with_are_printed_only_for_who_asks(asked_for: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_CONNECT_LOG_LEVEL"}
    if asked_for:
        environment["SPARK_CONNECT_LOG_LEVEL"] = "error"
    done = subprocess.run([sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{asked_for}\n"
