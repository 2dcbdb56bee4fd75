"""The merge's writing statements in MySQL's and MariaDB's words.

Each begins at the temporary table and finds its rows by their whole key: a statement that reads the other way
locks rows of publishers it has nothing to do with. ON DUPLICATE KEY UPDATE would take any unique key for the row's own.
"""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError

from kafka_assets.sinks.merge import MERGE, Merge
from kafka_assets.sinks.versions import DELETED, DIGEST


class MySQLMerge(Merge):
    """The merge of one transaction into one table of MySQL or MariaDB, whose triggers leave no row out in silence."""

    def _forget_tombstones(self) -> None:
        self._run(f"""
            DELETE stone FROM {MERGE} STRAIGHT_JOIN kafka_tombstone stone FORCE INDEX (PRIMARY)
                ON stone.asset = {self._asset} AND stone.key_digest = {MERGE}.{DIGEST}""")

    def _delete(self, target: str, within: str) -> None:
        self._run(f"""
            DELETE standing FROM {MERGE} STRAIGHT_JOIN {target} standing FORCE INDEX (PRIMARY)
                ON {self._same_key("standing")}
            WHERE {MERGE}.{DELETED} = 1 AND {within}""")

    def _write(self, target: str, within: str, count: int) -> None:
        columns = self._columns()
        changed = ", ".join(
            f"standing.{name} = {MERGE}.{name}"
            for name in (self._road.quoted(one) for one in columns if one not in self._upsert.key)
        )
        winners = f"{MERGE}.{DELETED} = 0 AND {within}"

        def insert(these: str) -> None:
            self._run(f"""
                INSERT INTO {target} ({self._list(columns)})
                SELECT {self._list(columns, MERGE)} FROM {MERGE}
                WHERE {these}""")

        if not self._stands:
            try:
                insert(winners)
                return
            except IntegrityError:
                # Of this statement nothing stays. One of its keys may be there by now, of somebody who knows nothing of
                # the asset's lock: it is overwritten, as any row that stands there.
                self._stands = True
        self._run(f"""
            UPDATE {MERGE} STRAIGHT_JOIN {target} standing FORCE INDEX (PRIMARY) ON {self._same_key("standing")}
            SET {changed}
            WHERE {winners}""")
        insert(f"{winners} AND NOT EXISTS (SELECT 1 FROM {target} standing WHERE {self._same_key('standing')})")
