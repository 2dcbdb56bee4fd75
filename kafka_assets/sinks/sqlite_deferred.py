"""Rows that break a foreign key which SQLite checks at COMMIT alone, where it names none of them: asked for before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection

from kafka_assets.records import OFFSET, PARTITION, SOURCE, Refused
from kafka_assets.sinks.road import Road, Table, quoted_table
from kafka_assets.slices import SliceKey


def orphans(connection: Connection, road: Road, table: Table, slices: Iterable[tuple[int, SliceKey]]) -> list[Refused]:
    """The rows of these slices (each with its source) whose parent is missing, by any foreign key of the table."""
    made = _all(connection, f"SELECT sql FROM sqlite_schema WHERE name = {_literal(table.name)} COLLATE NOCASE")
    if not made or "DEFERRED" not in str(made[0][0]).upper():
        return []  # a foreign key that is not deferred has refused its rows already
    keys: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for number, _, parent, child, referred, *_ in _all(connection, f"PRAGMA foreign_key_list({_literal(table.name)})"):
        keys[number].append((parent, child, referred))
    mine = " OR ".join(
        f"(t.{SOURCE} = {source} AND t.{PARTITION} = {key.partition}"
        f" AND t.{OFFSET} >= {key.start} AND t.{OFFSET} < {key.end})"
        for source, key in slices
    )
    found: dict[tuple[int, int], Refused] = {}
    for columns in keys.values():
        parent = columns[0][0]
        children = [child for _, child, _ in columns]
        # Without names it refers to the parent's primary key.
        referred = [name for _, _, name in columns if name is not None] or _primary_key(connection, parent)
        there = " AND ".join(f"t.{road.quoted(child)} IS NOT NULL" for child in children)
        same = " AND ".join(
            f"p.{road.quoted(to)} = t.{road.quoted(child)}" for to, child in zip(referred, children, strict=True)
        )
        missing = f"NOT EXISTS (SELECT 1 FROM {road.quoted(parent)} p WHERE {same})"
        query = f"SELECT t.{PARTITION}, t.{OFFSET} FROM {quoted_table(road, table.name)} t WHERE ({mine}) AND {there}"
        reason = f"FOREIGN KEY constraint failed: no row of {parent} has its {', '.join(children)}"
        for partition, offset in _all(connection, f"{query} AND {missing}"):
            found.setdefault((partition, offset), Refused(partition, offset, reason))
    return list(found.values())


def _primary_key(connection: Connection, name: str) -> list[str]:
    columns = _all(connection, f"PRAGMA table_info({_literal(name)})")
    return [column[1] for column in sorted(columns, key=lambda column: column[5]) if column[5]]


def _literal(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _all(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    found = connection.exec_driver_sql(query, execution_options={"no_parameters": True})
    return [tuple(row) for row in found]
