"""Target tables: made and widened on request, owned by one asset, refused before any work where they do not fit.

All of it happens outside of the publishing transaction, under a short lock timeout: DDL that waits for a lock
lets everybody else wait behind it. So it gives up soon, lets the others pass, and comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.exc import DBAPIError, IntegrityError

from kafka_assets.errors import LedgerBusy, TableIncompatible
from kafka_assets.ledger.drivers import set_lock_timeout
from kafka_assets.ledger.engine import read, write
from kafka_assets.ledger.readers import require_place
from kafka_assets.ledger.retries import retried
from kafka_assets.ledger.trouble import code_of, translate
from kafka_assets.records import OFFSET, ORDINAL, PARTITION, SOURCE, TIMESTAMP
from kafka_assets.schema import fields_of
from kafka_assets.sinks.blank_tables import creation, drop_blank, execute, is_empty
from kafka_assets.sinks.owners import own, own_anew, owned
from kafka_assets.sinks.road import Road, Table, quoted_table
from kafka_assets.sinks.shapes import Shape, missing, refuse_names, sql_types, standing
from kafka_assets.sinks.versions import WORKING, hidden, key_types
from kafka_assets.streams import Upsert, table_parts

if TYPE_CHECKING:
    import pyarrow as pa


_LOCK_SECONDS = 3
_LINEAGE: dict[str, str] = {SOURCE: "BIGINT", PARTITION: "INTEGER", OFFSET: "BIGINT"}
# A table or a column that is there by now: PostgreSQL, then MySQL and MariaDB. SQLite's writers come one by one.
_THERE = {"42P07", "42701", 1050, 1060}
_LOOKS = 3


def ensure_table(
    engine: Engine,
    road: Road,
    *,
    name: str,
    asset: str,
    schema: pa.Schema,
    upsert: Upsert | None = None,
    ordinal: bool = False,
    evolve: bool = False,
) -> Table:
    """The target of an asset, made if it is not there; with `evolve`, columns that it lacks are added.

    A name of the form `schema.table` means a schema, which is made with the table. Fields that are not nullable are
    NOT NULL in a table that is made; in one that stands they are as they are.
    With `ordinal`, its rows are those of whole slices, and are told apart by their number in the slice.
    """
    require_place(engine, name)
    name = _own_name(engine, name)
    kinds: dict[str, Any] = dict(zip(schema.names, schema.types, strict=True))
    carried = (PARTITION, OFFSET) if upsert is None else (PARTITION, OFFSET, TIMESTAMP)
    wanted = sql_types(road, {column: kind for column, kind in kinds.items() if column not in carried})
    ours = {**_LINEAGE, ORDINAL: "BIGINT"} if ordinal else _LINEAGE
    key = tuple(ours)
    if upsert is not None:
        wanted |= key_types(road, kinds, upsert)
        ours, key = hidden(upsert, kinds), upsert.key
    refuse_names(name, wanted, reserved=(SOURCE, ORDINAL) if upsert is None else (*ours, *WORKING))
    required = [field.name for field in fields_of(schema) if not field.nullable]
    shape = Shape(name=name, ours=ours, columns=wanted, key=key, upsert=upsert is not None, required=required)
    named = {ORDINAL: ours[ORDINAL], **wanted} if ordinal else wanted
    table = Table(name=name, columns=tuple(named), types=tuple(named.values()), upsert=upsert, ordinal=ordinal)
    # Before any look: it refuses names that the database would cut, and cannot even ask for.
    create = shape.create(road)

    def ensure() -> None:
        with write(engine) as connection:
            set_lock_timeout(connection, _LOCK_SECONDS)
            mine = owned(connection, table, asset=asset)
            found = standing(connection, name)
            try:
                lacking = [] if found is None else missing(road, shape, found, evolve=evolve)
            except TableIncompatible as refused:
                if not mine or not is_empty(engine, road, name=name, asset=asset):
                    raise
                if not drop_blank(engine, connection, road, name=name, asset=asset):
                    raise _droppable(refused, road, name) from refused
                found, lacking = None, list[str]()
            if found is None:
                if mine:
                    _refuse_a_second(connection, road, name)
                _make_schema(connection, road, name)
                statements = creation(connection, road, shape, create)
            else:
                statements = shape.add(road, lacking) if lacking else []
            for statement in statements:
                _define(connection, statement, name)
            if not mine:
                # Last, since MySQL commits with each statement before this one: no table, no owner.
                own(connection, table, asset=asset)
            elif found is None:
                own_anew(connection, table)

    _settled(ensure, name)
    return table


def _own_name(engine: Engine, name: str) -> str:
    """The one name of a table: without its schema where that is the connection's own, or two could own it."""
    schema, table = table_parts(name)
    if schema is None:
        return name
    with read(engine) as connection:
        return table if schema == connection.dialect.default_schema_name else name


def _refuse_a_second(connection: Connection, road: Road, name: str) -> None:
    """A target with a dot was one name once, of a table in the connection's own schema: its rows must not be left."""
    schema, table = table_parts(name)
    if schema is not None and inspect(connection).has_table(name):
        raise TableIncompatible(
            f"the rows of the target {name!r} are in a table of that whole name, and {schema!r} would get a second one",
            why="since a target's dot means a schema, the table is looked for there",
            cure=f"make the schema {road.quoted(schema)}, move the table {road.quoted(name)} into it, and rename it to"
            f" {road.quoted(table)}; or declare another name and target",
        )


def _make_schema(connection: Connection, road: Road, name: str) -> None:
    """Make the schema of a table; asked for first, since who may use one may not always make one."""
    schema, _ = table_parts(name)
    if schema is not None and not inspect(connection).has_schema(schema):
        _define(connection, f"CREATE SCHEMA IF NOT EXISTS {road.quoted(schema)}", name)


def _droppable(refused: TableIncompatible, road: Road, name: str) -> TableIncompatible:
    """The refusal of an asset's own table in which nothing stands: somebody else may have made it."""
    return TableIncompatible(
        refused.what,
        why="nothing has landed in it yet, and it is empty; but it was not made by this version of kafka_assets, or was"
        " changed since (a column, an index, a trigger, a right), or something depends on it, or the database's user"
        " may not lock and drop it",
        cure=f"if nobody else needs it as it is: DROP TABLE {quoted_table(road, name)}, and the next run makes it as"
        f" declared; or {refused.cure}",
    )


def _define(connection: Connection, statement: str, name: str) -> None:
    """Make or widen the table; what the database has against it is told in its words."""
    try:
        execute(connection, statement)
    except DBAPIError as error:
        if _came_between(error) or translate(error) is not None:
            raise
        raise TableIncompatible(
            f"the database does not {'make' if statement.startswith('CREATE') else 'widen'} the table {name!r}",
            why=str(error.orig).strip(),
            cure="declare fewer or other columns, or another target; or make the table yourself, as it should be",
        ) from error


def _came_between(error: DBAPIError) -> bool:
    """Whether another process took the table, made it or added a column at this moment."""
    return isinstance(error, IntegrityError) or code_of(error) in _THERE


def _settled(ensure: Callable[[], None], name: str) -> None:
    """Until no change of somebody else's came between the look at the table and ours."""
    looks = 0
    while True:
        looks += 1
        try:
            return retried(ensure)
        except DBAPIError as error:
            # What stands is looked at again.
            if looks == _LOOKS or not _came_between(error):
                raise
        except LedgerBusy as error:
            raise LedgerBusy(
                f"the table {name!r} could not be made ready: the database was busy, or went away",
                why=error.why,
                cure="nothing: the slice is tried again; if it stays so, end the long transaction that uses the table",
            ) from error
