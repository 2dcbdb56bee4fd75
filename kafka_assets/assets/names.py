"""The names under which this package's parts meet in Dagster."""

KAFKA = "kafka"
SPARK = "pyspark"
IO_MANAGER = "kafka_assets_io"

STREAM_METADATA = "kafka_assets/stream"
LANDS_TAG = "kafka_assets/lands"
"""On every asset whose partitions are slices: what the one sensor is for."""

TOKEN_TAG = "kafka_assets/request"
DIGEST_TAG = "kafka_assets/keys"
SLICES_TAG = "kafka_assets/slices"
STREAM_TAG = "kafka_assets/stream"
FORCE_TAG = "kafka_assets/force"
