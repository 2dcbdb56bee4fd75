"""Settings: from the environment, then from kafka_assets.toml, then from the services that `up` started."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kafka_assets.durations import Duration
from kafka_assets.errors import SettingsError, SettingWrong

PREFIX = "KAFKA_ASSETS_"
FILE = "kafka_assets.toml"
STATE = ".kafka_assets"
SERVICES = "services.json"
ELSEWHERE = ("HOME", "SPOOL", "SPARK_DRIVER_MEMORY", "MAVEN_REPOSITORY", "SERVICE", "FAULT")
"""Variables that stand in the environment alone: read where they are needed, or the mark of our own processes."""
_OF_TESTS = f"{PREFIX}TESTS_"
"""How the variables begin that tests of this package are told things by."""
_OF_KUBERNETES = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""What Kubernetes tells each container of a service that somebody called kafka-assets."""

SPARK_PATIENCE = timedelta(minutes=1)
"""A server that went away is either back by then, or has lost what it knew of the session."""


class Settings(BaseModel):
    """Where the broker, the database and Spark are, and where the streams are declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    project: Path
    bootstrap_servers: str | None = None
    database_url: str = Field(repr=False)
    spark_remote: str | None = Field(default=None, repr=False)
    spark_master: str | None = None
    spark_patience: Duration = SPARK_PATIENCE
    streams: Path
    kafka: dict[str, str] = Field(default_factory=dict, repr=False)

    @property
    def state(self) -> Path:
        """The one folder in which everything local of this project lives."""
        return self.project / STATE

    def require_broker(self) -> str:
        if self.bootstrap_servers is None:
            raise SettingsError(
                "no Kafka broker is known",
                why=f"{PREFIX}BOOTSTRAP_SERVERS is not set, and no local services are up",
                cure=f"run `kafka-assets up`, or set {PREFIX}BOOTSTRAP_SERVERS",
            )
        return self.bootstrap_servers

    def require_spark(self) -> str:
        if self.spark_remote is None and self.spark_master is None:
            raise no_spark_known()
        return self.spark_remote or cast(str, self.spark_master)


def no_spark_known() -> SettingsError:
    """What is said where nobody has said where Spark is: always in the same words, so that it is known again."""
    return SettingsError(
        "no Spark is known",
        why=f"neither {PREFIX}SPARK_REMOTE nor {PREFIX}SPARK_MASTER is set, and no local services are up",
        cure=f"run `kafka-assets up`, or set one of them (for example {PREFIX}SPARK_MASTER='local[2]')",
    )


_SPARK = ("spark_remote", "spark_master")
_IN_BOTH = Settings.model_fields.keys() - {"project", "kafka"}
"""Settings that stand in the environment under their own names, and in the file."""
_KAFKA = f"{PREFIX}KAFKA__"
"""How the variables begin that are properties of librdkafka's."""


class _Services(BaseModel):
    """What of services.json is a setting."""

    model_config = ConfigDict(hide_input_in_errors=True)

    endpoints: dict[str, str] = Field(repr=False)


def make_private(folder: Path) -> None:
    """Make a folder whose files only its owner may read: they hold records, passwords and tokens.

    One that is there already stays as it is.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def project_root(start: Path | None = None) -> Path:
    """The nearest folder upwards that is a project: it has kafka_assets.toml, .kafka_assets/ or pyproject.toml."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if any((folder / mark).exists() for mark in (FILE, STATE, "pyproject.toml")):
            return folder
    return here


def state_folder() -> Path:
    """Where the project's local services have their state. It reads no setting: a wrong one keeps nobody from ending
    what runs."""
    return _root(None, os.environ) / STATE


def _root(project: Path | None, env: Mapping[str, str]) -> Path:
    """The project's folder: the one that is given, else the environment's, else the nearest."""
    home = env.get(f"{PREFIX}HOME")
    root = project or (Path(home) if home else project_root())
    if not root.is_dir():
        raise SettingsError(
            f"the project's folder {root} is not there, or is a file",
            cure=f"set {PREFIX}HOME to a folder" if home else "name a folder",
        )
    return root


