"""A chunk that Spark's driver refuses for its size."""

from __future__ import annotations

import grpc
import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from kafka_assets.errors import ChunkTooLarge, Permanent
from kafka_assets.spark.reached import reached
from kafka_assets.spark.result_size import let_through

SAID = (
    "Job aborted due to stage failure:\n"
    "Total size of serialized results of 1 tasks (69.0 MiB) is bigger than spark.driver.maxResultSize (50.0 MiB)\n"
    "JVM stacktrace: org.apache.spark.SparkException"
)


def test_what_spark_does_not_let_through_names_both_limits() -> None:
    with pytest.raises(ChunkTooLarge, match=r"69\.0 MiB") as found, reached(), let_through():
        raise SparkConnectGrpcException(message=SAID, grpc_status_code=grpc.StatusCode.INTERNAL)
    assert isinstance(found.value, Permanent)
    assert "slices.max_records" in found.value.cure and "spark.driver.maxResultSize" in found.value.cure
    assert "stacktrace" not in str(found.value)


def test_every_other_error_leaves_as_it_came() -> None:
    with pytest.raises(AnalysisException), let_through():
        raise AnalysisException("no such column")
