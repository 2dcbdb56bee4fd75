"""Rows of whole slices on SQLite: the suite that all databases share."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from kafka_assets_tests.whole_contract import WholeContract


class TestWholeOnSQLite(WholeContract):
    """The engine is the unit tests' own."""

    @pytest.mark.slow
    def test_a_result_of_more_rows_than_go_at_once_lands_whole(self, engine: Engine) -> None:
        super().test_a_result_of_more_rows_than_go_at_once_lands_whole(engine)
