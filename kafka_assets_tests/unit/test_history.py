"""What was landed long ago costs nothing: no operation reads more on a ledger with three times the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_assets_tests.histories import grown


@pytest.mark.slow
def test_no_operation_reads_history(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert grown(f"sqlite:///{tmp_path / 'ledger.db'}", patch) == {}
