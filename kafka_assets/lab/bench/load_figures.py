"""What came of a load that lasted: each record's time to its commit, the lag, and what the parts used; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_assets.audit.bench import Figure
from kafka_assets.lab.bench.latency import MILLION, WHOLE, percentile
from kafka_assets.lab.bench.process_roles import NURSERY, RUNS, RoleUse

OTHERS = "bench"
"""The role of this process, which produces and looks on: no part of what is measured."""
GROWTH = 1.25
TICK = 5.0
"""Seconds between two ticks of the sensor: a lag of so much more is no drift."""


@dataclass(frozen=True)
class LandedSlice:
    """One committed slice; times in milliseconds since 1970, by the machine's clock."""

    stream: str
    planned: int
    committed: int
    run_id: str
    produced: Sequence[int]
    """When each of its records was made, as the record itself says."""


@dataclass(frozen=True)
class LoadLook:
    """One moment of the load: the time, what was produced until then, and what each role had used."""

    at: int
    sent: int
    used: Mapping[str, RoleUse]
    busy: float
    """Processor seconds of the whole machine, whoever used them."""


@dataclass(frozen=True)
class TableCheck:
    """What the tables have in the end, beside what was produced."""

    produced: int
    rows: int
    distinct: int
    """Different records among them, of those that were produced."""

    def __add__(self, other: TableCheck) -> TableCheck:
        return TableCheck(self.produced + other.produced, self.rows + other.rows, self.distinct + other.distinct)

    @property
    def missing(self) -> int:
        return self.produced - self.distinct

    @property
    def doubled(self) -> int:
        """Rows more than there are records."""
        return self.rows - self.distinct

    @property
    def exact(self) -> bool:
        return not self.missing and not self.doubled


@dataclass(frozen=True)
class LoadMeasured:
    """All that is known of a load. The first of the looks ends the warm-up, the last one the producing."""

    looks: Sequence[LoadLook]
    slices: Sequence[LandedSlice]
    check: TableCheck
    cores: int
    caught_up: float | None
    """Seconds from the end of the producing until all was committed; None where it was not, in the time it had."""

    @property
    def begin(self) -> int:
        return self.looks[0].at

    @property
    def end(self) -> int:
        return self.looks[-1].at

    def quarter(self, number: int) -> float:
        """The lag in this quarter of the time, from 1 to 4: records that were produced and not committed, on average.

        Exact for what is committed by now; what is not is missing here, and makes it fall behind anyway.
        """
        length = (self.end - self.begin) / 4
        return lag(self.slices, self.begin + (number - 1) * length, self.begin + number * length)

    @property
    def rate(self) -> float:
        """Records a second, of all streams."""
        return (self.looks[-1].sent - self.looks[0].sent) * 1000 / max(self.end - self.begin, 1)

    @property
    def falls_behind(self) -> bool:
        """Whether it would not last: not all landed in time, or the lag of the last quarter beyond the second's."""
        return self.caught_up is None or self._lag_grows

    @property
    def why_behind(self) -> str:
        """What says so, for who reads it."""
        if self.caught_up is None:
            return f"{self.check.missing:,} of {self.check.produced:,} records had not landed when it was given up"
        second, last = self.quarter(2), self.quarter(4)
        return f"in the last quarter of the time {last:,.0f} records waited on average, in the second {second:,.0f}"

    @property
    def _lag_grows(self) -> bool:
        second, last = self.quarter(2), self.quarter(4)
        return last > GROWTH * second and last - second > TICK * self.rate


def lag(slices: Iterable[LandedSlice], begin: float, end: float) -> float:
    """How many records waited between production and commit, on average over this time."""
    waited = 0.0
    for one in slices:
        last = min(one.committed, end)
        if last > begin:
            waited += sum(max(last - max(produced, begin), 0) for produced in one.produced)
    return waited / max(end - begin, 1)


def seconds_to_commit(slices: Iterable[LandedSlice], begin: float = 0, end: float = float("inf")) -> list[float]:
    """Of each record that was produced in this time; sorted."""
    return sorted(
        (one.committed - produced) / 1000 for one in slices for produced in one.produced if begin <= produced <= end
    )


def used_between(first: LoadLook, last: LoadLook, *, cores: int) -> dict[str, float]:
    """By role, the share of all cores that it used, in percent; the dearest first."""
    span = max(last.at - first.at, 1) / 1000 * cores
    shares = {
        role: 100 * max(use.seconds - first.used.get(role, RoleUse()).seconds, 0.0) / span
        for role, use in last.used.items()
    }
    return dict(sorted(shares.items(), key=lambda one: -one[1]))


def minute_line(before: LoadLook, now: LoadLook, *, landed: int, new: Sequence[LandedSlice], cores: int) -> str:
    """What the time between two looks has shown, for who watches: `landed` so far, and the slices that are `new`."""
    times = seconds_to_commit(new)
    p95 = f"{percentile(times, 95):.1f} s" if times else "-"
    shares = used_between(before, now, cores=cores)
    cpu = " ".join(f"{role} {share:.0f}" for role, share in shares.items() if share >= 0.5)
    memory = sorted(now.used.items(), key=lambda one: -one[1].memory)
    return (
        f"produced {now.sent:,}  landed {landed:,}  lag {now.sent - landed:,}  p95 {p95}"
        f"  runs {len({one.run_id for one in new})}  CPU {_measured_share(shares):.0f} %: {cpu}"
        f"  MB: {' '.join(f'{role} {use.memory / MILLION:.0f}' for role, use in memory)}"
    )


