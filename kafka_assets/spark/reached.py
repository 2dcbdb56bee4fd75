"""Spark that cannot be reached, or whose workers cannot work: what its clients raise then becomes an error in words."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException

from kafka_assets.broker.admin import refuses
from kafka_assets.decode.fetch import DAMAGED, GONE
from kafka_assets.errors import (
    BrokerRefused,
    BrokerUnavailable,
    KafkaAssetsError,
    RecordsChanged,
    RecordsDamaged,
    SparkUnavailable,
    WorkersUnfit,
)
from kafka_assets.spark.worker_python import unfit

_CODES = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
"""Of gRPC. A server that answers says INTERNAL, whatever is wrong with the query."""

_CONDITIONS = tuple(
    f"INVALID_HANDLE.{what}"
    for what in ("SESSION_CHANGED", "SESSION_CLOSED", "SESSION_NOT_FOUND", "OPERATION_NOT_FOUND", "OPERATION_ABANDONED")
)

_LOST_RECORDS = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
"""Those that were held for a chunk: they are not read again for it."""

_SAID = (
    "Please create a new Spark Session to reconnect",  # another server answers at the old address
    "Cannot invoke RPC on closed channel",
    "Channel closed!",
    "stopped SparkContext",
    "SparkContext was shut down",
    _LOST_RECORDS,
)

_NOT_FETCHED = "NotFetched: "
"""What `decode/fetch.py` raises on a worker."""

_LONG_FORM = re.compile(r'status = StatusCode\.(\w+) details = "(.*?)" debug_error_string')


@contextmanager
def reached() -> Generator[None]:
    """Calls of Spark. What a lost connection or session raises leaves the block as `SparkUnavailable`.

    And what workers raise whose Python does not fit, as `WorkersUnfit`; and that Kafka did not give Spark what it had
    offered a moment before, as `RecordsChanged`.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, PySparkException) and (ungiven := _not_fetched(str(error))) is not None:
            raise ungiven from error
        if isinstance(error, PySparkException) and (known := unfit(error)) is not None:
            raise known from error
        if not unreached(error):
            raise
        if _LOST_RECORDS in str(error):
            raise SparkUnavailable(
                "Spark has lost an executor, and with it the records that it held for the run's function",
                why=told(error),
                cure="nothing: the slices are asked for again. If it happens often, see why executors end "
                "(their memory, machines that are taken away)",
            ) from error
        raise SparkUnavailable(
            "Spark cannot be reached, or has lost its session",
            why=told(error),
            cure="see that it is up (`kafka-assets doctor`); the sensor asks again",
        ) from error


def _not_fetched(text: str) -> KafkaAssetsError | None:
    """What a worker says that got nothing from Kafka; None where the text is of something else."""
    at = text.find(_NOT_FETCHED)
    if at < 0:
        return None
    try:
        said, _ = json.JSONDecoder().raw_decode(text, at + len(_NOT_FETCHED))
    except ValueError:
        return None
    return _as_error(said)


def _as_error(said: dict[str, Any]) -> KafkaAssetsError:
    place = f"partition {said['partition']} of the topic {said['topic']!r}"
    if said["at"] is None:
        return WorkersUnfit(
            "the Kafka client of Spark's workers does not accept the properties",
            why=said["why"],
            cure="put the files that they name where this process has them on the workers' machines, too, and have the "
            "same confluent-kafka there",
        )
    # Their log was looked at before: they expire in this moment, or their topic is deleted.
    if said["code"] in GONE:
        return RecordsChanged(
            "Spark's workers could not read records that Kafka had just offered",
            why=f"offset {said['at']} of {place}: {said['why']}",
            cure="nothing: the slice is asked for again. If its offsets have expired, the next try says so",
        )
    if said["code"] in DAMAGED:
        return RecordsDamaged(
            f"the records of {place} cannot be read from offset {said['at']} on",
            why=said["why"],
            cure="look at the brokers' disks; with another replica as its leader the partition may be whole",
        )
    if refuses(said["code"]):
        return BrokerRefused(
            f"the broker refused Spark's workers {place}",
            why=said["why"],
            cure="check security.protocol, sasl.* and ssl.* in the settings, and the user's rights on the topic",
        )
    return BrokerUnavailable(
        f"Spark's workers could read {place} to {said['at']}, not to {said['end']}",
        why=said["why"],
        cure="nothing, if it passes; otherwise see that the machines of Spark's workers reach all of the brokers, at "
        "the addresses that these advertise",
    )


def unreached(error: Exception) -> bool:
    """Whether it says that Spark is gone, or has lost the session, and nothing of the work that it was given."""
    text = str(error)
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        return _code(error) in _CODES or condition.startswith(_CONDITIONS) or _tells(text, *_CONDITIONS, *_SAID)
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    if "grpc.RpcError" in kinds:
        return _code(error) in _CODES
    # A user's function may meet the same errors of Python, on its own ways.
    theirs = raised_in(error, "py4j", "grpc")
    if "py4j.protocol.Py4JNetworkError" in kinds or (theirs and isinstance(error, OSError)):
        return True
    return (theirs or "py4j.protocol.Py4JError" in kinds) and _tells(text, *_SAID)


def told(error: BaseException) -> str:
    """What an error of Spark's clients says, in a line; of gRPC's long form its status and details."""
    said = " ".join(str(error).split())
    if long := _LONG_FORM.search(said):
        said = f"{long[1]}: {long[2]}"
    return said[:500]


def _code(error: Any) -> str:
    """The gRPC status of an error that has one."""
    code = getattr(error, "getGrpcStatusCode", None) or getattr(error, "code", None)
    return getattr(code(), "name", "") if callable(code) else ""


def _tells(text: str, *parts: str) -> bool:
    return any(part in text for part in parts)


def raised_in(error: BaseException, *packages: str) -> bool:
    """Whether the innermost line that raised it is one of these packages'."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and str(at.tb_frame.f_globals.get("__name__", "")).split(".")[0] in packages
