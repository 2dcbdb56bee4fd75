"""The tables that landing fills beside the rows: what could not land, what was deleted, and whose table it is."""

from __future__ import annotations

from sqlalchemy import CHAR, Integer

from kafka_assets.ledger.columns import (
    BIG,
    LONG_BYTES,
    LONG_TEXT,
    NAME,
    WORD,
    check,
    column,
    index,
    key,
    optional,
    reference,
    table,
    unique,
)
from kafka_assets.ledger.constructs import Timestamp

quarantine = table(
    "kafka_quarantine",
    "Records that could not become rows, with their bytes; committed with their slice",
    column("asset", NAME, "the asset whose table they did not reach"),
    column("kafka_source", BIG, "the source"),
    column("kafka_partition", Integer(), "the Kafka partition"),
    column("kafka_offset", BIG, "the offset"),
    column("slice_id", BIG, "the slice; its replay quarantines anew"),
    column("reason", LONG_TEXT, "why the record could not become a row"),
    optional("key", LONG_BYTES, "the record's key, as Kafka delivered it"),
    optional("value", LONG_BYTES, "the record's value, as Kafka delivered it"),
    optional("headers", LONG_TEXT, "its headers, as a JSON list"),
    optional("kafka_timestamp", BIG, "ms, Kafka's clock: the record's timestamp"),
    column("quarantined_at", Timestamp(), "when it was put here"),
    optional("code", WORD, "the kind of reason: few, where the reasons in words quote each record"),
    optional("field", NAME, "the declared field that the reason is about, where it is one"),
    optional("key_bytes", BIG, "how long the key is in Kafka; of a long one only the beginning is kept here"),
    optional("value_bytes", BIG, "how long the value is in Kafka; of a long one only the beginning is kept here"),
    key(
        "kafka_quarantine_pk", "asset", "kafka_source", "kafka_partition", "kafka_offset",
        comment="no record is quarantined twice",
    ),
    # No reference to kafka_source: InnoDB would lock the source while rows stream in, and so block its retirement.
    reference("kafka_quarantine_slice", "slice_id", "kafka_slice(id)", comment="no bad record without its slice"),
    check(
        "kafka_quarantine_place", "kafka_partition >= 0 AND kafka_offset >= 0",
        comment="no place that Kafka cannot have",
    ),
    index("kafka_quarantine_by_slice", "slice_id", comment="a replay clears its slice without reading all the others"),
)  # fmt: skip

tombstone = table(
    "kafka_tombstone",
    "Keys that were deleted in upsert tables, with the version that did it, so that no older slice brings one back",
    column("asset", NAME, "the asset"),
    column("key_digest", CHAR(64), "SHA-256 of the key, in hex: keys are longer than an index may be"),
    column("key_text", LONG_TEXT, "the key, to read"),
    column("incarnation", Integer(), "version, first: the incarnation of the topic"),
    optional("order_value", BIG, "version, second: what order_by names, as a number; NULL where that is the offset"),
    column("kafka_partition", Integer(), "version, third: the partition"),
    column("kafka_offset", BIG, "version, last: the offset"),
    column("slice_id", BIG, "the slice that deleted the key"),
    key("kafka_tombstone_pk", "asset", "key_digest", comment="one last deletion per key"),
    check(
        "kafka_tombstone_version", "incarnation >= 1 AND kafka_partition >= 0 AND kafka_offset >= 0",
        comment="no version that Kafka cannot have",
    ),
)  # fmt: skip

target = table(
    "kafka_target",
    "Which asset owns which table, and how it lands there",
    column("table_name", NAME, "the table"),
    column("asset", NAME, "the one asset that writes it"),
    column("mode", WORD, "append or upsert"),
    optional("key_columns", LONG_TEXT, "upsert: the key's columns, as a JSON list"),
    column("created_at", Timestamp(), "when the asset took it"),
    key("kafka_target_pk", "table_name", comment="no two assets replace each other's rows"),
    unique("kafka_target_asset", "asset", comment="a row's lineage leads to one table"),
    check("kafka_target_mode", "mode IN ('append', 'upsert')", comment="no unknown mode"),
    check("kafka_target_key", "mode = 'append' OR key_columns IS NOT NULL", comment="no upsert without its key"),
)  # fmt: skip
