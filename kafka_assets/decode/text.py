"""The whole value of a record is one field: text, or bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafka_assets.decode.codes import ENCODING, MISSING
from kafka_assets.decode.contract import Decoded, Reason, fields_of, landed_schema, reason


class WholeValue:
    """The decoder of `format: string` and `format: bytes`."""

    def __init__(self, declared: pa.Schema) -> None:
        self.schema = landed_schema(declared)
        self._field: Any = fields_of(declared)[0]

    def read(self, values: Any) -> Decoded:
        name, kind = self._field.name, self._field.type
        bad: dict[int, Reason] = {}
        if not self._field.nullable and values.null_count:
            said = reason(MISSING, f"{name}: the value is null (a tombstone), and declared NOT NULL", name)
            bad.update((at, said) for at, value in enumerate(values) if not value.is_valid)
        column = values
        if pa.types.is_string(kind):
            try:
                column = values.cast(kind)
            except pa.ArrowInvalid:
                said = reason(ENCODING, f"{name}: the value is not valid UTF-8", name)
                bad.update((at, said) for at, value in enumerate(values.to_pylist()) if not is_text(value))
        if bad:
            kept = [at for at in range(len(values)) if at not in bad]
            column = values.take(pa.array(kept, pa.int64())).cast(kind)
        return Decoded(pa.Table.from_arrays([column], schema=self.schema), dict(sorted(bad.items())))


def are_texts(values: Any) -> bool:
    """Whether all of them are valid UTF-8."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def is_text(value: bytes | None) -> bool:
    """Whether it is valid UTF-8; no value is."""
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
