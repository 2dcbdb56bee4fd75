"""The one decoder, of runs and of live mode: Kafka's bytes become typed columns, exactly, or the record is bad.

Arrow in, Arrow out. It knows no Spark, no SQL and no Dagster, and imports pyarrow, numpy and the standard library
alone: runs send its text along to Spark's Python workers (`spark/traveling.py`), where nothing else of this package is.
What reads Kafka there (`fetch.py`), and says whether it could (`reach.py`), imports confluent_kafka, too.
"""
