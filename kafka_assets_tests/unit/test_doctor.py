from __future__ import annotations

import json
import socket
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafka_assets.audit import spark_checks
from kafka_assets.audit.doctor import Check, examine
from kafka_assets.broker import admin
from kafka_assets.cli import app

NOWHERE = {"KAFKA_ASSETS_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(admin, "ALL_DOWN_GRACE", 0.1)  # nobody will ever listen on port 1


def checks(project: Path, **environ: str) -> dict[str, Check]:
    return {check.check: check for check in examine(project, environ=environ)}


def test_an_empty_folder_without_services_is_not_broken(tmp_path: Path) -> None:
    found = checks(tmp_path)
    assert {check.status for check in found.values()} == {"ok", "info"}
    assert "kafka-assets up" in found["broker"].cure
    assert "kafka-assets up" in found["spark"].cure
    assert "kafka-assets db init" in found["database"].cure


def test_looking_changes_nothing(tmp_path: Path) -> None:
    checks(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_always_has_a_cure(tmp_path: Path) -> None:
    found = checks(tmp_path, **NOWHERE, KAFKA_ASSETS_SPARK_REMOTE="sc://localhost:1")
    assert [check.check for check in found.values() if check.status != "ok" and not check.cure] == []


@pytest.mark.slow
def test_each_setting_says_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "kafka_assets.toml").write_text('spark_master = "local[2]"')
    (tmp_path / ".kafka_assets").mkdir()
    (tmp_path / ".kafka_assets" / "services.json").write_text(
        json.dumps({"endpoints": {"bootstrap_servers": "127.0.0.1:1"}})
    )
    found = checks(tmp_path, KAFKA_ASSETS_DATABASE_URL=f"sqlite:///{tmp_path}/x.db")
    assert "environment, KAFKA_ASSETS_DATABASE_URL" in found["setting database_url"].detail
    assert "(kafka_assets.toml)" in found["setting spark_master"].detail
    assert "kafka-assets up" in found["setting bootstrap_servers"].detail
    assert "(default)" in found["setting streams"].detail
    assert found["setting spark_patience"].detail == "60s (default)"


def test_no_secret_is_shown(tmp_path: Path) -> None:
    found = checks(
        tmp_path,
        KAFKA_ASSETS_DATABASE_URL="postgresql://me:hunter2@127.0.0.1:1/x",
        KAFKA_ASSETS_SPARK_REMOTE="sc://localhost:1/;token=hunter2",
        KAFKA_ASSETS_KAFKA__SASL_PASSWORD="hunter2",
        KAFKA_ASSETS_KAFKA__SASL_USERNAME="alice",
    )
    assert not [check for check in found.values() if "hunter2" in check.detail + check.cure]
    assert "alice" in found["kafka properties"].detail
    assert "me:***@127.0.0.1:1/x" in found["setting database_url"].detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgresql://127.0.0.1:1/d?user=me&password=hunter2"),
        ("DATABASE_URL", "mysql://127.0.0.1:1/d?password=hunter2"),
        ("DATABASE_URL", "postgresql://127.0.0.1:1/d?sslpassword=hunter2"),
        ("DATABASE_URL", "postgresql:me:hunter2@h/d"),
        ("DATABASE_URL", "me:hunter2@h"),
        ("SPARK_REMOTE", "sc://localhost:1/;Token=hunter2;x-api-key=hunter2"),
        ("SPARK_REMOTE", "https://h/;token=hunter2"),
        ("SPARK_REMOTE", "SC://h/;token=hunter2"),
        ("SPARK_MASTER", "sc:h/;token=hunter2"),
    ],
)
def test_no_secret_is_shown_in_whatever_form_it_was_given(tmp_path: Path, name: str, value: str) -> None:
    found = checks(tmp_path, **{f"KAFKA_ASSETS_{name}": value})
    assert not [check for check in found.values() if "hunter2" in check.detail + check.cure]
    if name == "SPARK_REMOTE":
        assert found["spark"].status == "failed"


def test_a_database_in_a_folder_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    found = checks(tmp_path, KAFKA_ASSETS_DATABASE_URL=f"sqlite:///{tmp_path}/nofolder/x.db")["database"]
    assert found.status == "failed"
    assert f"the folder {tmp_path}/nofolder for the database is not there" in found.detail
    assert "mkdir -p" in found.cure


def test_a_property_that_librdkafka_does_not_know_is_a_failure_also_without_a_broker(tmp_path: Path) -> None:
    found = checks(tmp_path, KAFKA_ASSETS_KAFKA__LINGER_MSS="5")["kafka properties"]
    assert (found.status, "linger.mss" in found.detail) == ("failed", True)


def test_a_broker_that_is_configured_and_down_is_a_failure(tmp_path: Path) -> None:
    found = checks(tmp_path, **NOWHERE)
    assert found["broker"].status == "failed"
    assert "127.0.0.1:1" in found["broker"].detail


