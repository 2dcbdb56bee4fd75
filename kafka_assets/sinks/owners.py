"""Which asset a table belongs to: one table, one writer."""

from __future__ import annotations

import json

from sqlalchemy import Connection, insert, select, update

from kafka_assets.errors import TableIncompatible
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.sinks.road import Table


def owned(connection: Connection, table: Table, *, asset: str) -> bool:
    """Whether the asset has the table already; refused where it is another one's, or the asset has another."""
    name = table.name
    mode = "append" if table.upsert is None else "upsert"
    known = select(t.target.c.table_name, t.target.c.asset, t.target.c.mode)
    rows = connection.execute(known.where((t.target.c.table_name == name) | (t.target.c.asset == asset))).all()
    owners: dict[str, str] = {row.table_name: row.asset for row in rows}
    if owners.get(name, asset) != asset:
        raise TableIncompatible(
            f"the table {name!r} belongs to the asset {owners[name]!r}, not to {asset!r}",
            why="two writers of one table could replace each other's rows",
            cure=f"declare another target for {asset!r}",
        )
    if owners and name not in owners:
        raise TableIncompatible(
            f"the table {name!r} cannot become the target of {asset!r}",
            why=f"the asset has the target {next(iter(owners))!r} in this ledger already, and an asset has one",
            cure="keep its target, or give the new declaration a new name",
        )
    if owners and rows[0].mode != mode:
        raise TableIncompatible(
            f"the table {name!r} lands in mode {rows[0].mode}, and {asset!r} is declared with mode {mode}",
            why="the two identify rows differently",
            cure="keep the mode, or give the new declaration a new name and target",
        )
    return bool(owners)


def own(connection: Connection, table: Table, *, asset: str) -> None:
    """Take the table for this asset; nobody has it, and the asset has no other: see `owned`."""
    connection.execute(
        insert(t.target).values(
            table_name=table.name,
            asset=asset,
            mode="append" if table.upsert is None else "upsert",
            key_columns=_key_of(table),
            created_at=now_ts(),
        )
    )


def own_anew(connection: Connection, table: Table) -> None:
    """Note the key of the owner's table, which was made anew."""
    connection.execute(update(t.target).where(t.target.c.table_name == table.name).values(key_columns=_key_of(table)))


def _key_of(table: Table) -> str | None:
    return None if table.upsert is None else json.dumps(table.upsert.key)
