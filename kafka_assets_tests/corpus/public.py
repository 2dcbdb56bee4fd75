"""The files of a public JSON test suite, such as nst/JSONTestSuite's `test_parsing`, from a folder that is named.

They are not ours to keep here. `make campaign JSON_SUITE=folder` says where they are; without it they are not tried.
"""

from __future__ import annotations

import lzma
import os
from pathlib import Path

FOLDER = os.environ.get("KAFKA_ASSETS_TESTS_JSON_SUITE")
SCHEMA = (
    "id BIGINT, note STRING, tags ARRAY<STRING>, m MAP<STRING,STRING>, s STRUCT<a: STRING>, d DOUBLE, n DECIMAL(20,4)"
)
_PLACES = ("note", "tags", "m", "s", "d", "n", "undeclared")


def public_records(folder: str) -> list[bytes]:
    """Each file as a record of its own, and as the value of a field of each kind."""
    texts = [_text(file) for file in sorted(Path(folder).iterdir()) if file.is_file()]
    assert texts, f"{folder} has no files"
    inside = [b'{"id":1,"%s":%s}' % (place.encode(), text) for place in _PLACES for text in texts]
    return [*texts, *inside]


def _text(file: Path) -> bytes:
    return lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
