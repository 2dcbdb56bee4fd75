"""The broker processes of a local cluster: frozen, woken, killed and started again, each by its own pid."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from kafka_assets import devstack
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.ready import answering_brokers
from kafka_assets.devstack import processes
from kafka_assets.devstack.locks import held
from kafka_assets.errors import ServiceError, UsageError
from kafka_assets.lab.ending import put_back
from kafka_assets.lab.waiting import until
from kafka_assets.settings import Settings

SIZE = 3
LONGEST_LAB = 15 * 60.0

Say = Callable[[str], None]


class Brokers:
    """The brokers that `devstack` started in this folder, by the number of their node."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._look()
        self._frozen: set[int] = set()
        self._dead: set[int] = set()

    def connection(self, *nodes: int) -> Connection:
        """To these brokers, or to all; asked alone, a living one answers, whatever became of the others."""
        return Connection(",".join(self._addresses[node] for node in nodes or self.nodes))

    def freeze(self, *nodes: int) -> None:
        """SIGSTOP: it keeps its connections and its place, and says nothing."""
        for node in nodes:
            process = self._process(node)
            self._frozen.add(node)
            process.send_signal(signal.SIGSTOP)
            until(lambda one=process: one.status() == psutil.STATUS_STOPPED, f"kafka-{node} is frozen", every=0.01)

    def wake(self, *nodes: int) -> None:
        """SIGCONT."""
        for node in nodes:
            self._process(node).send_signal(signal.SIGCONT)
            self._frozen.discard(node)

    def kill(self, node: int) -> None:
        """SIGKILL: it can do nothing more, not even say so."""
        process = self._process(node)
        self._dead.add(node)
        process.send_signal(signal.SIGKILL)
        until(lambda: not processes.is_alive(process), f"kafka-{node} is dead", every=0.01)

    def restart(self) -> None:
        """Start those that were killed, with their data, and wait until all are in the cluster."""
        devstack.up(self._state, ["kafka"])
        self._dead.clear()
        self._look()
        asked = self.connection(self.nodes[-1]).bootstrap_servers
        until(lambda: answering_brokers(asked, timeout=2.0) == set(self.nodes), "all brokers are in the cluster")

    def mend(self) -> None:
        """Leave no broker frozen or dead, whatever happened in between."""
        self.thaw()
        if self._dead:
            self.restart()

    def thaw(self) -> None:
        """Wake all that are frozen: a frozen process ends only by force."""
        self.wake(*sorted(self._frozen - self._dead))

    def _look(self) -> None:
        """Where they are; a port that was taken meanwhile is another one afterwards."""
        self._addresses = {
            _node(one.name): one.url for one in devstack.status(self._state) if one.name.startswith("kafka-")
        }
        self.nodes = tuple(sorted(self._addresses))

    def _process(self, node: int) -> psutil.Process:
        """By pid and start time: what is about to be killed is the broker, and not who has its number now."""
        for one in devstack.status(self._state):
            if one.name == f"kafka-{node}" and (found := processes.find(one.pid, one.born)):
                return found
        raise ServiceError(
            f"kafka-{node} is dead",
            why="it ended by itself, or somebody stopped it during the experiment",
            cure="read its log, and run the experiment again",
        )


@contextmanager
def own_brokers(folder: Path, say: Say) -> Generator[Brokers]:
    """A cluster of three in a folder of its own, gone afterwards: nobody else's records are in it."""

    def remove() -> None:
        say("stopping the lab's brokers")
        devstack.down(folder, delete=True)
        shutil.rmtree(folder, ignore_errors=True)

    with held(folder.with_suffix(".lock"), timeout=LONGEST_LAB, on_wait=lambda: say("waiting for another lab")):
        devstack.down(folder, delete=True)  # what a lab that was killed left behind
        say("starting three brokers of the lab's own")
        with put_back(remove):
            devstack.up(folder, ["kafka"], brokers=SIZE)
            brokers = Brokers(folder)
            try:
                yield brokers
            finally:
                brokers.thaw()


@contextmanager
def project_brokers(settings: Settings) -> Generator[Brokers]:
    """The three brokers of this project, left as they were found."""
    running = [one for one in devstack.status(settings.state) if one.name.startswith("kafka-")]
    if len(running) != SIZE or any(one.state != "ready" for one in running):
        raise UsageError(
            "this project has no three brokers that can be killed",
            why=_what_there_is([f"{one.name} is {one.state}" for one in running]),
            cure="run `kafka-assets up --brokers 3` (where there is one broker, after `kafka-assets down --delete`), "
            "or leave --here out: the lab then starts three of its own",
        )
    brokers = Brokers(settings.state)
    with put_back(brokers.mend):
        yield brokers


def _what_there_is(found: Sequence[str]) -> str:
    return ", ".join(found) if found else "no local broker is up"


def _node(name: str) -> int:
    return int(name.removeprefix("kafka-"))
