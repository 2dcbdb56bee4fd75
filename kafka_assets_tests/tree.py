"""The tree that the tests stand in, and what of it their results hang on."""

from __future__ import annotations

import hashlib
from pathlib import Path

TREE = Path(__file__).parents[1]


def tree_digest(*, without: Path | None = None) -> str:
    """Of the code and the tests, but for one folder: as long as it stays, so does what they say."""
    found = hashlib.sha256()
    for path in sorted([*TREE.glob("kafka_assets*/**/*.py"), *TREE.glob("kafka_assets/**/*.sql")]):
        if path.parent != without:
            found.update(path.read_bytes())
    return found.hexdigest()[:16]
