"""Kafka topics land in SQL tables exactly once, through Spark, as Dagster assets."""
