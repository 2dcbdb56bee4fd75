"""The merge's writing statement in PostgreSQL's words: INSERT … ON CONFLICT takes twice the time of what it does."""

from __future__ import annotations

from kafka_assets.sinks.merge import MERGE, Merge
from kafka_assets.sinks.versions import DELETED


class PostgreSQLMerge(Merge):
    """The merge of one transaction into one table of PostgreSQL; under the asset's lock nobody else writes its rows."""

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
        taken += self._run(f"""
            INSERT INTO {target} ({self._list(columns)})
            SELECT {self._list(columns, MERGE)} FROM {MERGE}
            WHERE {winners}""")
        self._require(taken, count)
