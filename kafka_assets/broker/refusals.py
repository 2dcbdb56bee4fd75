"""What librdkafka says of a record or a transaction, as one of three: try again, abort, or the end of the producer."""

from __future__ import annotations

from confluent_kafka import KafkaError

from kafka_assets.broker.admin import topic_error
from kafka_assets.broker.connection import Connection
from kafka_assets.errors import (
    BrokerRefused,
    DeliveryFailed,
    KafkaAssetsError,
    ProducerFinished,
    RecordRefused,
    TransactionMustAbort,
)

_FINISHED = {
    KafkaError._FATAL,
    KafkaError._FENCED,
    KafkaError._GAPLESS_GUARANTEE,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.TRANSACTION_COORDINATOR_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
_FENCED = _FINISHED - {KafkaError._FATAL, KafkaError._GAPLESS_GUARANTEE}
_PASSING = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._ISR_INSUFF,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
}
_OF_THE_RECORD = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError._INVALID_ARG,
}
# What the broker, or librdkafka before any broker, said no to: such a record is certainly not in the topic.
_CERTAIN = _OF_THE_RECORD | {
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def in_doubt(error: KafkaError) -> bool:
    """Whether a record that failed so may be in the topic all the same."""
    return error.code() not in _CERTAIN


def is_final(error: KafkaError) -> bool:
    return error.fatal() or error.code() in _FINISHED


def record_error(connection: Connection, topic: str, error: KafkaError) -> KafkaAssetsError:
    """What it means for one record of this topic."""
    if is_final(error):
        return finished(error)
    if error.txn_requires_abort():
        return must_abort(error)
    if error.code() in _PASSING:
        return DeliveryFailed(
            f"a record for the topic {topic!r} was not acknowledged",
            why=said(error),
            cure="look whether it is there, or send it again where a repeat does no harm; "
            "inside a transaction: abort, and send all of it again",
        )
    if error.code() in _OF_THE_RECORD:
        return RecordRefused(
            f"a record was refused for the topic {topic!r}",
            why=said(error),
            cure="change the record, or what the topic takes (max.message.bytes, cleanup.policy, "
            "message.timestamp.after.max.ms); for large records message.max.bytes of the client, too",
        )
    known = topic_error(connection, topic, error)
    if isinstance(known, BrokerRefused) or known.what.startswith("the topic"):
        return known
    return RecordRefused(
        f"a record for the topic {topic!r} failed", why=said(error), cure="look the error up, and at the broker's log"
    )


def transaction_error(error: KafkaError, *, what: str) -> KafkaAssetsError:
    """What it means for a transaction that this could not be done to."""
    if is_final(error):
        return finished(error)
    if error.txn_requires_abort():
        return must_abort(error)
    if error.retriable() or error.code() in _PASSING:
        return DeliveryFailed(
            f"the transaction could not {what} in time",
            why=said(error),
            cure=f"ask it to {what} again: nothing is lost",
        )
    return BrokerRefused(
        f"the transaction could not {what}", why=said(error), cure="check the user's rights on the transactional id"
    )


def finished(error: KafkaError) -> ProducerFinished:
    fenced = error.code() in _FENCED or "fenced" in error.str().lower()
    return ProducerFinished(
        "the producer was fenced" if fenced else "the producer has failed for good",
        why=said(error),
        cure="another producer has its transactional id: find out which of the two is to live"
        if fenced
        else "close it, look at what it reports as undelivered, and make a new one",
    )


def must_abort(error: KafkaError) -> TransactionMustAbort:
    return TransactionMustAbort(
        "the transaction can only be aborted", why=said(error), cure="abort it, and send its records again in a new one"
    )


def said(error: KafkaError) -> str:
    return f"{error.str()} ({error.name()})"
