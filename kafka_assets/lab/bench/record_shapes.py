"""The records that are landed, as tuples of values, as JSON and as Arrow: of one kind each, the same in each run."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

import msgspec
import pyarrow as pa

from kafka_assets.broker.produce import Record
from kafka_assets.records import OFFSET, PARTITION
from kafka_assets.schema import declared, fields_of

Kind = Literal["BIGINT", "DOUBLE", "DECIMAL(12,2)", "TIMESTAMP", "STRING"]
Values = tuple[Any, ...]
"""One record's values, in the order of its columns."""
Draw = Callable[[random.Random, int, str], Values]
"""Makes the values of the record with this id, from letters for its texts."""

PARTITIONS = 2
"""Of a benchmark's topic: the records go into them in turns."""
CHUNK = 50_000
"""Records that are made, produced and forgotten at a time."""
_PYTHON: dict[Kind, Any] = {
    "BIGINT": int, "DOUBLE": float, "DECIMAL(12,2)": Decimal, "TIMESTAMP": datetime, "STRING": str,
}  # fmt: skip
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_LETTERS = 5_000


@dataclass(frozen=True)
class Shape:
    """The columns of one kind of record, or of the rows that are made of it; `id` is the first of them."""

    name: str
    columns: dict[str, Kind]

    @property
    def schema(self) -> str:
        """As a stream declares it."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())

    @cached_property
    def struct(self) -> type[msgspec.Struct]:
        """What a typed decoder makes of a record; each value may be null, as in a table that has no NOT NULL."""
        fields = [(name, _PYTHON[kind] | None) for name, kind in self.columns.items()]
        return msgspec.defstruct(f"{self.name.title()}Record", fields, gc=False)

    def of_kind(self, kind: Kind) -> list[int]:
        """The places of the columns of this kind."""
        return [place for place, one in enumerate(self.columns.values()) if one == kind]


@dataclass(frozen=True)
class Produced:
    """So many records of one shape, in a topic of `PARTITIONS` partitions.

    `ids`: the number of different ids; with fewer of them than records, later ones bring an id again, always in the
    partition in which it was before.
    """

    shape: Shape
    records: int
    ids: int

    def chunks(self) -> Iterator[list[Values]]:
        """All records, in the order in which they are produced."""
        for start in range(0, self.records, CHUNK):
            chance = random.Random(start)
            letters = "".join(chance.choices(string.ascii_letters + " ", k=_LETTERS))
            numbers = range(start, min(start + CHUNK, self.records))
            draw = _DRAWN[self.shape.name]
            yield [draw(chance, number % self.ids, letters) for number in numbers]

    def messages(self) -> Iterator[list[Record]]:
        """The same as JSON, each for its partition."""
        encode = msgspec.json.Encoder(decimal_format="number").encode
        names, start = list(self.shape.columns), 0
        for rows in self.chunks():
            yield [
                Record(value=encode(dict(zip(names, row, strict=True))), partition=number % PARTITIONS)
                for number, row in enumerate(rows, start=start)
            ]
            start += len(rows)

    def tables(self) -> Iterator[pa.Table]:
        """The same as Arrow, with the places that they have in the topic."""
        kinds = {field.name: field.type for field in fields_of(declared(self.shape.schema, "json"))}
        schema: Any = pa.schema([*kinds.items(), (PARTITION, pa.int32()), (OFFSET, pa.int64())])
        start = 0
        for rows in self.chunks():
            numbers = range(start, start + len(rows))
            columns: list[Any] = [
                *map(list, zip(*rows, strict=True)),
                [number % PARTITIONS for number in numbers],
                [number // PARTITIONS for number in numbers],
            ]
            arrays: list[Any] = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            yield pa.Table.from_arrays(arrays, schema=schema)
            start += len(rows)

    def in_partition(self, partition: int) -> int:
        """How many records a partition has."""
        return self.records // PARTITIONS + (1 if partition < self.records % PARTITIONS else 0)


def produced(shape: str, records: int, *, upsert: bool = False) -> Produced:
    """So many records of the shape of this name; for an upsert table, half of them with an id that was there before."""
    ids = max(records // 2 // PARTITIONS * PARTITIONS, PARTITIONS) if upsert else records
    return Produced(SHAPES[shape], records, ids)


def _text(chance: random.Random, letters: str, size: int) -> str:
    at = chance.randrange(_LETTERS - size)
    return letters[at : at + size]


def _cents(chance: random.Random, most: int) -> Decimal:
    return Decimal(chance.randrange(100, most)).scaleb(-2)


def _at(number: int) -> datetime:
    return _FIRST + timedelta(seconds=number % 20_000_000)


def _plain(chance: random.Random, number: int, letters: str) -> Values:
    amount = chance.randrange(100, 100_000) / 100
    return number, f"customer {chance.randrange(1000)}", amount, _at(number), _text(chance, letters, 105)


def _decimals(chance: random.Random, number: int, letters: str) -> Values:
    customer, price, tax = f"customer {chance.randrange(1000)}", _cents(chance, 10_000_000), _cents(chance, 100_000)
    shipped = _at(number) + timedelta(seconds=chance.randrange(600_000))
    return number, customer, price, tax, _at(number), shipped, _text(chance, letters, 50)


def _wide(chance: random.Random, number: int, letters: str) -> Values:
    return (
        number,
        *(chance.randrange(1_000_000) for _ in range(15)),
        *(chance.randrange(100, 100_000) / 100 for _ in range(10)),
        *(_at(number + chance.randrange(100_000)) for _ in range(4)),
        *(_text(chance, letters, 12) for _ in range(10)),
    )


SHAPES = {
    "plain": Shape(
        "plain",
        {"id": "BIGINT", "customer": "STRING", "amount": "DOUBLE", "placed_at": "TIMESTAMP", "note": "STRING"},
    ),
    "decimals": Shape(
        "decimals",
        {
            "id": "BIGINT", "customer": "STRING", "price": "DECIMAL(12,2)", "tax": "DECIMAL(12,2)",
            "placed_at": "TIMESTAMP", "shipped_at": "TIMESTAMP", "note": "STRING",
        },
    ),
    "wide": Shape(
        "wide",
        {
            "id": "BIGINT",
            **{f"count_{number}": "BIGINT" for number in range(15)},
            **{f"measure_{number}": "DOUBLE" for number in range(10)},
            **{f"moment_{number}": "TIMESTAMP" for number in range(4)},
            **{f"text_{number}": "STRING" for number in range(10)},
        },
    ),
}  # fmt: skip
"""By name: about 200 bytes of JSON; the same size with DECIMAL(12,2) and two times; 40 fields."""
_DRAWN: dict[str, Draw] = {"plain": _plain, "decimals": _decimals, "wide": _wide}
