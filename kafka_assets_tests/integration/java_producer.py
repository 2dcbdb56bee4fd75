"""Kafka's own ConsoleProducer, from its own jars: what the Java client does, by the Java client."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from kafka_assets.devstack import artifacts, fetch
from kafka_assets.devstack.java import find_java

SEPARATOR = "\t"


def produce_by_java(bootstrap_servers: str, topic: str, keys: Iterable[str]) -> None:
    """One record for each key, with the key as its value."""
    jars = fetch.fetch([*artifacts.group("kafka"), *artifacts.group("kafka-tools")])
    # fmt: off
    command = [
        find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars)),
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server", bootstrap_servers, "--topic", topic,
        "--reader-property", "parse.key=true", "--reader-property", f"key.separator={SEPARATOR}",
    ]
    # fmt: on
    lines = "".join(f"{key}{SEPARATOR}{key}\n" for key in keys)
    done = subprocess.run(
        command, input=lines.encode("utf-8"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50, check=False
    )
    assert done.returncode == 0, done.stdout.decode("utf-8", errors="replace")[-2000:]