def load_settings(project: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings once, at the edge; everything inside gets the frozen result."""
    env = os.environ if environ is None else environ
    root = _root(project, env)
    _refuse_unknown_variables(env)
    given = _from_file(root / FILE)
    _refuse_unknown_keys(given, root / FILE)
    _refuse_other_kinds(given, root / FILE)
    _choose_spark(given, env)
    for name in _IN_BOTH - set(_SPARK):
        value = env.get(PREFIX + name.upper(), given.get(name))
        if value:
            given[name] = value
    kafka = {**_kafka_table(given.get("kafka", {})), **_kafka_properties(env)}
    for name, value in _from_services(root / STATE / SERVICES).items():
        if name == "spark_remote" and given.get("spark_master"):
            continue
        given.setdefault(name, value)
    given["streams"] = root / (given.get("streams") or _default_streams(root))
    given.setdefault("database_url", f"sqlite:///{root / STATE / 'kafka_assets.db'}")
    try:
        return Settings.model_validate({**given, "kafka": kafka, "project": root})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise SettingWrong(
            f"the setting {name!r} is not valid: {first['msg'].lower()}",
            cure=f"correct it in {root / FILE} or in the environment ({_variable(name)})",
        ) from error


def _variable(name: str) -> str:
    """The environment variable of a setting; a property of librdkafka's has its dots as underscores."""
    table, _, rest = name.partition(".")
    return PREFIX + (f"{table}__{rest.replace('.', '_')}" if rest else table).upper()


def _refuse_unknown_variables(env: Mapping[str, str]) -> None:
    """A name that is mistyped would be heard by nobody, and rows would land in the database of the default."""
    known = [PREFIX + name for name in (*map(str.upper, sorted(_IN_BOTH)), *ELSEWHERE)]
    for name in sorted(env):
        if not name.startswith(PREFIX) or name in known or name.startswith((_KAFKA, _OF_TESTS)) or not env[name]:
            continue
        if _OF_KUBERNETES.fullmatch(name.removeprefix(PREFIX)):
            continue
        single = _KAFKA.removesuffix("_")
        meant = _KAFKA + name.removeprefix(single) if name.startswith(single) else nearest(name, known)
        cure = f"write {meant}" if meant else f"the settings are {', '.join(known)} and {_KAFKA}…: write one of them"
        raise SettingWrong(
            f"the environment sets {name}, which is no setting",
            why=f"what begins with {PREFIX} is meant for kafka_assets, and this would go unheard",
            cure=f"{cure}, or unset it",
        )


def _refuse_unknown_keys(given: Mapping[str, Any], path: Path) -> None:
    known = sorted({*_IN_BOTH, "kafka"})
    for name in given:
        if name not in known:
            meant = nearest(name.lower().removeprefix(PREFIX.lower()), known)
            cure = f"write {meant}" if meant else f"the settings are {', '.join(known)}: write one of them"
            raise SettingWrong(
                f"{path} sets {name!r}, which is no setting",
                why="it would go unheard",
                cure=f"{cure}, or take it out",
            )


def nearest(name: str, known: Collection[str]) -> str | None:
    """The name that was probably meant; None where none is near."""
    return next(iter(get_close_matches(name, known, n=1, cutoff=0.8)), None)


def _choose_spark(given: dict[str, Any], env: Mapping[str, str]) -> None:
    """A remote and a master are two answers to one question: the environment's, whichever it is, beats the file's."""
    if said := {name: value for name in _SPARK if (value := env.get(PREFIX + name.upper()))}:
        for name in _SPARK:
            given.pop(name, None)
        given.update(said)


def _default_streams(root: Path) -> Path:
    """`defs/` of the project. The example is that of this package's own checkout, and nobody else's."""
    package = Path(__file__).resolve().parent
    return package / "defs" if root.resolve() == package.parent and not (root / "defs").is_dir() else Path("defs")


def _refuse_other_kinds(given: Mapping[str, Any], path: Path) -> None:
    """What is taken apart before the model sees it; all else is refused there."""
    for name, kind, example in (
        ("kafka", dict, "[kafka], and below it a line for each"),
        ("streams", str, 'streams = "defs"'),
    ):
        if name in given and not isinstance(given[name], kind):
            raise SettingWrong(
                f"the setting {name!r} is not valid: it is of the wrong kind",
                cure=f"write in {path}, for example: {example}",
            )


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a mark
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path} cannot be read", why=str(error), cure="see who owns it, and what it is") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingWrong(f"{path} cannot be read", why=str(error), cure="correct the file") from error


def _kafka_table(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """To TOML, `security.protocol` without quotes is a table in a table, and 60000 no text: both are meant as said."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= _kafka_table(cast(dict[str, Any], value), f"{above}{name}.")
        elif isinstance(value, bool):
            found[above + name] = str(value).lower()
        else:
            found[above + name] = str(value) if isinstance(value, int) else value
    return found


def _kafka_properties(env: Mapping[str, str]) -> dict[str, str]:
    """KAFKA_ASSETS_KAFKA__SECURITY_PROTOCOL=SSL is librdkafka's security.protocol: none has an underscore."""
    return {
        name.removeprefix(_KAFKA).lower().replace("__", ".").replace("_", "."): value
        for name, value in env.items()
        if name.startswith(_KAFKA)
    }


def _from_services(path: Path) -> dict[str, str]:
    """The endpoints that the devstack wrote: `{"endpoints": {"bootstrap_servers": ..., "spark_remote": ...}}`."""
    try:
        return _Services.model_validate_json(path.read_bytes()).endpoints
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"{path} cannot be read", why=str(error), cure="see who owns it, and what it is") from error
    except ValidationError as error:
        raise SettingsError(
            f"{path} is damaged",
            why=error.errors()[0]["msg"],
            cure="run `kafka-assets down`, then `kafka-assets up`",
        ) from error
