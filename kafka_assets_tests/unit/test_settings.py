"""Settings: environment over file over the services that are up."""

from __future__ import annotations

import json
import re
import traceback
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kafka_assets
from kafka_assets import load_assets
from kafka_assets.assets.io_manager import SliceIOManager
from kafka_assets.assets.resources import KafkaResource, SparkResource
from kafka_assets.cli import app
from kafka_assets.devstack.state import Record, State
from kafka_assets.errors import SettingsError, SettingWrong, StreamError
from kafka_assets.settings import load_settings, project_root


def services(project: Path, **endpoints: str) -> None:
    (project / ".kafka_assets").mkdir()
    (project / ".kafka_assets" / "services.json").write_text(json.dumps({"version": 1, "endpoints": endpoints}))


def test_with_none_set_the_services_that_are_up_are_found(tmp_path: Path) -> None:
    services(tmp_path, bootstrap_servers="127.0.0.1:1", spark_remote="sc://localhost:2")
    found = load_settings(tmp_path, {})
    assert found.require_broker() == "127.0.0.1:1"
    assert found.require_spark() == "sc://localhost:2"
    assert found.database_url == f"sqlite:///{tmp_path}/.kafka_assets/kafka_assets.db"


def test_the_environment_wins_over_the_file_and_the_file_over_services(tmp_path: Path) -> None:
    services(tmp_path, bootstrap_servers="up:1")
    (tmp_path / "kafka_assets.toml").write_text('bootstrap_servers = "file:1"\ndatabase_url = "sqlite:///file.db"\n')
    found = load_settings(tmp_path, {"KAFKA_ASSETS_DATABASE_URL": "sqlite:///env.db"})
    assert found.bootstrap_servers == "file:1"
    assert found.database_url == "sqlite:///env.db"


def test_kafka_properties_come_from_both_in_librdkafkas_words(tmp_path: Path) -> None:
    (tmp_path / "kafka_assets.toml").write_text('[kafka]\n"security.protocol" = "SSL"\n"client.id" = "me"\n')
    found = load_settings(tmp_path, {"KAFKA_ASSETS_KAFKA__SECURITY_PROTOCOL": "SASL_SSL"})
    assert found.kafka == {"security.protocol": "SASL_SSL", "client.id": "me"}


def test_kafka_properties_may_stand_in_the_file_without_quotes(tmp_path: Path) -> None:
    lines = ("[kafka]", 'security.protocol = "SSL"', "socket.timeout.ms = 60000", "socket.keepalive.enable = true")
    (tmp_path / "kafka_assets.toml").write_text("\n".join(lines))
    assert load_settings(tmp_path, {}).kafka == {
        "security.protocol": "SSL",
        "socket.timeout.ms": "60000",
        "socket.keepalive.enable": "true",
    }


def test_a_master_that_was_chosen_is_not_overruled_by_a_server_that_is_up(tmp_path: Path) -> None:
    services(tmp_path, spark_remote="sc://localhost:2")
    assert load_settings(tmp_path, {"KAFKA_ASSETS_SPARK_MASTER": "local[2]"}).require_spark() == "local[2]"


@pytest.mark.parametrize(
    ("file", "chosen"), [("spark_remote", "spark_master"), ("spark_master", "spark_remote")], ids=lambda one: one
)
def test_the_environments_spark_beats_the_files_whichever_it_is(tmp_path: Path, file: str, chosen: str) -> None:
    services(tmp_path, spark_remote="sc://localhost:2")
    (tmp_path / "kafka_assets.toml").write_text(f'{file} = "of the file"\n')
    assert load_settings(tmp_path, {}).require_spark() == "of the file"
    found = load_settings(tmp_path, {f"KAFKA_ASSETS_{chosen.upper()}": "of the environment"})
    assert found.require_spark() == "of the environment"
    assert getattr(found, file) is None


def test_how_long_spark_is_waited_for_is_a_duration(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {}).spark_patience == timedelta(minutes=1)
    (tmp_path / "kafka_assets.toml").write_text('spark_patience = "2m"\n')
    assert load_settings(tmp_path, {}).spark_patience == timedelta(minutes=2)
    assert load_settings(tmp_path, {"KAFKA_ASSETS_SPARK_PATIENCE": "10s"}).spark_patience == timedelta(seconds=10)
    with pytest.raises(SettingsError, match=r"spark_patience.*no duration"):
        load_settings(tmp_path, {"KAFKA_ASSETS_SPARK_PATIENCE": "soon"})


