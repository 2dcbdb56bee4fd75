"""The decoder that both roads will share: Kafka's bytes become typed columns, exactly, or the record is bad.

Arrow in, Arrow out. It knows no Spark, no Kafka, no SQL and no Dagster: it is to travel to Spark's Python workers by
itself, and imports pyarrow, numpy and the standard library alone. Neither road uses it yet: live mode reads by
`live/json_*`, runs by `spark/decode*`.
"""
