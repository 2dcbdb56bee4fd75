"""What a running Dagster knows of its runs, asked as its own UI asks: by GraphQL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_assets.devstack.dagster import graphql

PATIENCE = 60.0
"""Seconds for runs to end after their commit; what is not told by then is left out."""

_RUNS = """
{ runsOrError { ... on Runs { results {
  runId endTime
  stats { ... on RunStatsSnapshot { launchTime startTime } }
} } } }
"""
_MADE = """
query($asset: String!) { assetNodeOrError(assetKey: {path: [$asset]}) { ... on AssetNode {
  assetMaterializations(limit: 10000) { runId metadataEntries { label ... on FloatMetadataEntry { floatValue } } }
} } }
"""
_STEP = "seconds_"


@dataclass(frozen=True)
class Told:
    """One run: when its worker was asked for and when it began, in milliseconds since 1970, and its steps."""

    dequeued: int | None = None
    started: int | None = None
    steps: Mapping[str, float] = field(default_factory=dict[str, float])


def told_of(url: str, *, asset: str) -> dict[str, Told]:
    """All runs of this Dagster, by id; waits until they have ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        runs = graphql(url, _RUNS)["runsOrError"]["results"]
        if all(run["endTime"] for run in runs) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    made = graphql(url, _MADE, asset=asset)["assetNodeOrError"]["assetMaterializations"]
    steps = {one["runId"]: _steps(one["metadataEntries"]) for one in made}
    return {
        run["runId"]: Told(
            dequeued=_ms(run["stats"].get("launchTime")),
            started=_ms(run["stats"].get("startTime")),
            steps=steps.get(run["runId"], {}),
        )
        for run in runs
    }


def _steps(entries: list[dict[str, Any]]) -> dict[str, float]:
    return {
        entry["label"].removeprefix(_STEP): entry["floatValue"]
        for entry in entries
        if entry["label"].startswith(_STEP) and entry.get("floatValue") is not None
    }


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
