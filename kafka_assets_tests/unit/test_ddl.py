"""A schema's columns as the UI shows them."""

from __future__ import annotations

from kafka_assets.ddl import DeclaredColumn, declared_columns


def test_names_types_and_demands_are_read() -> None:
    assert declared_columns("id BIGINT NOT NULL, amount decimal(12, 2),  placed_at: TIMESTAMP") == (
        DeclaredColumn("id", "BIGINT", required=True, comment=None),
        DeclaredColumn("amount", "DECIMAL(12, 2)", required=False, comment=None),
        DeclaredColumn("placed_at", "TIMESTAMP", required=False, comment=None),
    )


def test_commas_in_brackets_quotes_and_names_cut_nothing() -> None:
    found = declared_columns(
        "`a,``b` STRING NOT NULL COMMENT 'who, and it\\'s why', c ARRAY<STRUCT<x: INT, y: STRING>>"
    )
    assert found == (
        DeclaredColumn("a,`b", "STRING", required=True, comment="who, and it's why"),
        DeclaredColumn("c", "ARRAY<STRUCT<X: INT, Y: STRING>>", required=False, comment=None),
    )


def test_what_cannot_be_read_is_left_to_spark() -> None:
    assert declared_columns("") == ()
    assert [column.name for column in declared_columns("id, note STRING, )")] == ["note"]
