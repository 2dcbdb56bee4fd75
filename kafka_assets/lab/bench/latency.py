"""From record produced to row committed: the moments on the way, and the time between them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_assets.audit.bench import Figure
from kafka_assets.lab.bench.run_cost import RunCost

MILLION = 1_000_000
WHOLE = "record produced → row committed"


@dataclass(frozen=True)
class Way:
    """One record's way, in milliseconds since 1970; None where nobody saw the moment."""

    produced: int
    planned: int
    committed: int
    claimed: int | None = None
    dequeued: int | None = None
    """When Dagster's queue let go of the run: its worker is being started."""
    started: int | None = None
    """When the run's worker began."""
    steps: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds by step of the run, as it told Dagster."""


PARTS = (
    ("produced → planned", "produced", "planned"),
    ("planned → claimed", "planned", "claimed"),
    ("claimed → committed", "claimed", "committed"),
    ("planned → out of Dagster's queue", "planned", "dequeued"),
    ("out of the queue → worker runs", "dequeued", "started"),
    ("worker runs → claimed", "started", "claimed"),
)
"""The first three are the whole; the others are what the second is made of."""


@dataclass(frozen=True)
class Part:
    """What one part of the way takes: the middle, and what one record in twenty exceeds; in milliseconds."""

    name: str
    median: float
    p95: float
    records: int


def parts_of(ways: Sequence[Way]) -> list[Part]:
    """The whole first, then its parts, then the steps of the runs; each over the records that it is known of."""
    measured = {WHOLE: [float(way.committed - way.produced) for way in ways]}
    for name, first, last in PARTS:
        measured[name] = list(_between(ways, first, last))
    for step in dict.fromkeys(step for way in ways for step in way.steps):
        measured[f"step {step}"] = [way.steps[step] * 1000 for way in ways if step in way.steps]
    return [
        Part(name, statistics.median(values), percentile(values, 95), len(values))
        for name, values in measured.items()
        if values
    ]


def figures_of(parts: Sequence[Part]) -> list[Figure]:
    """Median and p95 of each part, beside the whole's."""
    figures: list[Figure] = []
    for part in parts:
        for said in ("median", "p95"):
            value, whole = getattr(part, said), getattr(parts[0], said)
            against = None if part is parts[0] else f"{WHOLE}, {said}"
            ratio = round(value / whole, 3) if against and whole else None
            figures.append(Figure(f"{part.name}, {said}", round(value / 1000, 3), "s", against, ratio))
    return figures


def costs_of(costs: Sequence[RunCost], seconds: Mapping[str, float]) -> list[Figure]:
    """What a run cost, median and p95, and what the services used for each run; nothing where no run was seen."""
    if not costs:
        return []
    figures: list[Figure] = []
    for name, values, unit, digits in (
        ("a run: CPU", [one.seconds for one in costs], "CPU s", 2),
        ("a run: memory of its own, peak", [one.private / MILLION for one in costs], "MB", 1),
        ("a run: PSS, peak", [one.pss / MILLION for one in costs], "MB", 1),
    ):
        figures.append(Figure(f"{name}, median", round(statistics.median(values), digits), unit))
        figures.append(Figure(f"{name}, p95", round(percentile(values, 95), digits), unit))
    for part, spent in seconds.items():
        figures.append(Figure(f"{part}: CPU a run", round(spent / len(costs), 2), "CPU s"))
    return figures


def percentile(values: Iterable[float], percent: int) -> float:
    """The smallest value that so many of a hundred do not exceed: one that was measured, never one in between."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _between(ways: Sequence[Way], first: str, last: str) -> Iterable[float]:
    for way in ways:
        began, ended = getattr(way, first), getattr(way, last)
        if began is not None and ended is not None:
            yield float(ended - began)
