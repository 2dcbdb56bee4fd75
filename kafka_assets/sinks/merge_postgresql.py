"""The merge's writing statement in PostgreSQL's words: INSERT … ON CONFLICT takes twice the time of what it does."""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError

from kafka_assets.sinks.merge import MERGE, Merge
from kafka_assets.sinks.versions import DELETED

_NEW = "kafka_new_keys"


class PostgreSQLMerge(Merge):
    """The merge of one transaction into one table of PostgreSQL.

    Under the asset's lock no other run writes its rows. Whoever else does may bring a key between two statements: it
    is overwritten then, as any row that stands there.
    """

    def _write(self, target: str, within: str, count: int) -> None:
        columns = self._columns()
        changed = ", ".join(
            f"{name} = {MERGE}.{name}"
            for name in (self._road.quoted(one) for one in columns if one not in self._upsert.key)
        )
        winners = f"{MERGE}.{DELETED} = 0 AND {within}"
        taken = 0
        if self._stands:
            taken = self._run(f"""
                UPDATE {target} standing SET {changed}
                FROM {MERGE}
                WHERE {self._same_key("standing")} AND {winners}""")
            winners += f" AND NOT EXISTS (SELECT 1 FROM {target} standing WHERE {self._same_key('standing')})"
        self._run(f"SAVEPOINT {_NEW}")
        try:
            taken += self._run(f"""
                INSERT INTO {target} ({self._list(columns)})
                SELECT {self._list(columns, MERGE)} FROM {MERGE}
                WHERE {winners}""")
        except IntegrityError:
            self._run(f"ROLLBACK TO SAVEPOINT {_NEW}")
            taken = 0
        self._run(f"RELEASE SAVEPOINT {_NEW}")
        if taken != count:
            super()._write(target, within, count)