def test_what_is_missing_is_an_error_that_names_the_cure(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="kafka-assets up"):
        load_settings(tmp_path, {}).require_broker()


@pytest.mark.parametrize(
    "text", ["nonsense = 1\n", "database_url = 5\n", "= broken", 'kafka = "x"\n', "streams = 5\n", "streams = []\n"]
)
def test_a_wrong_file_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "kafka_assets.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"kafka_assets\.toml"):
        load_settings(tmp_path, {})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("KAFKA_ASSETS_DATABSE_URL", "write KAFKA_ASSETS_DATABASE_URL,"),
        ("KAFKA_ASSETS_DATABASE_URI", "write KAFKA_ASSETS_DATABASE_URL,"),
        ("KAFKA_ASSETS_BOOTSTRAP_SERVER", "write KAFKA_ASSETS_BOOTSTRAP_SERVERS,"),
        ("KAFKA_ASSETS_SPARKREMOTE", "write KAFKA_ASSETS_SPARK_REMOTE,"),
        ("KAFKA_ASSETS_KAFKA_SASL_PASSWORD", "write KAFKA_ASSETS_KAFKA__SASL_PASSWORD,"),
        ("KAFKA_ASSETS_NONSENSE", "the settings are .*KAFKA_ASSETS_DATABASE_URL.*KAFKA_ASSETS_KAFKA__…"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused_with_the_one_that_was_meant(
    tmp_path: Path, name: str, meant: str
) -> None:
    with pytest.raises(SettingWrong, match=rf"{name}, which is no setting.*{meant}") as refused:
        load_settings(tmp_path, {name: "CANARY"})
    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("databse_url", "write database_url,"),
        ("KAFKA_ASSETS_DATABASE_URL", "write database_url,"),
        ("project", "the settings are .*database_url"),
    ],
)
def test_a_key_of_the_file_that_is_no_setting_is_refused_with_the_one_that_was_meant(
    tmp_path: Path, name: str, meant: str
) -> None:
    (tmp_path / "kafka_assets.toml").write_text(f'{name} = "sqlite:///x.db"\n')
    with pytest.raises(SettingWrong, match=rf"kafka_assets\.toml sets '{name}', which is no setting.*{meant}"):
        load_settings(tmp_path, {})


def test_variables_that_are_read_elsewhere_or_come_from_others_are_no_mistake(tmp_path: Path) -> None:
    ours = ("HOME", "SPOOL", "SPARK_DRIVER_MEMORY", "MAVEN_REPOSITORY", "SERVICE", "FAULT", "TESTS_RUN")
    # Kubernetes tells every container of each service: here of kafka-assets, and of kafka-assets-ui.
    kubernetes = (
        "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_3000_TCP", "PORT_3000_TCP_PROTO",
        "PORT_3000_TCP_ADDR", "PORT_3000_TCP_PORT", "UI_SERVICE_HOST", "UI_PORT", "UI_PORT_80_TCP_ADDR",
    )  # fmt: skip
    given = {f"KAFKA_ASSETS_{name}": str(tmp_path) for name in (*ours, *kubernetes)}
    found = load_settings(None, {**given, "KAFKA_ASSETS_DATABSE_URL": "", "OTHER_KAFKA_ASSETS_X": "1"})
    assert found.project == tmp_path


def test_every_variable_that_the_package_reads_is_known() -> None:
    package = Path(kafka_assets.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in package.rglob("*.py")]
    read = {name for text in texts for name in re.findall(r"KAFKA_ASSETS_([A-Z][A-Z_]*[A-Z])(?![A-Z_])", text)}
    read |= {name for text in texts for name in re.findall(r"PREFIX\}([A-Z][A-Z_]*[A-Z])(?![A-Z_])", text)}
    assert {"DATABASE_URL", "SPOOL", "FAULT"} <= read
    load_settings(package, {f"KAFKA_ASSETS_{name}": str(package) for name in read - {"SPARK_PATIENCE"}})


