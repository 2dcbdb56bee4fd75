"""What a table has, beside what was produced: counts, places, and of each column its count, sum, least and greatest.

All that is summed is a whole number, and no sum depends on the order of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Engine, text

from kafka_assets.lab.bench.record_function import GIVES, values_maker
from kafka_assets.lab.bench.record_shapes import PARTITIONS, Kind, Produced, Shape, Values
from kafka_assets.ledger.engine import read
from kafka_assets.records import OFFSET, PARTITION

_OFFSETS, _IDS = 1009, 1013
"""Primes: the sum over all rows of (offset mod the one) × (id mod the other) says which row holds which id."""
_CLOSE = 1e-9
"""A decimal is a double in SQLite."""


@dataclass(frozen=True)
class Content:
    """Facts of a table by name, made alike from the values that were produced and by the database."""

    facts: Mapping[str, Any]

    def differences(self, other: Content) -> list[str]:
        """Where another one differs, in words: this one is what should be."""
        return [
            f"{name} is {other.facts.get(name)}, and should be {value}"
            for name, value in self.facts.items()
            if not _same(value, other.facts.get(name))
        ]


def of_produced(records: Produced) -> Content:
    """What a table must have that gets all records."""
    return _of_rows(records.shape, _numbered(records))


def of_function(records: Produced) -> Content:
    """What a table must have that gets what the function makes of them."""
    made = values_maker()
    return _of_rows(
        GIVES,
        (
            [(number, row) for number, record in chunk if (row := made(record)) is not None]
            for chunk in _numbered(records)
        ),
    )


def of_merged(records: Produced) -> Content:
    """What a table must have in which of each id the last record stands."""
    totals = _Totals(records.shape)
    last = {row[0]: row for rows in records.chunks() for row in rows}
    totals.add(list(last.values()))
    return Content(totals.facts())


def _numbered(records: Produced) -> Iterator[list[tuple[int, Values]]]:
    """The records in chunks, with their numbers: they went into the partitions in turns."""
    start = 0
    for rows in records.chunks():
        yield list(enumerate(rows, start=start))
        start += len(rows)


def _of_rows(shape: Shape, chunks: Iterable[Sequence[tuple[int, Values]]]) -> Content:
    """Rows with the numbers of their records, each of a record of its own."""
    totals, pairs, count = _Totals(shape), 0, 0
    spans: dict[int, tuple[int, int]] = {}
    for rows in chunks:
        count += len(rows)
        totals.add([row for _, row in rows])
        for number, row in rows:
            partition, offset = number % PARTITIONS, number // PARTITIONS
            pairs += (offset % _OFFSETS) * (row[0] % _IDS)
            first, _ = spans.get(partition, (offset, 0))
            spans[partition] = first, offset + 1
    ends = {f"{OFFSET}s of partition {partition}": _span(*span) for partition, span in spans.items()}
    return Content({**totals.facts(), "distinct places": count, "places × ids": pairs, **ends})


def of_table(engine: Engine, table: str, shape: Shape, *, places: bool) -> Content:
    """What it has; with `places`, where in the topic its rows are from, too."""
    asked = {"rows": "count(*)"}
    for name, kind in shape.columns.items():
        number, least = _as_number(engine.dialect.name, kind, name), _as_least(engine.dialect.name, kind, name)
        asked[f"{name}: values"] = f"count({name})"
        asked[f"{name}: sum"] = f"sum({number})"
        asked[f"{name}: least"] = f"min({least})"
        asked[f"{name}: greatest"] = f"max({least})"
    if places:
        asked["places × ids"] = f"sum(({OFFSET} % {_OFFSETS}) * (id % {_IDS}))"
    with read(engine) as connection:
        found = connection.execute(text(f"SELECT {', '.join(asked.values())} FROM {table}")).one()
        facts = dict(zip(asked, map(_plain, found), strict=True))
        if places:
            # Partition by partition: of a table that was just filled PostgreSQL has no statistics, and has taken
            # more than four minutes for the distinct pairs of a million rows.
            counted = f"count(DISTINCT {OFFSET}), min({OFFSET}), max({OFFSET})"
            spans = connection.execute(text(f"SELECT {PARTITION}, {counted} FROM {table} GROUP BY {PARTITION}")).all()
            facts["distinct places"] = sum(one[1] for one in spans)
            facts |= {f"{OFFSET}s of partition {one[0]}": _span(one[2], one[3] + 1) for one in spans}
    return Content(facts)


class _Totals:
    """Sums over all rows, column by column."""

    def __init__(self, shape: Shape) -> None:
        self._shape, self._rows = shape, 0
        self._found: dict[str, list[Any]] = {}

    def add(self, rows: list[Values]) -> None:
        if not rows:
            return
        self._rows += len(rows)
        for (name, kind), column in zip(self._shape.columns.items(), zip(*rows, strict=True), strict=True):
            numbers = _numbers(kind, column)
            least, greatest = (numbers, numbers) if kind == "TIMESTAMP" else (column, column)
            found = [len(column), sum(numbers), min(least), max(greatest)]
            before = self._found.get(name)
            if before is not None:
                found = [before[0] + found[0], before[1] + found[1], min(before[2], found[2]), max(before[3], found[3])]
            self._found[name] = found

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"rows": self._rows}
        for name, found in self._found.items():
            words = ("values", "sum", "least", "greatest")
            facts |= {f"{name}: {word}": value for word, value in zip(words, found, strict=True)}
        return facts


def _numbers(kind: Kind, column: Iterable[Any]) -> list[Any]:
    """What is summed of values, whole numbers all: times in seconds since 1970, texts by their bytes, in hundredths."""
    if kind == "TIMESTAMP":
        return [int(one.timestamp()) for one in column]
    if kind == "STRING":
        return [len(one.encode()) for one in column]
    return list(column) if kind == "BIGINT" else [round(one * 100) for one in column]


def _as_number(dialect: str, kind: Kind, name: str) -> str:
    """The same, as the database says it."""
    if kind == "STRING":
        return {"postgresql": f"octet_length({name})", "sqlite": f"length(CAST({name} AS BLOB))"}.get(
            dialect, f"length({name})"
        )
    if kind == "TIMESTAMP":
        return {
            "postgresql": f"CAST(extract(epoch FROM {name}) AS BIGINT)",
            "sqlite": f"CAST(strftime('%s', {name}) AS INTEGER)",
        }.get(dialect, f"timestampdiff(SECOND, '1970-01-01 00:00:00', {name})")
    if kind == "BIGINT":
        return name
    whole = {"postgresql": "BIGINT", "sqlite": "INTEGER"}.get(dialect, "SIGNED")
    return f"CAST(round({name} * 100) AS {whole})"


def _as_least(dialect: str, kind: Kind, name: str) -> str:
    """Compared as Python compares: texts by their bytes, times as numbers."""
    if kind == "STRING" and dialect == "postgresql":
        return f'{name} COLLATE "C"'
    return _as_number(dialect, kind, name) if kind == "TIMESTAMP" else name


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value


def _same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, str) or isinstance(found, str) or found is None:
        return wanted == found
    if isinstance(wanted, float) or isinstance(found, float):
        return math.isclose(wanted, found, rel_tol=_CLOSE)
    return wanted == found


def _span(first: int, end: int) -> str:
    return f"{first} to {end - 1}"
