"""Frozen SQL: what a revision did, in each database's own words, whatever the code says today."""

from __future__ import annotations

from pathlib import Path

from alembic import op
from sqlalchemy.exc import OperationalError, ProgrammingError

from kafka_assets.ledger.rendering import split
from kafka_assets.ledger.schema import dialect_name

EXISTS = {1050, 1060, 1061}
"""MySQL's and MariaDB's errors for a table, a column or an index that is there already."""


def run_frozen(revision: str) -> None:
    """Carry out the statements of a revision, those that lie in the folder of its name."""
    connection = op.get_bind()
    dialect = dialect_name(connection)
    sql = (Path(__file__).parent / "versions" / revision / f"{dialect}.sql").read_text(encoding="utf-8")
    for statement in split(sql):
        try:
            connection.exec_driver_sql(statement)
        except (OperationalError, ProgrammingError) as error:
            # There a CREATE cannot be undone: this goes on where an interrupted run of it ended.
            if dialect not in {"mariadb", "mysql"} or error.orig is None or error.orig.args[0] not in EXISTS:
                raise
