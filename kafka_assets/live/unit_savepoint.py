"""The savepoint that a unit's transaction begins with: it can be released for as long as the transaction is the same.

A database may end a transaction while its client goes on: a deadlock on MySQL and MariaDB rolls all of it back, and
what follows is done in a new one; a statement that commits by itself, as CREATE TABLE does there, begins one, too.
"""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from kafka_assets.errors import KafkaAssetsError, LedgerBusy, UsageError
from kafka_assets.ledger.trouble import code_of, met, translate

_NAME = "kafka_unit"
_FAILED = "25P02"
"""PostgreSQL: in a transaction in which a statement has failed."""


def begin(sql: Connection) -> None:
    """As the first of a transaction."""
    met(sql, anew=True)
    sql.exec_driver_sql(f"SAVEPOINT {_NAME}")


def release(sql: Connection) -> None:
    """As the first of a transaction's end, and of each look whether it is the same; raises where it is not."""
    try:
        sql.exec_driver_sql(f"RELEASE SAVEPOINT {_NAME}")
    except (DBAPIError, InvalidRequestError) as error:
        raise _ended(sql, error) from error


def _ended(sql: Connection, error: Exception) -> KafkaAssetsError:
    """Only after trouble is the unit done again: after a commit of somebody else's it would be there twice."""
    known = translate(error) if isinstance(error, DBAPIError) else None
    if known is not None:
        return known
    if not sql.closed and met(sql):
        return LedgerBusy(
            "the database ended the transaction before its unit was done",
            why="a deadlock was broken, or the database was busy, and the loop caught that error and went on",
            cure="the whole unit is done again",
        )
    if isinstance(error, DBAPIError) and code_of(error) == _FAILED:
        return UsageError(
            "the unit's transaction takes nothing more",
            why="a statement in it has failed, the error was caught, and PostgreSQL goes on from a savepoint alone",
            cure="put what may fail into `with sql.begin_nested():`, and catch around that",
        )
    return UsageError(
        "the transaction was ended before its unit was done",
        why="commit() or rollback() was called on the connection, or on a session over it; or a statement commits by "
        "itself, as each CREATE, ALTER, DROP and TRUNCATE does on MySQL and MariaDB. What was committed so stays, and "
        "the unit comes again",
        cure="leave both to the consumer, and change tables elsewhere; begin_nested() gives you savepoints",
    )
