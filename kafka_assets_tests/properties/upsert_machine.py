"""Random programs for upsert: those of append, with keys that come again, move and are deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, cast

from hypothesis.stateful import invariant

from kafka_assets.errors import KeyMoved
from kafka_assets.records import BadRecord, Chunk, Seen
from kafka_assets.sinks.road import Table
from kafka_assets.slices import SliceKey
from kafka_assets_tests.ledgers import rows
from kafka_assets_tests.properties.append_machine import AppendMachine
from kafka_assets_tests.properties.append_model import Delivered, Model, Slice
from kafka_assets_tests.properties.attempts import Attempt
from kafka_assets_tests.properties.upsert_model import UpsertModel
from kafka_assets_tests.upserts import BY_COLUMN, BY_OFFSET, Gone, Put, chunk_of, target


class UpsertAttempt(Attempt):
    keyed = True

    @property
    def keys(self) -> UpsertModel:
        return cast("UpsertModel", self.model)

    def _chunk(self, key: SliceKey, offsets: range, *, note: str) -> Chunk:
        whole = self.delivered(key)
        part = replace(whole, landed=whole.landed & {*offsets}, deleting=whole.deleting & {*offsets})
        one = self.model.slice_at(key.incarnation, key.partition, key.start)
        upsert = BY_COLUMN if self.keys.by_value else BY_OFFSET
        records = [
            Gone(record.offset, record.key, record.rank)
            if record.deletes
            else Put(record.offset, record.key, note, record.rank)
            for record in self.keys.records([(one, part)])
        ]
        bad = sorted(whole.bad & {*offsets})
        seen = Seen(
            read=len(records) + len(bad) + len(whole.filtered & {*offsets}), bad=len(bad), deleted=len(part.deleting)
        )
        return replace(
            chunk_of(key, *records, upsert=upsert),
            seen={key: seen},
            bad=tuple(BadRecord(key.partition, offset, "no good", None, b"\xff", (), 1) for offset in bad),
        )

    def _commit(self, written: Sequence[tuple[Slice, Delivered]]) -> None:
        assert not self.keys.moved(written), "a key moved, and nobody said so"
        super()._commit(written)

    def _reasons(self) -> dict[type[BaseException], bool]:
        todo = [one for one in self.publications if self.plan.replaces or self._slice(one).result is None]
        return {
            **super()._reasons(),
            KeyMoved: self.keys.moved([(self._slice(a), self.delivered(a.key)) for a in todo]),
        }


class UpsertMachine(AppendMachine):
    attempts_are: ClassVar[type[Attempt]] = UpsertAttempt

    def make(self, *, by_value: bool) -> tuple[Table, Model]:
        return target(self.engine, BY_COLUMN if by_value else BY_OFFSET), UpsertModel(by_value=by_value)

    @invariant()
    def of_each_key_the_last_record_stands(self) -> None:
        model = cast("UpsertModel", self.model)
        stands = {key: last for key, last in model.keys.items() if not last.record.deletes}
        found = {key: (*place, note) for key, *place, note in rows(self.engine, _ROWS)}
        assert found == {key: (*last.record.place, last.note) for key, last in stands.items()}
        buried = {json.loads(key)["id"]: tuple(version) for key, *version in rows(self.engine, _TOMBSTONES)}
        deleted = {key: last.record for key, last in model.keys.items() if last.record.deletes}
        assert buried == {
            key: (one.rank if model.by_value else None, *one.place, one.slice.start) for key, one in deleted.items()
        }
        self.seen["key deleted"] = max(self.seen["key deleted"], len(deleted))


_ROWS = "SELECT id, kafka_incarnation, kafka_partition, kafka_offset, note FROM orders"
_TOMBSTONES = """
SELECT d.key_text, d.order_value, d.incarnation, d.kafka_partition, d.kafka_offset, s.start_offset
FROM kafka_tombstone d JOIN kafka_slice s ON s.id = d.slice_id
"""
