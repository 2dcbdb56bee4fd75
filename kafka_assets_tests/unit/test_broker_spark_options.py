from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.spark_options import REDACTION, jaas_quoted, spark_options
from kafka_assets.errors import SettingsError

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
LOGIN = {"sasl.username": "alice", "sasl.password": "secret"}


def options(**properties: str) -> dict[str, str]:
    return spark_options(Connection("b:1", {name.replace("_", "."): value for name, value in properties.items()}))


def test_a_plain_connection_says_where_and_read_committed() -> None:
    assert options() == {"kafka.bootstrap.servers": "b:1", "kafka.isolation.level": "read_committed"}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "scram.ScramLoginModule"),
        ("scram-sha-512", "scram.Scram"),
    ],
)
def test_user_and_password_become_a_login_module(mechanism: str, module: str) -> None:
    found = spark_options(Connection("b:1", {"security.protocol": "sasl_ssl", "sasl.mechanism": mechanism, **LOGIN}))
    assert found["kafka.security.protocol"] == "SASL_SSL"
    assert found["kafka.sasl.mechanism"] == mechanism.upper()
    assert module in found["kafka.sasl.jaas.config"]
    assert found["kafka.sasl.jaas.config"].endswith('required username="alice" password="secret";')


@pytest.mark.parametrize(
    ("password", "quoted"),
    [
        ('a"b', r'"a\"b"'),
        ("a\\b", r'"a\\b"'),
        ('\\"', r'"\\\""'),
        ("a;b 'c' // d", "\"a;b 'c' // d\""),
        ("a\nb\r", r'"a\nb\r"'),
        ("ö$", '"ö$"'),
    ],
)
def test_a_password_with_odd_characters_is_quoted_for_java(password: str, quoted: str) -> None:
    assert jaas_quoted(password) == quoted


def test_a_login_without_its_password_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"sasl\.password missing"):
        options(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="alice")


@pytest.mark.parametrize("mechanism", [{}, {"sasl.mechanism": "OAUTHBEARER"}])
def test_a_mechanism_that_is_not_translated_is_refused_by_name(mechanism: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"GSSAPI|OAUTHBEARER"):
        spark_options(Connection("b:1", {"security.protocol": "SASL_SSL", **LOGIN, **mechanism}))


def test_certificates_travel_inside_the_options(tmp_path: Path) -> None:
    for name, text in (("ca", f"# who\n{CERTIFICATE}\n\n{CERTIFICATE}\n"), ("cert", CERTIFICATE), ("key", KEY)):
        (tmp_path / name).write_text(text)
    found = options(
        security_protocol="SSL",
        ssl_ca_location=str(tmp_path / "ca"),
        ssl_certificate_location=str(tmp_path / "cert"),
        ssl_key_location=str(tmp_path / "key"),
        ssl_key_password="secret",
    )
    assert found["kafka.ssl.truststore.type"] == "PEM"
    assert found["kafka.ssl.truststore.certificates"] == f"{CERTIFICATE}\n{CERTIFICATE}"
    assert found["kafka.ssl.keystore.type"] == "PEM"
    assert found["kafka.ssl.keystore.certificate.chain"] == CERTIFICATE
    assert found["kafka.ssl.keystore.key"] == KEY
    assert found["kafka.ssl.key.password"] == "secret"


def test_a_pkcs12_file_is_given_by_its_place() -> None:
    found = options(security_protocol="SSL", ssl_keystore_location="/k.p12", ssl_keystore_password="secret")
    assert found["kafka.ssl.keystore.type"] == "PKCS12"
    assert found["kafka.ssl.keystore.location"] == "/k.p12"
    assert found["kafka.ssl.keystore.password"] == "secret"


def test_host_names_are_checked_unless_said_otherwise() -> None:
    name = "kafka.ssl.endpoint.identification.algorithm"
    assert name not in options(security_protocol="SSL")
    assert options(security_protocol="SSL", ssl_endpoint_identification_algorithm="none")[name] == ""
    assert options(security_protocol="SSL", ssl_endpoint_identification_algorithm="https")[name] == "https"


def test_a_key_that_java_cannot_read_is_refused_with_the_command_that_converts_it() -> None:
    old = KEY.replace("PRIVATE", "RSA PRIVATE")
    with pytest.raises(SettingsError, match="openssl pkcs8"):
        options(security_protocol="SSL", ssl_certificate_pem=CERTIFICATE, ssl_key_pem=old)


def test_a_key_with_the_encryption_that_java_lacks_is_refused_with_a_way_out() -> None:
    key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n{}\n-----END ENCRYPTED PRIVATE KEY-----"
    der = bytes.fromhex("3056060930") + bytes.fromhex("06092a864886f70d01050d")
    with pytest.raises(SettingsError, match="openssl pkcs12"):
        options(
            security_protocol="SSL",
            ssl_certificate_pem=CERTIFICATE,
            ssl_key_pem=key.format(base64.b64encode(der).decode()),
        )
    with pytest.raises(SettingsError, match="damaged"):
        options(security_protocol="SSL", ssl_certificate_pem=CERTIFICATE, ssl_key_pem=key.format("A"))


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(SettingsError, match="together"):
        options(security_protocol="SSL", ssl_certificate_pem=CERTIFICATE)


def test_a_file_of_authorities_that_is_not_there_or_holds_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    for path, said in ((tmp_path / "none.pem", "cannot be read"), (tmp_path / "empty.pem", "no PEM certificate")):
        with pytest.raises(SettingsError, match=said):
            options(security_protocol="SSL", ssl_ca_location=str(path))


@pytest.mark.parametrize(
    "name", ["ssl.crl.location", "enable.ssl.certificate.verification", "sasl.kerberos.keytab", "ssl.cipher.suites"]
)
def test_security_that_spark_cannot_have_is_never_dropped_silently(name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be translated"):
        spark_options(Connection("b:1", {"security.protocol": "SSL", name: "false"}))


def test_tuning_is_renamed_or_left_out() -> None:
    found = options(fetch_wait_max_ms="7", client_id="me", queued_min_messages="9", acks="1")
    assert found["kafka.fetch.max.wait.ms"] == "7"
    assert found["kafka.client.id"] == "me"
    assert not [name for name in found if "queued" in name or "acks" in name]


SHOWN = """\
    options {
      key: "kafka.sasl.jaas.config"
      value: "org.apache.kafka.common.security.plain.PlainLoginModule required password=\\"CANARY;x\\";"
    }
    options {
      key: "kafka.ssl.key.password"
      value: "CANARY"
    }
    options {
      key: "kafka.ssl.keystore.key"
      value: "-----BEGIN ENCRYPTED PRIVATE KEY-----\\nCANARY\\nCANARY\\n-----END ENCRYPTED PRIVATE KEY-----\\n"
    }
    options {
      key: "startingOffsets"
      value: "{}"
    }
"""
"""As Spark Connect's UI and event log show a query (4.2.0)."""


def test_what_spark_shows_of_a_query_has_no_secret_and_all_else() -> None:
    left = re.sub(REDACTION, "***", SHOWN)
    assert "CANARY" not in left
    assert 'key: "startingOffsets"\n      value: "{}"' in left


def test_the_docs_have_the_same_redaction() -> None:
    settings = Path(__file__).parents[2] / "docs" / "settings.md"
    assert f"spark.redaction.string.regex {REDACTION}\n" in settings.read_text(encoding="utf-8")
