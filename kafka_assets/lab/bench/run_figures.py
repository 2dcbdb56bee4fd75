"""The figures of a benchmark of runs: medians, their spread, and ratios within the run; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kafka_assets.audit.bench import Figure
from kafka_assets.lab.bench.usage import CLIENT, Usage

MILLION = 1_000_000


@dataclass
class RoadLaps:
    """What one road did in each round that counts.

    `seconds` by the clock that was read: a road may have several, and most have one without a name.
    """

    name: str
    seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    usages: list[Usage] = field(default_factory=list[Usage])
    fixed: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Seconds in which nothing landed, by what they are."""

    def add(
        self, seconds: Mapping[str, float], usage: Usage, fixed: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """One more round."""
        for what, took in fixed.items():
            self.fixed.setdefault(what, []).append(took)
        for clock, took in seconds.items():
            self.seconds.setdefault(clock, []).append(took)
        self.usages.append(usage)

    def figure_name(self, clock: str) -> str:
        return f"{self.name}: {clock}" if clock else self.name


@dataclass(frozen=True)
class Load:
    """The machine's load averages (1 and 5 minutes) before anything was started, and when the last road had ended."""

    before: tuple[float, float]
    after: tuple[float, float]


def figures_of(
    laps: Sequence[RoadLaps], *, records: int, against: Mapping[str, Sequence[str]], rival: str, load: Load
) -> list[Figure]:
    """The rates and their spread, then what each road cost, then the load of the machine.

    `against` says beside which other rates a rate stands; `rival` is the road beside which all costs stand.
    """
    rates = {
        one.figure_name(clock): [records / took for took in seconds]
        for one in laps
        for clock, seconds in one.seconds.items()
    }
    medians = {name: statistics.median(found) for name, found in rates.items()}
    figures: list[Figure] = []
    for one in laps:
        for clock in one.seconds:
            name = one.figure_name(clock)
            rivals = {other: medians[other] for other in against.get(name, ())}
            figures += _beside(name, medians[name], "rows/s", rivals, digits=0)
            figures += [
                Figure(f"{name}, slowest of {len(rates[name])}", round(min(rates[name])), "rows/s"),
                Figure(f"{name}, fastest of {len(rates[name])}", round(max(rates[name])), "rows/s"),
            ]
        for what, took in one.fixed.items():
            figures.append(Figure(one.figure_name(what), round(statistics.median(took), 3), "s"))
    costs = {one.name: _cost(one.usages, records) for one in laps}
    for one in laps:
        figures += list(_costs(one.name, costs[one.name], rival=rival, rivals=costs.get(rival, {})))
    return [*figures, *averages_of(load)]


def averages_of(load: Load) -> list[Figure]:
    """The machine's load: what the benchmark makes itself, and others beside it."""
    return [
        Figure(f"load average {when}, {length}", round(value, 2), "processes")
        for when, averages in (("before", load.before), ("after", load.after))
        for length, value in zip(("1 minute", "5 minutes"), averages, strict=True)
    ]


def _cost(usages: Sequence[Usage], records: int) -> dict[tuple[str, str], float]:
    """Medians by what they are and their unit."""
    parts = dict.fromkeys(part for usage in usages for part in usage.seconds)
    per = "CPU s/million rows"
    found = {("CPU", per): [sum(usage.seconds.values()) * MILLION / records for usage in usages]}
    for part in parts:
        found[f"CPU of the {part}", per] = [usage.seconds.get(part, 0.0) * MILLION / records for usage in usages]
    found[f"peak RSS of the {CLIENT}", "MB"] = [usage.rss / MILLION for usage in usages]
    found[f"peak PSS of the {CLIENT}", "MB"] = [usage.pss / MILLION for usage in usages]
    return {what: statistics.median(values) for what, values in found.items()}


def _costs(
    name: str, cost: Mapping[tuple[str, str], float], *, rival: str, rivals: Mapping[tuple[str, str], float]
) -> Iterator[Figure]:
    for (what, unit), value in cost.items():
        if not value:  # it had nothing to do with it, or was over before anybody looked
            continue
        beside = rivals.get((what, unit)) if name != rival else None
        yield from _beside(f"{name}: {what}", value, unit, {f"{rival}: {what}": beside} if beside else {}, digits=2)


def _beside(name: str, value: float, unit: str, rivals: Mapping[str, float], *, digits: int) -> Iterator[Figure]:
    """The figure once for each of those that it stands beside, or once alone."""
    shown = round(value, digits or None)
    if not rivals:
        yield Figure(name, shown, unit)
    for rival, other in rivals.items():
        yield Figure(name, shown, unit, rival, round(value / other, 3))
