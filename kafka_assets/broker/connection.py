"""How to reach the broker: said once, in librdkafka's words, valid from here on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_assets.broker.java_names import JAVA_NAMES
from kafka_assets.errors import SettingsError, SettingWrong
from kafka_assets.masks import masked_address, masked_properties
from kafka_assets.settings import FILE, PREFIX, Settings

OURS = {
    "bootstrap.servers": f"{PREFIX}BOOTSTRAP_SERVERS says where the broker is",
    "metadata.broker.list": f"{PREFIX}BOOTSTRAP_SERVERS says where the broker is",
    "isolation.level": "everything here reads committed records only",
    "auto.offset.reset": "a stream's `start` says where it begins, and the ledger where it goes on",
    "enable.auto.commit": "the ledger holds the progress, in the transaction of the rows",
    "enable.auto.offset.store": "the ledger holds the progress, in the transaction of the rows",
}
"""Properties that are not the user's to set, each with the reason."""

_QUEUE_BACKOFF = "20"
"""Milliseconds until more of a partition is asked for, where enough of it was fetched ahead. In the second that
librdkafka waits by itself, a quick consumer is done with all of it, and has nothing to do until that is over."""
_ADDRESS = re.compile(
    r"(?:(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(?:\[[0-9a-f:.]+(?:%\w+)?\]|[^\s:/,\[\]@]+)(?::(?P<port>\d{1,5}))?",
    re.IGNORECASE,
)

_TEXTS = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
"""Properties that name a file, and those that say what is in it."""
_FILES = (*_TEXTS, "ssl.keystore.location")


@dataclass(frozen=True)
class Connection:
    """A cluster's address and librdkafka properties (TLS, SASL, tuning). Its repr shows no secret."""

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    def __post_init__(self) -> None:
        for address in self.bootstrap_servers.strip().removesuffix(",").split(","):
            found = _ADDRESS.fullmatch(address.strip())
            # librdkafka takes a port beyond them modulo 65,536, and asks somebody else.
            if found is None or not 0 < int(found["port"] or 9092) < 65_536:
                # Whoever writes a user there, as in a URL, has written a password, too.
                shown = masked_address(address.strip()) if "@" in address else address.strip()
                raise SettingWrong(
                    f"{shown!r} is no address of a broker",
                    why="it is not of the form host:port, with a port of 1 to 65535",
                    cure=f"set {PREFIX}BOOTSTRAP_SERVERS, for example to kafka1.example.com:9092",
                )
        for name in self.properties:
            _refuse_foreign(name)

    def __repr__(self) -> str:
        return f"Connection({self.bootstrap_servers!r}, {masked_properties(self.properties)!r})"

    @classmethod
    def of(cls, settings: Settings) -> Connection:
        """The connection that the settings describe; without a broker, the error names `kafka-assets up`."""
        if settings.bootstrap_servers is None:
            require_words(settings.kafka)  # what is wrong itself is told before what is only not there
        return cls(settings.require_broker(), settings.kafka)


def require_words(properties: Mapping[str, str]) -> None:
    """Refuse properties that no client takes, for who has not met a broker yet; nobody is connected to."""
    if not properties:
        return
    from confluent_kafka.admin import AdminClient

    from kafka_assets.broker.admin import LOGGER, create

    config: dict[str, Any] = {**admin_config(Connection("unset", properties))}
    del config["bootstrap.servers"]
    create(lambda: AdminClient(config, logger=LOGGER))


def admin_config(connection: Connection) -> dict[str, str]:
    return _common(connection)


def consumer_config(connection: Connection) -> dict[str, str]:
    """For a consumer that is told what to read: no group's offsets, committed records only."""
    return {
        "group.id": "kafka_assets-unused",  # librdkafka wants one for any consumer; nothing is committed to it
        "fetch.queue.backoff.ms": _QUEUE_BACKOFF,
        "check.crcs": "true",  # by itself librdkafka takes what a disk or a network has changed
        **_common(connection),
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",  # an offset that is gone must be an error, never a jump
        "isolation.level": "read_committed",
        "enable.partition.eof": "true",
    }


def worker_config(connection: Connection) -> dict[str, str]:
    """For a consumer on another machine: what files hold goes along, where the client takes it as text.

    So it holds keys and passwords, and is not for printing.
    """
    config = consumer_config(connection)
    for name in config.keys() & _FILES:
        path = Path(config[name])
        if config[name] == "probe":
            continue
        if name in _TEXTS and path.is_file():
            config[_TEXTS[name]] = path.read_text(encoding="utf-8", errors="replace")
            del config[name]
        else:
            config[name] = str(path.absolute())
    return config


def producer_config(connection: Connection) -> dict[str, str]:
    """No loss and no doubles, unless the user's own properties say otherwise."""
    return {"acks": "all", "enable.idempotence": "true", "linger.ms": "20", **_common(connection)}


def _common(connection: Connection) -> dict[str, str]:
    _refuse_absent_files(connection.properties)
    return {
        "client.id": "kafka_assets",
        "socket.connection.setup.timeout.ms": "5000",  # librdkafka waits 30 s, longer than anybody asks here
        "log.connection.close": "false",
        **connection.properties,
        "bootstrap.servers": connection.bootstrap_servers,
    }


def _refuse_absent_files(properties: Mapping[str, str]) -> None:
    """librdkafka says of a file that is not there what OpenSSL says: "BIO lib"."""
    for name in _FILES:
        path = properties.get(name)
        if path is not None and path != "probe" and not Path(path).exists():
            raise SettingsError(
                f"there is no file {path}",
                why=f"the Kafka property {name!r} names it",
                cure="correct the path, or put the file there",
            )


def _refuse_foreign(name: str) -> None:
    where = f"{FILE} ([kafka]) or the environment ({PREFIX}KAFKA__{name.upper().replace('.', '_')})"
    if name in OURS:
        raise SettingWrong(
            f"the Kafka property {name!r} is not yours to set", why=OURS[name], cure=f"remove it from {where}"
        )
    if name in JAVA_NAMES:
        ours = JAVA_NAMES[name]
        raise SettingWrong(
            f"the Kafka property {name!r} is the Java client's name",
            why="all that reads and writes Kafka here is a client of librdkafka, and takes its words",
            cure=f"in {where}: {ours}",
        )
