"""The index that MySQL and MariaDB are told to take, where they would choose by their estimates of the moment.

Estimates of a table that has just grown are wrong for a while, and differ from partition to partition: what is found by
a few steps in the one index is found in the other by reading all of history. PostgreSQL and SQLite have partial indexes
there, which do not come into question, and need no hint.
"""

from __future__ import annotations

from typing import Any, TypeVar

from sqlalchemy import FromClause, Select

from kafka_assets.ledger import tables as t

Selected = TypeVar("Selected", bound="Select[Any]")


def by_start(statement: Selected) -> Selected:
    """Slices of one partition in the order of their offsets: by kafka_slice_unread all of them would be sorted."""
    return _forced(statement, t.slice_, "kafka_slice_start")


def bad_of_slice(statement: Selected) -> Selected:
    """Bad records of one slice: by the primary key all those of the asset would be read."""
    return _forced(statement, t.quarantine, "kafka_quarantine_by_slice")


def results_of_slice(statement: Selected) -> Selected:
    """Publications of one slice: by kafka_publication_uncommitted all that were ever committed would be read."""
    return _forced(statement, t.publication, "kafka_publication_slice")


def uncommitted(statement: Selected) -> Selected:
    """Publications that are not committed, in the order of their ids: by the primary key all would be read."""
    return _forced(statement, t.publication, "kafka_publication_uncommitted")


def _forced(statement: Selected, table: FromClause, index: str) -> Selected:
    for dialect in ("mysql", "mariadb"):
        statement = statement.with_hint(table, f"FORCE INDEX ({index})", dialect)
    return statement
