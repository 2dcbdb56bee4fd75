"""Kafka's own tools, from its own jars: what the Java client does, by the Java client."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from kafka_assets.devstack import artifacts, fetch
from kafka_assets.devstack.java import find_java

SEPARATOR = "\t"


def produce_by_java(bootstrap_servers: str, topic: str, keys: Iterable[str]) -> None:
    """One record for each key, with the key as its value."""
    lines = "".join(f"{key}{SEPARATOR}{key}\n" for key in keys)
    _run(
        "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap_servers, "--topic", topic,
        "--reader-property", "parse.key=true", "--reader-property", f"key.separator={SEPARATOR}", said=lines,
    )  # fmt: skip


def share_by_java(bootstrap_servers: str, topic: str, group: str) -> None:
    """A member joins this share group (KIP-932) for a second; the group stays."""
    _run(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", bootstrap_servers,
        "--topic", topic, "--group", group, "--timeout-ms", "1000",
    )  # fmt: skip


def _run(tool: str, *arguments: str, said: str = "") -> None:
    jars = fetch.fetch([*artifacts.group("kafka"), *artifacts.group("kafka-tools")])
    java = [find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars))]
    done = subprocess.run(
        [*java, tool, *arguments],
        input=said.encode("utf-8"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode("utf-8", errors="replace")[-2000:]