def test_a_spark_that_is_configured_and_down_is_a_failure(tmp_path: Path) -> None:
    found = checks(tmp_path, KAFKA_ASSETS_SPARK_REMOTE="sc://localhost:1/;token=x")
    assert found["spark"].status == "failed"
    assert "localhost:1" in found["spark"].detail


@pytest.mark.parametrize("address", ["https://h/;token=hunter2", "sc:h/;token=hunter2", "SC://h/;token=hunter2"])
def test_a_spark_whose_address_is_none_is_a_failure_that_does_not_show_it(tmp_path: Path, address: str) -> None:
    found = checks(tmp_path, KAFKA_ASSETS_SPARK_REMOTE=address)
    assert (found["spark"].status, "sc://" in found["spark"].cure) == ("failed", True)
    assert not [check for check in found.values() if "hunter2" in check.detail + check.cure]


def test_a_spark_on_an_ipv6_address_is_looked_for_there(tmp_path: Path) -> None:
    found = checks(tmp_path, KAFKA_ASSETS_SPARK_REMOTE="sc://[::1]:1/;token=x")
    assert "nothing answers at [::1]:1" in found["spark"].detail


@pytest.mark.slow
def test_a_spark_that_listens_and_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_checks, "PATIENCE", timedelta(seconds=2))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"sc://localhost:{mute.getsockname()[1]}/;token=x"
        found = {one.check: one for one in examine(tmp_path, deep=True, environ={"KAFKA_ASSETS_SPARK_REMOTE": address})}
    assert (found["spark"].status, "does not answer" in found["spark"].detail) == ("failed", True)


def test_one_failure_hides_no_other_check(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is no database, and it is long enough to be looked at as one" * 9)
    found = checks(tmp_path, **NOWHERE, KAFKA_ASSETS_DATABASE_URL=f"sqlite:///{tmp_path}/x.db")
    assert found["database"].status == "failed"
    assert found["broker"].status == "failed"
    assert found["disk"].status == "ok"


def test_settings_that_cannot_be_read_are_a_failure(tmp_path: Path) -> None:
    (tmp_path / "kafka_assets.toml").write_text("this is = = no toml")
    found = checks(tmp_path)
    assert found["settings"].status == "failed"
    assert "kafka_assets.toml" in found["settings"].detail


def test_kafka_properties_that_the_client_does_not_take_are_a_failure(tmp_path: Path) -> None:
    java = checks(tmp_path, KAFKA_ASSETS_KAFKA__SASL_JAAS_CONFIG="x")["kafka properties"]
    assert (java.status, "sasl.username" in java.cure) == ("failed", True)
    tls = {"KAFKA_ASSETS_KAFKA__SECURITY_PROTOCOL": "ssl"}
    revoked = checks(tmp_path, **tls, KAFKA_ASSETS_KAFKA__SSL_CRL_LOCATION="x")["kafka properties"]
    assert (revoked.status, "ssl.crl.location" in revoked.detail) == ("failed", True)


def test_a_way_to_log_in_that_the_client_knows_is_well(tmp_path: Path) -> None:
    login = {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "OAUTHBEARER", "SASL_OAUTHBEARER_METHOD": "oidc"}
    login |= {"SASL_OAUTHBEARER_CLIENT_ID": "me", "SASL_OAUTHBEARER_CLIENT_SECRET": "S3cret"}
    login["SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL"] = "https://127.0.0.1:1/token"
    found = checks(tmp_path, **{f"KAFKA_ASSETS_KAFKA__{name}": value for name, value in login.items()})
    well = found["kafka properties"]
    assert (well.status, "OAUTHBEARER" in well.detail, "S3cret" in well.detail) == ("ok", True, False)


@pytest.mark.slow
def test_a_ledger_of_another_revision_is_a_failure(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    assert CliRunner().invoke(app, ["db", "init", "--url", url]).exit_code == 0
    assert checks(tmp_path, KAFKA_ASSETS_DATABASE_URL=url)["database"].status == "ok"
    with sqlite3.connect(tmp_path / "x.db") as database:
        database.execute("UPDATE kafka_ledger_version SET version_num = '9999'")
    database.close()
    found = checks(tmp_path, KAFKA_ASSETS_DATABASE_URL=url)["database"]
    assert (found.status, "9999" in found.detail) == ("failed", True)


def test_without_java_only_those_who_need_it_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert checks(tmp_path)["java"].status == "info"
    assert checks(tmp_path, KAFKA_ASSETS_SPARK_MASTER="local[2]")["java"].status == "failed"


@pytest.mark.slow
def test_the_command_exits_with_0_or_1_and_prints_json_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    well = CliRunner().invoke(app, ["doctor", "--json"])
    assert well.exit_code == 0
    assert set(json.loads(well.stdout)[0]) == {"check", "status", "detail", "cure"}
    monkeypatch.setenv("KAFKA_ASSETS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    ill = CliRunner().invoke(app, ["doctor"])
    assert ill.exit_code == 1
    assert "failed" in ill.stdout
