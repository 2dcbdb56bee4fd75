"""Which of the errors that Spark's clients raise say that Spark is gone, and which that the work is wrong."""

from __future__ import annotations

import grpc
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkAssertionError, PySparkException, PythonException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from kafka_assets.assets.faults import Fault, divides, fault_of
from kafka_assets.decode.fetch import DAMAGED, GONE, NotFetched
from kafka_assets.errors import (
    BrokerRefused,
    BrokerUnavailable,
    RecordsChanged,
    RecordsDamaged,
    Retryable,
    SparkUnavailable,
    WorkersUnfit,
)
from kafka_assets.spark.reached import reached


class Answer(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


@pytest.mark.parametrize(
    "error",
    [
        SparkConnectGrpcException(message="refused", grpc_status_code=grpc.StatusCode.UNAVAILABLE),
        SparkConnectGrpcException(message="The handle is invalid.", errorClass="INVALID_HANDLE.SESSION_NOT_FOUND"),
        SparkConnectGrpcException(message="[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid."),
        PySparkAssertionError("Received incorrect … Please create a new Spark Session to reconnect. (a != b)"),
        PySparkException("Job 0 cancelled because SparkContext was shut down"),
        Answer(grpc.StatusCode.UNAVAILABLE),
        Py4JNetworkError("Answer from Java side is empty"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_or_session_that_is_gone_may_come_back(error: Exception) -> None:
    with pytest.raises(SparkUnavailable, match="doctor") as found, reached():
        raise error
    assert isinstance(found.value, Retryable)
    assert found.value.__cause__ is error


def test_records_that_were_lost_with_their_executor_are_asked_for_again_and_no_slices_fault() -> None:
    said = "Job aborted: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_3_0 not found!"
    with pytest.raises(SparkUnavailable, match=r"lost an executor.*asked for again") as found, reached():
        raise SparkConnectGrpcException(message=said, grpc_status_code=grpc.StatusCode.INTERNAL)
    assert fault_of(found.value) is Fault.PASSING


def not_fetched(code: int | None, why: str, *, at: int | None = 4) -> str:
    """The text of a query that failed, as a worker's last line tells it among others."""
    raised = NotFetched(place=("orders", 2, 0, 6), at=at, code=code, why=why)
    return (
        "Job aborted due to stage failure: Traceback (most recent call last):\n  {a line}\n"
        f"_kafka_assets_decode_0123.fetch.NotFetched: {raised} {{and more}}\n\n\tat org.apache.spark {{and more}}"
    )


@pytest.mark.parametrize("code", GONE)
def test_what_kafka_did_not_give_workers_is_asked_for_again_and_no_slices_fault(code: int) -> None:
    said = 'Broker: it says "{gone}"\nand more, ä'
    with pytest.raises(RecordsChanged) as found, reached():
        raise SparkConnectGrpcException(message=not_fetched(code, said), grpc_status_code=grpc.StatusCode.INTERNAL)
    assert found.value.why == f"offset 4 of partition 2 of the topic 'orders': {said}"
    assert fault_of(found.value) is Fault.PASSING


@pytest.mark.parametrize("code", [29, -169, -181])
def test_what_the_broker_refuses_workers_is_a_right_and_no_slices_fault(code: int) -> None:
    with pytest.raises(BrokerRefused, match="rights on the topic") as found, reached():
        raise PythonException(not_fetched(code, "no"))
    assert fault_of(found.value) is Fault.STREAM


@pytest.mark.parametrize("code", DAMAGED)
def test_records_that_are_damaged_are_their_slices_fault_and_others_go_on(code: int) -> None:
    with pytest.raises(RecordsDamaged, match="from offset 4 on") as found, reached():
        raise PythonException(not_fetched(code, "bad CRC"))
    assert fault_of(found.value) is Fault.SLICE
    assert divides(found.value)


@pytest.mark.parametrize("code", [None, -187, -195])
def test_a_broker_that_workers_do_not_reach_passes_or_has_a_cure(code: int | None) -> None:
    with pytest.raises(BrokerUnavailable) as found, reached():
        raise PythonException(not_fetched(code, "no route"))
    assert found.value.what == "Spark's workers could read partition 2 of the topic 'orders' to 4, not to 6"
    assert found.value.why == "no route"
    assert "the machines of Spark's workers reach all of the brokers" in found.value.cure
    assert fault_of(found.value) is Fault.PASSING


def test_a_client_that_cannot_be_made_on_a_worker_is_no_slices_fault() -> None:
    with pytest.raises(WorkersUnfit, match="files that they name") as found, reached():
        raise PythonException(not_fetched(-186, "ssl.keystore.location failed", at=None))
    assert found.value.why == "ssl.keystore.location failed"
    assert fault_of(found.value) is Fault.STREAM


@pytest.mark.parametrize(
    "error",
    [
        AnalysisException("[UNRESOLVED_COLUMN] no such column"),
        SparkConnectGrpcException(message="boom", grpc_status_code=grpc.StatusCode.INTERNAL),
        SparkConnectGrpcException(message="who are you", grpc_status_code=grpc.StatusCode.UNAUTHENTICATED),
        Answer(grpc.StatusCode.INVALID_ARGUMENT),
        ConnectionRefusedError("a service of the function's own"),
        ValueError("the function's own: stopped SparkContext"),
        PythonException("NotFetched: what a function of the user's says"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_all_else_leaves_as_it_came(error: Exception) -> None:
    with pytest.raises(type(error)) as found, reached():
        raise error
    assert found.value is error


def test_a_channel_that_is_closed_or_leads_nowhere_is_seen() -> None:
    channel = grpc.insecure_channel("127.0.0.1:1")
    ask = channel.unary_unary("/spark.connect.SparkConnectService/Config")
    with pytest.raises(SparkUnavailable), reached():
        ask(b"", timeout=10)
    channel.close()
    with pytest.raises(SparkUnavailable), reached():
        ask(b"", timeout=10)


@pytest.mark.parametrize(
    ("said", "what", "cure"),
    [
        (
            "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 "
            "than that in driver: 3.11, PySpark cannot run with different minor versions.\n",
            "Spark's workers run Python 3.9, and this process 3.11",
            "run kafka-assets under Python 3.9",
        ),
        (
            'Traceback (most recent call last):\n  File "x.py", line 1\n'
            "ModuleNotFoundError: No module named 'rapidfuzz.fuzz'\n",
            "Spark's workers have no module rapidfuzz.fuzz",
            "install it in the Python of the workers",
        ),
        (
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'kafka_assets'\n",
            "a function that Spark's workers run imports kafka_assets",
            "write what they need in a module beside that imports neither",
        ),
        (
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'kafka_assets_streams.orders'\n",
            "a function that Spark's workers run imports kafka_assets_streams.orders",
            "write what they need in a module beside that imports neither",
        ),
        (
            "pyspark.errors.PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, "
            "it was not found.\n",
            "the Python of Spark's workers lacks a package",
            "install it in the Python of the workers",
        ),
    ],
)
def test_workers_that_cannot_run_what_they_are_sent_say_so_in_words(said: str, what: str, cure: str) -> None:
    with pytest.raises(WorkersUnfit) as found, reached():
        raise PythonException(said)
    assert found.value.what.startswith(what)
    assert cure in found.value.cure
    assert fault_of(found.value) is Fault.STREAM
