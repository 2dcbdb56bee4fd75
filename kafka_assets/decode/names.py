"""What Kafka says of a record, as columns: their names beside the declared fields."""

from __future__ import annotations

PARTITION = "kafka_partition"
OFFSET = "kafka_offset"
KEY = "kafka_key"
TIMESTAMP = "kafka_timestamp"
TIMESTAMP_TYPE = "kafka_timestamp_type"
HEADERS = "kafka_headers"
VALUE = "_kafka_value"
"""The record's own bytes, where they stand beside what was made of them."""
