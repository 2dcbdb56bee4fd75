"""One conversation with the cluster: asked with a deadline, answered, or failed in librdkafka's own words."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata  # pyright: ignore[reportPrivateImportUsage]

from kafka_assets.broker.connection import Connection, admin_config
from kafka_assets.broker.usual_names import USUAL_NAMES
from kafka_assets.errors import (
    BrokerRefused,
    BrokerUnavailable,
    KafkaAssetsError,
    SettingWrong,
    TopicMissing,
)
from kafka_assets.settings import FILE, PREFIX, nearest

Key = TypeVar("Key")
Answer = TypeVar("Answer")

LOGGER = logging.getLogger("kafka_assets.librdkafka")
"""What librdkafka logs goes here and no further: what matters of it is raised. Add a handler to read it."""
LOGGER.addHandler(logging.NullHandler())
LOGGER.propagate = False

TIMEOUT = 10.0
LOOK = 0.02
"""Seconds between two looks at what a client says of its connection, while an answer is waited for."""
ALL_DOWN_GRACE = 2.0
"""Seconds that "all brokers are down" may last: it is also said between a host's first address and its second."""

_NO_PROPERTY = re.compile(r'No such configuration property: "([^"]*)"')
_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.SECURITY_DISABLED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_DELETION_DISABLED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICA_ASSIGNMENT,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REQUEST,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError._INVALID_ARG,
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._FENCED,
    KafkaError._FATAL,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_CURES = {
    KafkaError.TOPIC_EXCEPTION: "use letters, digits, '.', '_' and '-', 249 of them at most; '.' and '_' "
    "count as the same",
    KafkaError.INVALID_REPLICATION_FACTOR: "ask for at most as many copies as there are brokers in the cluster; "
    "`kafka-assets up --brokers 3` starts three local ones",
    KafkaError.INVALID_REPLICA_ASSIGNMENT: "name brokers that are in the cluster, each once for a partition",
    KafkaError.INVALID_PARTITIONS: "ask for one partition or more, and of a topic that is there for more than it has",
    KafkaError.INVALID_CONFIG: "`kafka-assets topics describe TOPIC --all` of any topic lists the names, with values",
    KafkaError.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true on the brokers",
    KafkaError.POLICY_VIOLATION: "ask for what the policy allows: it is a class in the brokers' configuration",
}
"""What to do where rights are not what is wrong."""
_NOT_TRUSTED = (
    "set ssl.ca.location to the authority that signed the broker's certificate, and name the broker in "
    "bootstrap_servers as its certificate does (`openssl s_client -connect HOST:PORT` shows it)"
)
"""librdkafka says the same of an authority that nobody knows and of a certificate for another name."""
_UNREACHABLE = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


class Watch:
    """What a client says of its connection while somebody waits for an answer."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.last: KafkaError | None = None
        self.down_since: float | None = None
        self.refusal: KafkaError | None = None

    def hear(self, error: KafkaError) -> None:
        """librdkafka's error_cb; called from poll, in the caller's thread."""
        if error.code() in _REFUSED:
            self.refusal = error
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.down_since = self.down_since or time.monotonic()
        else:
            self.last = error

    def check(self, client: Any) -> None:
        """Fail as soon as waiting has become pointless: refused, or not one broker met within the grace."""
        if self.refusal is not None:
            raise refused(self.connection, self.refusal)
        if self.down_since is not None and time.monotonic() - self.down_since > ALL_DOWN_GRACE:
            if not has_met_a_broker(client):
                raise self.unavailable()
            self.down_since = None

    def _protocol(self) -> str:
        """A broker that wants TLS hangs up on who speaks plainly, or says nothing."""
        plain = self.connection.properties.get("security.protocol", "plaintext").lower() == "plaintext"
        return "; if it wants TLS or a password, set security.protocol" if plain else ""

    def unavailable(self, error: KafkaError | None = None) -> BrokerUnavailable:
        heard = self.last or error
        return BrokerUnavailable(
            f"no Kafka broker answered at {self.connection.bootstrap_servers}",
            why=_said(heard) if heard else "no answer in time",
            cure="is it running, and is the address right? `kafka-assets up` starts a local one" + self._protocol(),
        )


class Admin:
    """An AdminClient for one conversation; all that is asked in it shares one deadline."""

    def __init__(self, connection: Connection, *, timeout: float = TIMEOUT) -> None:
        self.connection = connection
        self.watch = Watch(connection)
        self.deadline = time.monotonic() + timeout
        config: dict[str, Any] = {**admin_config(connection), "error_cb": self.watch.hear}
        # Its stubs leave what the futures hold unknown; `answers` is told by its callers.
        self.client: Any = create(lambda: AdminClient(config, logger=LOGGER))

    def left(self) -> float:
        """Seconds until the deadline; librdkafka refuses a timeout of zero."""
        return max(self.deadline - time.monotonic(), 0.05)

    def answers(self, futures: Mapping[Key, Future[Answer]]) -> dict[Key, Answer | KafkaError]:
        """Wait for all of them. Each gives its answer or its own error; an unreachable cluster raises."""
        # Futures are answered from another thread: only who waits for them hears of it at once, and poll does not.
        while wait(futures.values(), LOOK).not_done:
            if time.monotonic() > self.deadline + 1:
                raise self.watch.unavailable()
            self.client.poll(0)
            self.watch.check(self.client)
        found = {key: _answer(future) for key, future in futures.items()}
        silent = [error for error in found.values() if isinstance(error, KafkaError) and error.code() in _UNREACHABLE]
        if silent and len(silent) == len(found):
            self.client.poll(0)
            self.watch.check(self.client)
            raise self.watch.unavailable(silent[0])
        return found

    def metadata(self) -> ClusterMetadata:
        """Brokers and topics, as one of the brokers knows them."""
        try:
            return self.client.list_topics(timeout=self.left())
        except KafkaException as raised:
            self.client.poll(0)
            self.watch.check(self.client)
            raise self.watch.unavailable(kafka_error(raised)) from raised


class Beside:
    """A client for what a consumer asks while it reads, made with the first question.

    On the consumer's own connection a question waits behind the Fetch that is under way, and librdkafka takes one that
    timed out for a dead broker: it disconnects, with all that is under way.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._client: Any = None

    def list_topics(self, timeout: float) -> ClusterMetadata:
        """As librdkafka's own; raises KafkaException where nobody answers in time."""
        if self._client is None:
            config: dict[str, Any] = {**admin_config(self._connection)}
            self._client = create(lambda: AdminClient(config, logger=LOGGER))
        self._client.poll(0)
        return self._client.list_topics(timeout=timeout)


