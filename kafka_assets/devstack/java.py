"""The Java that runs Kafka, Spark and Ivy: 17 or newer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from kafka_assets.errors import ServiceError

OLDEST = 17
CURE = "install Java 17 (Debian, Ubuntu: `apt-get install openjdk-17-jre-headless`) or set JAVA_HOME to one"


def find_java() -> Path:
    """The java program to use: JAVA_HOME's where it is set, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")
    version = java_version(found)
    if version is None:
        where = f"JAVA_HOME is {home}, and {found} does not run" if home else "there is no java on PATH"
        raise ServiceError("no Java was found", why=where, cure=CURE)
    if version < OLDEST:
        raise ServiceError(
            f"Java {version} is too old", why=f"{found} is Java {version}; Spark and Kafka need {OLDEST}", cure=CURE
        )
    return found


def java_version(java: Path) -> int | None:
    """The major version that a java program says of itself; None where it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match.group(1)) if match else None


def write_properties(path: Path, text: str) -> None:
    """Write a .properties file as Java reads it: Latin-1, and all other letters as their UTF-16 escapes."""
    path.write_text("".join(letter if letter.isascii() else _escaped(letter) for letter in text), encoding="ascii")


def _escaped(letter: str) -> str:
    pairs = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{pairs[at : at + 4]}" for at in range(0, len(pairs), 4))


def main() -> None:
    """Say which Java is used, or what to install: what the set-up asks."""
    try:
        print(find_java())
    except ServiceError as error:
        sys.exit(f"error {error.what}\n  why {error.why}\n  do  {error.cure}")
