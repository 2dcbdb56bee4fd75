"""What a local service is to the stack: what it needs, how it is started, and when it is ready."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from kafka_assets.devstack.progress import Progress


@dataclass(frozen=True)
class Launch:
    """How to start a service's process, now that all it needs is there."""

    command: list[str | Path]
    folder: Path
    env: dict[str, str] = field(default_factory=dict[str, str])
    unprivileged: bool = False
    whole_environment: bool = False
    """Whether it learns all that stands in our environment: for who runs the user's own code and settings."""


class Service(ABC):
    """A local service of one project; its name is its key in services.json."""

    name: str
    artifacts: ClassVar[tuple[str, ...]] = ()
    """The groups of jars.lock that it runs from."""
    port_names: ClassVar[tuple[str, ...]] = ("client",)
    patience: ClassVar[float] = 60.0
    """Seconds until it must have answered a request."""
    farewell: ClassVar[float] = 20.0
    """Seconds between being asked to stop and being killed."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, state: Path, name: str) -> None:
        self.name = name
        self.state = state
        self.folder = state / name
        self.log = state / "logs" / f"{name}.log"

    @abstractmethod
    def prepare(self, ports: Mapping[str, int], progress: Progress) -> Launch:
        """Make ready what the process needs: files, configuration, an initialised data folder."""

    @abstractmethod
    def unready(self, ports: Mapping[str, int]) -> str | None:
        """Ask it a real question: None when it answered, else why not yet. Returns within a few seconds."""

    def slow(self, ports: Mapping[str, int]) -> str | None:
        """Why one that listens cannot be worked with all the same; None where to listen is to answer."""
        return None

    @abstractmethod
    def url(self, ports: Mapping[str, int]) -> str:
        """How a client reaches it."""

    def data(self) -> list[Path]:
        """The folders that `down --delete` removes."""
        return [self.folder]