@contextmanager
def admin(connection: Connection, *, timeout: float = TIMEOUT) -> Generator[Admin]:
    """A client per conversation: nothing to share between threads, and nothing to break in a forked child."""
    conversation = Admin(connection, timeout=timeout)
    try:
        yield conversation
    finally:
        conversation.client.poll(0)


def _answer(future: Future[Answer]) -> Answer | KafkaError:
    try:
        return future.result()
    except KafkaException as raised:
        return kafka_error(raised)


def has_met_a_broker(client: Any) -> bool:
    """The cluster's id is known from the first broker's first answer on."""
    try:
        return client.cluster_id(timeout=0.01) is not None
    except KafkaException:
        return False


def create(make: Callable[[], Answer]) -> Answer:
    """Make a client; a property that librdkafka does not accept is a setting's error."""
    try:
        return make()
    except KafkaException as raised:
        said, where = kafka_error(raised).str(), f"{FILE} ([kafka]) or in the environment ({PREFIX}KAFKA__...)"
        unknown = _NO_PROPERTY.search(said)
        meant = nearest(unknown[1], USUAL_NAMES) if unknown else None
        raise SettingWrong(
            "librdkafka does not accept the Kafka properties",
            why=f"{said}; did you mean {meant!r}?" if meant else said,
            cure=f"correct them in {where}; the names are librdkafka's",
        ) from raised


def kafka_error(raised: KafkaException) -> KafkaError:
    return cast(KafkaError, raised.args[0])


def refuses(code: int | None) -> bool:
    """Whether the broker says no by this code, and would say so again."""
    return code in _REFUSED


def refused(connection: Connection, error: KafkaError) -> BrokerRefused:
    return BrokerRefused(
        f"the broker at {connection.bootstrap_servers} refused",
        why=_said(error),
        cure=_NOT_TRUSTED
        if "certificate verify failed" in error.str()
        else "check security.protocol, sasl.* and ssl.* in the settings, and the user's rights on the broker",
    )


def topic_error(connection: Connection, topic: str, error: KafkaError) -> KafkaAssetsError:
    """What an error that the broker gave for one topic means."""
    if error.code() in _MISSING:
        return TopicMissing(
            f"the topic {topic!r} does not exist at {connection.bootstrap_servers}",
            why=_said(error),
            cure="create it, or correct the stream's topic",
        )
    if error.code() in _REFUSED:
        return BrokerRefused(
            f"the broker at {connection.bootstrap_servers} refused the topic {topic!r}",
            why=_said(error),
            cure=_CURES.get(error.code(), "check the user's rights on the topic, and what the broker's policy allows"),
        )
    return BrokerUnavailable(
        f"the broker at {connection.bootstrap_servers} has no answer for the topic {topic!r} now",
        why=_said(error),
        cure="nothing, if it passes; otherwise look at the state of the cluster",
    )


def _said(error: KafkaError) -> str:
    return f"{error.str()} ({error.name()})"
