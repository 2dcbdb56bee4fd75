"""services.json: what runs here, under which pid, on which ports; written whole or not at all.

The file holds the Spark server's token, so nobody but its owner may read it.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from kafka_assets.errors import ServiceError
from kafka_assets.settings import make_private

FILE = "services.json"


class Record(BaseModel):
    """One service that was started. `born` tells its process from a later one with the same pid."""

    pid: int
    born: str = ""
    """Empty in a file of an older version: its processes are found by their mark."""
    started: float
    ports: dict[str, int]
    log: str
    url: str = Field(repr=False)
    ready: bool = False


class State(BaseModel):
    """All of services.json."""

    version: int = 1
    endpoints: dict[str, str] = Field(default_factory=dict, repr=False)
    """What Settings reads: only of services that answered a real request."""
    services: dict[str, Record] = Field(default_factory=dict)
    ports: dict[str, dict[str, int]] = Field(default_factory=dict)
    """The ports of each service that ever ran here, so that it comes back under the same address."""
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)
    brokers: int | None = None
    """The size of the Kafka cluster whose data lies here."""


class StateFile:
    """services.json of one project; the threads of one process may change it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / FILE
        self._lock = threading.Lock()

    def read(self) -> State:
        try:
            return State.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return State()
        except ValidationError as error:
            raise ServiceError(
                f"{self.path} is damaged",
                why=error.errors()[0]["msg"],
                cure="run `kafka-assets down`, which also ends services that the file has lost",
            ) from error

    def change(self, edit: Callable[[State], None]) -> State:
        """Read, edit, write. What the endpoints are follows from the services that are ready."""
        with self._lock:
            state = self.read()
            edit(state)
            state.endpoints = _endpoints(state)
            self._write(state)
            return state

    def forget(self) -> None:
        """Begin anew after damage; ports and secrets are chosen again."""
        with self._lock:
            self._write(State())

    def _write(self, state: State) -> None:
        make_private(self.folder)
        # mkstemp makes it readable to the owner alone, from the first byte on.
        descriptor, aside = tempfile.mkstemp(prefix=f".{FILE}-", dir=self.folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(state.model_dump_json(indent=2) + "\n")
                file.flush()
                os.fsync(file.fileno())
            Path(aside).replace(self.path)
        except BaseException:
            Path(aside).unlink()
            raise


def _endpoints(state: State) -> dict[str, str]:
    ready = {name: record for name, record in state.services.items() if record.ready}
    brokers = [record.url for name, record in sorted(ready.items()) if name.startswith("kafka-")]
    endpoints = {"bootstrap_servers": ",".join(brokers)} if brokers else {}
    if "spark" in ready:
        endpoints["spark_remote"] = ready["spark"].url
    return endpoints
