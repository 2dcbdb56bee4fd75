"""Apache Kafka as one KRaft node, or as one of three: broker and controller in one process, loopback only."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from kafka_assets.devstack import artifacts, fetch
from kafka_assets.devstack.java import find_java, write_properties
from kafka_assets.devstack.logs import log4j_properties
from kafka_assets.devstack.ports import answers
from kafka_assets.devstack.processes import environment
from kafka_assets.devstack.progress import Progress
from kafka_assets.devstack.service import Launch, Service
from kafka_assets.devstack.state import StateFile
from kafka_assets.errors import ServiceError

PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
controller.listener.names=CONTROLLER
# From the folder that it is started in: a path of the project may have letters that Java reads otherwise.
log.dirs=data
auto.create.topics.enable=false
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={in_sync}
default.replication.factor={replicas}
min.insync.replicas={in_sync}
# Few partitions for the two internal topics: each is a folder with open files, and one machine has one user.
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
# In the new group protocol a group's times are the broker's; what a classic member may ask for, a group may have.
group.consumer.min.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=3000
"""


class Kafka(Service):
    """One node of the project's Kafka cluster."""

    artifacts = ("kafka",)
    port_names = ("client", "controller")
    farewell = 15.0

    def __init__(self, state: Path, *, node: int, size: int, cluster: str) -> None:
        super().__init__(state, f"kafka-{node}")
        self.node = node
        self.size = size
        self.cluster = cluster

    def prepare(self, ports: Mapping[str, int], progress: Progress) -> Launch:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._configure(ports)
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()
        write_properties(self.folder / "log4j2.properties", log4j_properties(self.log, level="info"))
        options = ["-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        logging = "-Dlog4j2.configurationFile=log4j2.properties"
        return Launch([*self._java(), *options, logging, "kafka.Kafka", "server.properties"], folder=self.folder)

    def unready(self, ports: Mapping[str, int]) -> str | None:
        from kafka_assets.broker.ready import answering_brokers

        if not answers(ports["client"]):
            return f"nothing listens on port {ports['client']} yet"
        nodes = answering_brokers(self.url(ports), timeout=2.0)
        return None if self.node in nodes else "it has not joined the cluster yet"

    def url(self, ports: Mapping[str, int]) -> str:
        return f"127.0.0.1:{ports['client']}"

    def _configure(self, ports: Mapping[str, int]) -> None:
        # One node cannot be configured without the others' controller ports, which are chosen by now.
        chosen = StateFile(self.state).read().ports
        voters = [f"{node}@127.0.0.1:{chosen[f'kafka-{node}']['controller']}" for node in range(1, self.size + 1)]
        replicas = min(3, self.size)
        text = PROPERTIES.format(
            node=self.node,
            voters=",".join(voters),
            client=ports["client"],
            controller=ports["controller"],
            replicas=replicas,
            in_sync=max(1, replicas - 1),
        )
        write_properties(self.folder / "server.properties", text)

    def _format(self) -> None:
        command = [*self._java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*command, "-t", self.cluster, "-c", "server.properties"],
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServiceError(
                f"the storage of {self.name} could not be formatted",
                why=(done.stderr or done.stdout).strip()[-1500:],
                cure=f"look into {self.folder}",
            )

    def _java(self) -> list[str | Path]:
        jars = fetch.fetch(artifacts.group("kafka"))
        # In a file: on the command line, 46 paths hide everything else that `ps` shows.
        arguments = self.folder / "classpath"
        arguments.write_text(f'-cp "{":".join(map(str, jars))}"\n', encoding="utf-8")
        return [find_java(), f"@{arguments}"]
