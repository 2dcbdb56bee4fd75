"""One JSON record at a time, exactly: its values, or the reason why it is bad. The judge of what is read in bulk."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from kafka_assets.decode.codes import ENCODING, NOT_JSON, TOMBSTONE
from kafka_assets.decode.contract import Reason, fields_of, reason
from kafka_assets.decode.json_text import NotJson, parse
from kafka_assets.decode.scalars import Fields, Misfit, shown

_NULL = reason(TOMBSTONE, "the value is null (a tombstone)")
_SPOILED = reason(ENCODING, "the value is not valid UTF-8")
_MARKED = reason(NOT_JSON, "the value begins with a byte order mark, not with {")


class ExactJson:
    """A schema's records, one after the other."""

    def __init__(self, fields: pa.Schema) -> None:
        self._fields = Fields(fields_of(fields))

    def read(self, value: bytes | None) -> list[Any] | Reason:  # noqa: PLR0911 - one for each thing that can be wrong
        """The values in the order of the schema."""
        if value is None:
            return _NULL
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return _SPOILED
        if text.startswith("\ufeff"):
            return _MARKED
        try:
            given = parse(text)
        except NotJson as error:
            return error.reason
        if not isinstance(given, dict):
            return reason(NOT_JSON, f"the value is not a JSON object: {shown(given)}")
        try:
            return self._fields.read(cast("dict[str, Any]", given), step="")
        except Misfit as misfit:
            return reason(misfit.code, misfit.said(), misfit.where)
