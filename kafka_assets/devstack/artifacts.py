"""What jars.lock names: artifacts of Maven coordinates, each with its size and sha256, in groups.

The lock names no host. Where an artifact lies once it was fetched follows from its coordinates alone.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kafka_assets.errors import ServiceError

LOCK = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True)
class Artifact:
    """One file of a Maven repository, pinned: `org:name:version[:classifier][@extension]`."""

    organisation: str
    name: str
    version: str
    sha256: str
    size: int
    classifier: str = ""
    extension: str = "jar"

    @property
    def coordinates(self) -> str:
        classifier = f":{self.classifier}" if self.classifier else ""
        extension = f"@{self.extension}" if self.extension != "jar" else ""
        return f"{self.organisation}:{self.name}:{self.version}{classifier}{extension}"

    @property
    def file_name(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.extension}"

    @property
    def relative_path(self) -> Path:
        """Where it lies below the cache's folder of artifacts, and where Ivy puts it."""
        return Path(self.organisation, self.name, self.version, self.file_name)


def parse_coordinates(text: str, *, sha256: str = "", size: int = 0) -> Artifact:
    """Read `org:name:version[:classifier][@extension]`."""
    body, _, extension = text.partition("@")
    parts = body.split(":")
    if len(parts) not in (3, 4) or not all(parts):
        raise ServiceError(
            f"{text!r} is not a Maven coordinate",
            why="it is not of the form org:name:version[:classifier][@extension]",
            cure="make jars.lock anew with `make jars-lock`",
        )
    return Artifact(
        organisation=parts[0],
        name=parts[1],
        version=parts[2],
        classifier=parts[3] if len(parts) == 4 else "",
        extension=extension or "jar",
        sha256=sha256,
        size=size,
    )


def read_lock(path: Path = LOCK) -> dict[str, tuple[Artifact, ...]]:
    """Read jars.lock: the groups by name, each with its artifacts in the lock's order."""
    try:
        groups = tomllib.loads(path.read_text(encoding="utf-8"))
        return {group: tuple(_entry(*item) for item in entries.items()) for group, entries in groups.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ServiceError(
            f"{path} cannot be read", why=str(error), cure="restore it from the repository, or run `make jars-lock`"
        ) from error


def group(name: str) -> tuple[Artifact, ...]:
    """The artifacts of one group of the lock."""
    return read_lock()[name]


def _entry(coordinates: str, pinned: Any) -> Artifact:
    sha256 = str(cast("dict[str, Any]", pinned)["sha256"])
    if len(sha256) != 64:
        raise ValueError(f"{coordinates} has no sha256 of 64 digits")
    return parse_coordinates(coordinates, sha256=sha256, size=int(pinned["bytes"]))


def cache_folder() -> Path:
    """The per-user cache, shared by all projects: $XDG_CACHE_HOME/kafka_assets or ~/.cache/kafka_assets."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative path is to be ignored.
    return (Path(base) if base.startswith("/") else _home() / ".cache") / "kafka_assets"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise ServiceError(
            "there is no place for the cache of the services",
            why=f"this user (uid {os.getuid()}) has no home folder, and HOME is not set",
            cure="set XDG_CACHE_HOME to a folder that this user may write to",
        ) from error


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