def figures_of(measured: LoadMeasured) -> list[Figure]:
    """All figures; times of the records that were produced after the warm-up."""
    return [
        *_times(measured),
        *_lags(measured),
        *_processors(measured),
        *_memory(measured),
        *_runs(measured),
        Figure("records produced", measured.check.produced, "records"),
        Figure("records missing", measured.check.missing, "records"),
        Figure("records doubled", measured.check.doubled, "records"),
    ]


def _times(measured: LoadMeasured) -> Iterator[Figure]:
    counted = [
        (produced, one.planned, one.committed)
        for one in measured.slices
        for produced in one.produced
        if measured.begin <= produced <= measured.end
    ]
    if not counted:
        return
    parts = {
        WHOLE: [committed - produced for produced, _, committed in counted],
        "produced → planned": [planned - produced for produced, planned, _ in counted],
        "planned → committed": [committed - planned for _, planned, committed in counted],
    }
    wholes: dict[str, float] = {}
    for name, values in parts.items():
        for said, percent in (("median", 50), ("p95", 95), ("maximum", 100)):
            value = percentile(values, percent) / 1000
            whole = wholes.setdefault(said, value)
            against = None if name == WHOLE else f"{WHOLE}, {said}"
            ratio = round(value / whole, 3) if against and whole else None
            yield Figure(f"{name}, {said}", round(value, 3), "s", against, ratio)


def _lags(measured: LoadMeasured) -> Iterator[Figure]:
    second, last = measured.quarter(2), measured.quarter(4)
    yield Figure("lag, second quarter", round(second), "records")
    ratio = round(last / second, 3) if second else None
    yield Figure("lag, last quarter", round(last), "records", "lag, second quarter" if second else None, ratio)
    yield Figure("falls behind", int(measured.falls_behind), "1 where it does")
    if measured.caught_up is not None:
        yield Figure("all committed after the end", round(measured.caught_up, 1), "s")


def _processors(measured: LoadMeasured) -> Iterator[Figure]:
    first, last = measured.looks[0], measured.looks[-1]
    unit = f"% of {measured.cores} cores"
    shares = used_between(first, last, cores=measured.cores)
    whole = _measured_share(shares)
    yield Figure("CPU", round(whole, 1), unit)
    minutes = zip(measured.looks, measured.looks[1:], strict=False)
    highest = max(_measured_share(used_between(*two, cores=measured.cores)) for two in minutes)
    yield Figure("CPU, highest minute", round(highest, 1), unit)
    for role, share in shares.items():
        beside = role != OTHERS and whole
        ratio = round(share / whole, 3) if beside else None
        yield Figure(f"CPU of {role}", round(share, 1), unit, "CPU" if beside else None, ratio)
    machine = 100 * (last.busy - first.busy) / max(last.at - first.at, 1) * 1000 / measured.cores
    yield Figure("CPU of the whole machine", round(machine, 1), unit)


def _memory(measured: LoadMeasured) -> Iterator[Figure]:
    first, last = (_measured_memory(look.used) for look in (measured.looks[0], measured.looks[-1]))
    yield Figure("memory (PSS) after the warm-up", round(first), "MB")
    yield Figure(
        "memory (PSS) at the end", round(last), "MB", "memory (PSS) after the warm-up", round(last / max(first, 1), 3)
    )
    for role, use in sorted(measured.looks[-1].used.items(), key=lambda one: -one[1].memory):
        yield Figure(f"memory (PSS) of {role}", round(use.memory / MILLION), "MB")


def _runs(measured: LoadMeasured) -> Iterator[Figure]:
    records: dict[str, int] = {}
    for one in measured.slices:
        if measured.begin <= one.committed <= measured.end:
            records[one.run_id] = records.get(one.run_id, 0) + len(one.produced)
    if not records:
        return
    yield Figure("runs a minute", round(len(records) * 60_000 / max(measured.end - measured.begin, 1), 1), "runs")
    yield Figure("records a run, median", round(statistics.median(records.values())), "records")
    first, last = measured.looks[0].used, measured.looks[-1].used
    for role in sorted({*last} - {OTHERS, NURSERY}, key=lambda one: (one != RUNS, one)):
        spent = max(last[role].seconds - first.get(role, RoleUse()).seconds, 0.0)
        yield Figure(f"CPU of {role}, a run", round(spent / len(records), 3), "CPU s")


def _measured_share(shares: Mapping[str, float]) -> float:
    return sum(share for role, share in shares.items() if role != OTHERS)


def _measured_memory(used: Mapping[str, RoleUse]) -> float:
    return sum(use.memory for role, use in used.items() if role != OTHERS) / MILLION
