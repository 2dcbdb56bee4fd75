"""The low-latency consumer: Kafka's records land without Spark, on the same ledger."""
