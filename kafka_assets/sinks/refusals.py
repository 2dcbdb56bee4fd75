"""What a table refuses, said in words, where it is no single record's or cannot be quarantined."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from kafka_assets.errors import RowsRefused
from kafka_assets.records import BadRecord, Refused
from kafka_assets.sinks.halving import refusal
from kafka_assets.sinks.road import Table
from kafka_assets.slices import SliceKey


def not_again(refused: Sequence[Refused]) -> Sequence[BadRecord]:
    raise RowsRefused(
        f"the table refuses the record at offset {refused[0].offset} of partition {refused[0].partition}",
        why=refused[0].reason,
        cure="correct the record, or the table's constraint: this source of records cannot be read again",
    )


def of_no_record(refused: Sequence[Refused]) -> Sequence[BadRecord]:
    raise RowsRefused(
        f"the table refuses a row of the slice that begins at offset {refused[0].offset}"
        f" of partition {refused[0].partition}",
        why=refused[0].reason,
        cure="correct the function or the table: a row of a whole slice is no single record's, so none is quarantined",
    )


@contextmanager
def refusals(table: Table, keys: Iterable[SliceKey]) -> Generator[None]:
    """What the database refuses as a whole, said in words."""
    try:
        yield
    except (RowsRefused, DBAPIError) as error:
        refused = refusal(error)
        if refused is None:
            raise
        raise RowsRefused(
            f"rows of {', '.join(str(key) for key in keys)} were refused by the table {table.name!r}",
            why=f"{refused.what}: {refused.why}" if refused is error else refused.why,
            cure=refused.cure or "correct the table's constraint, or the function",
        ) from error


@contextmanager
def replacing(table: Table, keys: Iterable[SliceKey]) -> Generator[None]:
    """Rows that cannot be taken away before they come again: others refer to them."""
    try:
        yield
    except DBAPIError as error:
        refused = refusal(error)
        if refused is None:
            raise
        raise RowsRefused(
            f"rows of {', '.join(str(key) for key in keys)} cannot be replaced in the table {table.name!r}",
            why=refused.why,
            cure="declare the foreign key that refers to them ON DELETE CASCADE, or DEFERRABLE INITIALLY DEFERRED "
            "where the database knows that, or take the rows that refer to them away first",
        ) from error


@contextmanager
def said_at_commit(table: Table) -> Generator[list[bool]]:
    """A constraint that only COMMIT checks blames no row: said in words, once the list is not empty."""
    ended: list[bool] = []
    try:
        yield ended
    except DBAPIError as error:
        refused = refusal(error) if ended else None
        if refused is None:
            raise
        raise RowsRefused(
            f"a deferred constraint on the table {table.name!r} was broken at COMMIT",
            why=f"{refused.why}; which row broke it the database does not say then",
            cure="correct the records' parents, or declare the constraint NOT DEFERRABLE: it then names its rows, "
            "and they are quarantined",
        ) from error
