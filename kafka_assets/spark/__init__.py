"""Spark: exact ranges of Kafka, decoded, as bounded Arrow chunks. Knows neither Dagster nor SQL."""
