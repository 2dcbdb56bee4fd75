"""How far a soak has come, in a file: whoever goes on with it begins where it was."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Reading(Protocol):
    """One look at what must not grow: a dataclass of numbers, and how it is printed."""

    @staticmethod
    def header() -> str: ...

    def row(self) -> str: ...


R = TypeVar("R", bound=Reading)


class Progress(Generic[R]):
    """The readings, the times of the kills, and how many records were begun with; all of one Spark server."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self._path, self._kind = path, kind
        self.readings: list[R] = []
        self.kills: list[float] = []
        self.begun = 0
        self._server = 0
        self._lock = threading.Lock()
        if path.exists():
            found = json.loads(path.read_text())
            self.readings = [kind(**one) for one in found["readings"]]
            self.kills, self.begun, self._server = found["kills"], found["begun"], found["server"]

    def begin(self, server: int) -> None:
        """All readings are of one server: of another one, they begin anew, and the runs that were made count."""
        print(self._kind.header(), flush=True)
        if self._server not in (0, server):
            raise SystemExit(f"its Spark server is another one now: remove {self._path.parent}, and begin anew")
        self._server = server
        for one in self.readings:
            print(one.row(), flush=True)
        self._keep()

    def kill(self, at: float) -> None:
        self.kills.append(at)
        self._keep()

    def begin_records(self, count: int) -> int:
        """The number of the first of so many new records: whatever becomes of them, nobody has it again."""
        first = self.begun
        self.begun += count
        self._keep()
        return first

    def read(self, one: R) -> None:
        self.readings.append(one)
        self._keep()
        print(one.row(), flush=True)

    def _keep(self) -> None:
        with self._lock:
            self._write()

    def _write(self) -> None:
        readings: list[dict[str, Any]] = [asdict(one) for one in self.readings]  # type: ignore[call-overload]
        kept = {"server": self._server, "kills": self.kills, "begun": self.begun, "readings": readings}
        aside = self._path.with_suffix(".new")
        aside.write_text(json.dumps(kept))
        aside.replace(self._path)
