"""The ledger as it began: every table and view, as frozen SQL for each database."""

from __future__ import annotations

from pathlib import Path

from alembic import op
from sqlalchemy.exc import OperationalError, ProgrammingError

from kafka_assets.ledger.rendering import split
from kafka_assets.ledger.schema import dialect_name

revision = "0001"
down_revision = None

_EXISTS = {1050, 1061}
"""MySQL's and MariaDB's errors for a table or an index that is there already."""


def upgrade() -> None:
    connection = op.get_bind()
    dialect = dialect_name(connection)
    sql = (Path(__file__).parent / "0001" / f"{dialect}.sql").read_text(encoding="utf-8")
    for statement in split(sql):
        try:
            connection.exec_driver_sql(statement)
        except (OperationalError, ProgrammingError) as error:
            # There a CREATE cannot be undone: this goes on where an interrupted run of it ended.
            if dialect not in {"mariadb", "mysql"} or error.orig is None or error.orig.args[0] not in _EXISTS:
                raise
