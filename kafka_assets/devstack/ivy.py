"""The Ivy inside pyspark: it reaches a Maven repository with nothing but Java."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kafka_assets.devstack.artifacts import Artifact
from kafka_assets.devstack.java import find_java
from kafka_assets.devstack.progress import Progress
from kafka_assets.errors import ServiceError
from kafka_assets.masks import masked_links

MIRROR = "KAFKA_ASSETS_MAVEN_REPOSITORY"
PATTERN = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"

# Ivy's own default root is Maven Central. No POMs: the lock names every file, and each POM would be a request.
# No checksums beside the files either: the lock's sha256 is the stronger one.
SETTINGS = """<ivysettings>
  <settings defaultResolver="maven"/>
  <timeout-constraints><timeout-constraint name="patience" connectionTimeout="20000" readTimeout="60000"/>
  </timeout-constraints>
  <caches defaultCacheDir={cache}/>
  <resolvers><ibiblio name="maven" m2compatible="true" usepoms="{poms}" useMavenMetadata="false" checksums=""
    timeoutConstraint="patience"{root}/></resolvers>
</ivysettings>
"""
# Every file that is named is wanted, also where two versions of one module are.
MODULE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="kafka_assets" module="devstack"/>
  <configurations><conf name="default"/></configurations>
  <publications/>
  <dependencies>
{dependencies}
    {conflicts}
  </dependencies>
</ivy-module>
"""


def retrieve(
    artifacts: Sequence[Artifact], *, cache: Path, into: Path, progress: Progress, transitive: bool = False
) -> None:
    """Download exactly these artifacts (with `transitive`, what they need too) in one Java process."""
    total = sum(artifact.size for artifact in artifacts)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ivy-", dir=cache.parent) as scratch:
        command = _command(artifacts, scratch=Path(scratch), cache=cache, into=into, transitive=transitive)
        log = Path(scratch) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                progress.fetched(min(_size_below(cache), total - 1), total)
                try:
                    process.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            process.wait()
        progress.fetched(total, total)
        if process.returncode != 0:
            raise ServiceError(
                "the services' files could not be fetched",
                why=_reason(log.read_text(encoding="utf-8", errors="replace")),
                cure=f"check the network and the disk; behind a company mirror, set {MIRROR} to its address; "
                "what was fetched already is kept",
            )


def _command(
    artifacts: Sequence[Artifact], *, scratch: Path, cache: Path, into: Path, transitive: bool
) -> list[str | Path]:
    mirror = os.environ.get(MIRROR)
    settings, module = scratch / "ivysettings.xml", scratch / "ivy.xml"
    settings.write_text(
        SETTINGS.format(
            cache=quoteattr(str(cache)),
            root=f" root={quoteattr(mirror)}" if mirror else "",
            poms="true" if transitive else "false",
        ),
        encoding="utf-8",
    )
    dependencies = "\n".join(_dependency(artifact, transitive=transitive) for artifact in artifacts)
    conflicts = "" if transitive else '<conflict org="*" module="*" manager="all"/>'
    module.write_text(MODULE.format(dependencies=dependencies, conflicts=conflicts), encoding="utf-8")
    java: list[str | Path] = [find_java(), "-XX:TieredStopAtLevel=1", "-jar", jar()]
    return [*java, "-settings", settings, "-ivy", module, "-confs", "default", "-retrieve", f"{into}/{PATTERN}"]


def _dependency(artifact: Artifact, *, transitive: bool) -> str:
    module = (
        f"<dependency org={quoteattr(artifact.organisation)} name={quoteattr(artifact.name)} "
        f'rev={quoteattr(artifact.version)} conf="default" '
    )
    if transitive:
        return f"    {module}/>"
    classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
    kind = quoteattr(artifact.extension)
    file = f"<artifact name={quoteattr(artifact.name)} type={kind} ext={kind}{classifier}/>"
    return f'    {module}transitive="false">{file}</dependency>'


def jar() -> Path:
    """Ivy's jar, without the second that importing pyspark takes."""
    spec = importlib.util.find_spec("pyspark")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar")) if spec and spec.origin else []
    if not jars:
        raise ServiceError(
            "the Ivy inside pyspark was not found",
            why="pyspark is missing, or is the client alone",
            cure="install kafka-assets with its dependencies (pyspark[connect], not pyspark-client)",
        )
    return jars[-1]


def _reason(log: str) -> str:
    """The lines of Ivy's log that say what went wrong, without the table of contents around them."""
    lines = [line.strip(" \t:") for line in log.splitlines()]
    # Ivy says "not found" of all that it could not reach, too; only below does it say what went wrong.
    for words in (("Server access error", "Exception", "No space"), ("FAILED", "not found", "ERROR")):
        if found := [line for line in lines if any(word in line for word in words)]:
            return masked_links("; ".join(list(dict.fromkeys(found))[:3]))
    return next((line for line in reversed(lines) if line), "Ivy said nothing")


def _size_below(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:  # a part that Ivy has just renamed
            continue
    return size
