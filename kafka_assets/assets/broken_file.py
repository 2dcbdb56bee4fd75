"""A file of the streams folder that cannot be read, and the sensor that shows it in Dagster."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import dagster as dg

from kafka_assets.errors import StreamError

EVERY_SECONDS = 60


@dataclass(frozen=True)
class BrokenFile:
    """A file whose declarations nobody can use, and why; it stands among what the folder's other files declare."""

    path: Path
    error: StreamError

    @property
    def name(self) -> str:
        """A name for it in Dagster; no two files have the same."""
        stem = re.sub(r"\W+", "_", self.path.name)
        return f"{stem}_{hashlib.sha256(str(self.path).encode()).hexdigest()[:6]}"


@lru_cache(maxsize=1000)
def broken_file_sensor(file: BrokenFile) -> dg.SensorDefinition:
    """A sensor whose ticks fail with what is wrong with a file: nothing else of it can show in Dagster."""

    @dg.sensor(
        name=f"unread_{file.name}",
        minimum_interval_seconds=EVERY_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"The file {file.path} cannot be read, and none of its streams is landed: {file.error}",
    )
    def broken(context: dg.SensorEvaluationContext) -> None:
        raise dg.Failure(str(file.error))

    return broken
