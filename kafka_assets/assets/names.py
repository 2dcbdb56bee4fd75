"""The names under which this package's parts meet in Dagster."""

KAFKA = "kafka_assets_broker"
SPARK = "kafka_assets_spark"
IO_MANAGER = "kafka_assets_io"
"""The keys of the resources: none that a project would think of, since a component brings them into projects."""


class Brought(str):
    """A resource's key as an asset requires it: where Dagster finds it missing, its message says who brings it."""

    __slots__ = ()

    def __format__(self, spec: str, /) -> str:
        who = "kafka_assets.build_definitions([...]) brings it, or the component kafka_assets.KafkaStreams"
        return f"{super().__format__(spec)} ({who})"


STREAM_METADATA = "kafka_assets/stream"
LANDS_TAG = "kafka_assets/lands"
"""On every asset whose partitions are slices: what the one sensor is for."""

DIVIDES = "fewer_slices_may_land"
"""In the metadata of a failed run: whether it is tried again with fewer slices, or could only fail by the same."""
FAILED = "failed_transactions"
"""In that of a run of several transactions: why each of them failed that did."""
UNTRIED = "untried_slices"
"""How many of its slices it has not come to."""

TOKEN_TAG = "kafka_assets/request"
DIGEST_TAG = "kafka_assets/keys"
SLICES_TAG = "kafka_assets/slices"
STREAM_TAG = "kafka_assets/stream"
FORCE_TAG = "kafka_assets/force"