def test_the_example_is_that_of_this_checkout_and_of_no_other_project(tmp_path: Path) -> None:
    package = Path(kafka_assets.__file__).parent
    assert load_settings(package.parent, {}).streams == package / "defs"
    # As `dg` makes a project: the streams are below src/, and the command line is not told where.
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "src" / "shop" / "defs").mkdir(parents=True)
    found = load_settings(tmp_path, {})
    assert found.streams == tmp_path / "defs"
    with pytest.raises(StreamError, match="KAFKA_ASSETS_STREAMS"):
        load_assets(found.streams)
    (tmp_path / "kafka_assets.toml").write_text('streams = "src/shop/defs"\n')
    assert load_settings(tmp_path, {}).streams == tmp_path / "src" / "shop" / "defs"


def test_the_project_is_found_from_below(tmp_path: Path) -> None:
    (tmp_path / "kafka_assets.toml").touch()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert project_root(below) == tmp_path


def test_a_project_that_is_a_file_and_settings_that_are_a_folder_are_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="KAFKA_ASSETS_HOME"):
        load_settings(None, {"KAFKA_ASSETS_HOME": str(tmp_path / "file")})
    (tmp_path / "kafka_assets.toml").mkdir()
    with pytest.raises(SettingsError, match=r"kafka_assets\.toml cannot be read"):
        load_settings(tmp_path, {})


@pytest.mark.parametrize("content", [b"[]", b"\xff", b'{"endpoints": null}', b"{"])
def test_services_that_cannot_be_read_are_said_with_the_cure(content: bytes, tmp_path: Path) -> None:
    services(tmp_path)
    (tmp_path / ".kafka_assets" / "services.json").write_bytes(content)
    with pytest.raises(SettingsError, match=r"services\.json is damaged.*kafka-assets down"):
        load_settings(tmp_path, {})


def test_down_ends_what_runs_whatever_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services(tmp_path)
    (tmp_path / ".kafka_assets" / "services.json").write_bytes(b'{"services": 1}')
    (tmp_path / "kafka_assets.toml").write_text("no_setting = 1")
    monkeypatch.setenv("KAFKA_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_ASSETS_DATABSE_URL", "sqlite://")
    assert CliRunner().invoke(app, ["down"]).exit_code == 0
    assert State.model_validate_json((tmp_path / ".kafka_assets" / "services.json").read_bytes()).services == {}


def test_a_file_that_begins_with_a_mark_of_its_encoding_is_read(tmp_path: Path) -> None:
    (tmp_path / "kafka_assets.toml").write_bytes(b'\xef\xbb\xbfbootstrap_servers = "a:1"\r\n')
    assert load_settings(tmp_path, {}).bootstrap_servers == "a:1"


def test_a_property_that_is_not_valid_names_the_variable_that_there_is(tmp_path: Path) -> None:
    (tmp_path / "kafka_assets.toml").write_text('[kafka]\nsasl.password = ["a"]\n')
    with pytest.raises(SettingsError, match=r"KAFKA_ASSETS_KAFKA__SASL_PASSWORD\)"):
        load_settings(tmp_path, {})


@pytest.mark.parametrize("text", ['kafka = "sasl.password=CANARY"\n', '[kafka]\nsasl.password = ["CANARY"]\n'])
def test_what_is_wrong_with_a_secret_is_said_without_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "kafka_assets.toml").write_text(text)
    with pytest.raises(SettingsError) as refused:
        load_settings(tmp_path, {})
    assert "CANARY" not in "".join(traceback.format_exception(refused.value))


def test_settings_and_what_is_made_of_them_show_no_secret_when_printed(tmp_path: Path) -> None:
    settings = load_settings(
        tmp_path,
        {
            "KAFKA_ASSETS_DATABASE_URL": "postgresql://me:CANARY@h/d",
            "KAFKA_ASSETS_SPARK_REMOTE": "sc://h/;token=CANARY",
            "KAFKA_ASSETS_KAFKA__SASL_PASSWORD": "CANARY",
        },
    )
    kafka = KafkaResource(bootstrap_servers="h:1", properties={"sasl.password": "CANARY"})
    spark = SparkResource(spark_config={"spark.remote": "sc://h/;token=CANARY"})
    record = Record(pid=1, started=0, ports={}, log="x", url="postgresql://me:CANARY@h/d")
    state = State(endpoints={"spark_remote": "sc://h/;token=CANARY"}, services={"x": record}, secrets={"x": "CANARY"})
    for one in (settings, kafka, spark, SliceIOManager(database_url="postgresql://me:CANARY@h/d"), state):
        assert "CANARY" not in f"{one!r} {one!s}"
