"""The same connection for Spark's Kafka source: librdkafka's words translated into the Java client's."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path

from kafka_assets.broker.connection import Connection
from kafka_assets.errors import SettingsError

SAME = frozenset(
    {
        "allow.auto.create.topics",
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "enable.metrics.push",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    }
)
"""Properties with one name and one meaning in both clients."""

RENAMED = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
}

TRANSLATED = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.endpoint.identification.algorithm",
    }
)

KNOWN = SAME | RENAMED.keys() | TRANSLATED
"""The names of librdkafka's that most people write: one that is near to none of these may still be right."""

SECURITY = ("security.", "sasl.", "ssl.", "https.", "enable.ssl.", "enable.sasl.")
"""What begins like this decides who may read what: dropping one silently is never harmless.

All other properties tune librdkafka itself (queues, producers, groups, logs), mean nothing to Spark's
reader, and are left out.
"""

REDACTION = r'LoginModule required[^\n]*|BEGIN [A-Z ]*KEY-----[^"]*|(?i:password)("\s+value: "|=)[^\n]*'
"""For `spark.redaction.string.regex`: what of these options must not be read in what Spark shows of a query."""

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
"""The identifier 1.2.840.113549.1.5.13, as it stands in a key's first bytes."""
_PKCS8 = re.compile(r"-----BEGIN (ENCRYPTED )?PRIVATE KEY-----.+?-----END (ENCRYPTED )?PRIVATE KEY-----", re.DOTALL)


def spark_options(connection: Connection) -> dict[str, str]:
    """Options for ``spark.read.format("kafka")``; they hold the password, so they are not for printing.

    Certificates and keys travel inside the options, since the files need not exist where Spark runs.
    """
    given = connection.properties
    for name, value in given.items():
        if name.startswith(SECURITY) and name not in TRANSLATED and not _is_default(name, value):
            raise _untranslatable(name)
    java = {
        "bootstrap.servers": connection.bootstrap_servers,
        "isolation.level": "read_committed",  # Spark's own default reads what was aborted
        **{name: value for name, value in given.items() if name in SAME},
        **{RENAMED[name]: value for name, value in given.items() if name in RENAMED},
    }
    protocol = given.get("security.protocol", "plaintext").upper()
    if protocol != "PLAINTEXT":
        java["security.protocol"] = protocol
    if protocol in ("SSL", "SASL_SSL"):
        java |= _tls(given)
    if protocol.startswith("SASL_"):
        java |= _sasl(given)
    return {f"kafka.{name}": value for name, value in java.items()}


def _sasl(given: Mapping[str, str]) -> dict[str, str]:
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in _LOGIN_MODULES:
        raise SettingsError(
            f"the SASL mechanism {mechanism} is not translated for Spark",
            why=f"known are {', '.join(_LOGIN_MODULES)}; librdkafka's default is GSSAPI",
            cure="set sasl.mechanism to one of them, on a listener that has it",
        )
    missing = [name for name in ("sasl.username", "sasl.password") if name not in given]
    if missing:
        raise SettingsError(
            f"{' and '.join(missing)} missing",
            why=f"the SASL mechanism {mechanism} needs a user and a password",
            cure=f"set {' and '.join(missing)}",
        )
    user, password = jaas_quoted(given["sasl.username"]), jaas_quoted(given["sasl.password"])
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};",
    }


def jaas_quoted(text: str) -> str:
    """A string as Java's StreamTokenizer reads it: a quote, a backslash and a line's end need a backslash."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _tls(given: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if "ssl.endpoint.identification.algorithm" in given:
        algorithm = given["ssl.endpoint.identification.algorithm"]
        java["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    authorities = _pem(given, "ssl.ca")
    if authorities is not None:
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.certificates"] = _certificates(authorities, name="ssl.ca.location")
    if "ssl.keystore.location" in given:
        java["ssl.keystore.type"] = "PKCS12"
        java["ssl.keystore.location"] = str(Path(given["ssl.keystore.location"]).absolute())
        if "ssl.keystore.password" in given:
            java["ssl.keystore.password"] = given["ssl.keystore.password"]
        return java
    certificate, key = _pem(given, "ssl.certificate"), _pem(given, "ssl.key")
    if (certificate is None) != (key is None):
        raise SettingsError(
            "a client certificate and its key are given only together",
            cure="set both ssl.certificate.location and ssl.key.location",
        )
    if certificate is not None and key is not None:
        java["ssl.keystore.type"] = "PEM"
        java["ssl.keystore.certificate.chain"] = _certificates(certificate, name="ssl.certificate.location")
        java["ssl.keystore.key"] = _private_key(key)
        if "ssl.key.password" in given:
            java["ssl.key.password"] = given["ssl.key.password"]
    return java


def _pem(given: Mapping[str, str], stem: str) -> str | None:
    """The text of ``stem.pem``, or of the file ``stem.location``; None when neither says anything."""
    if f"{stem}.pem" in given:
        return given[f"{stem}.pem"]
    location = given.get(f"{stem}.location")
    if location is None or (stem == "ssl.ca" and location == "probe"):
        return None
    try:
        return Path(location).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{stem}.location cannot be read", why=str(error), cure="give the path of one PEM file"
        ) from error


def _certificates(text: str, *, name: str) -> str:
    found: list[str] = _CERTIFICATE.findall(text)
    if not found:
        raise SettingsError(f"{name} holds no PEM certificate", cure="give a file with BEGIN CERTIFICATE in it")
    return "\n".join(found)


def _private_key(text: str) -> str:
    found = _PKCS8.search(text)
    if found is None:
        raise SettingsError(
            "the client's key cannot be given to Spark",
            why="Java reads private keys in PKCS#8 only (BEGIN PRIVATE KEY or BEGIN ENCRYPTED PRIVATE KEY)",
            cure="convert it: openssl pkcs8 -topk8 -nocrypt -in key.pem -out key.pkcs8.pem",
        )
    if found[1] and _PBES2 in _der(found.group()):
        raise SettingsError(
            "the client's encrypted key cannot be given to Spark",
            why="the Java client has no PBES2, by which openssl encrypts private keys",
            cure="make a PKCS#12 file: openssl pkcs12 -export -in cert.pem -inkey key.pem -out client.p12, "
            "and set ssl.keystore.location and ssl.keystore.password instead",
        )
    return found.group()


def _der(pem: str) -> bytes:
    try:
        return base64.b64decode("".join(pem.strip().splitlines()[1:-1]))
    except ValueError as error:
        raise SettingsError("the client's key is damaged", why=str(error), cure="give the PEM file as made") from error


def _is_default(name: str, value: str) -> bool:
    return name == "enable.ssl.certificate.verification" and value.lower() == "true"


def _untranslatable(name: str) -> SettingsError:
    return SettingsError(
        f"the Kafka property {name!r} cannot be translated for Spark",
        why="Spark reads with the Java client, which has nothing that means the same",
        cure="remove it, or reach the broker another way: "
        "TLS by ssl.ca.location, ssl.certificate.location, ssl.key.location; SASL by PLAIN or SCRAM",
    )
