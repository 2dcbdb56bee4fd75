"""How far a soak has come, in a file: whoever goes on with it begins where it was."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

COLUMNS = "{:>5} {:>9} {:>10} {:>7} {:>15} {:>8} {:>9}"


@dataclass(frozen=True)
class Reading:
    """One look at Spark's heap."""

    runs: int
    sessions: int
    in_flight: int
    killed: int
    killed_lately: int
    old_megabytes: float
    """The old generation after a collection, and the least of some looks."""
    least_megabytes: float


class Progress:
    """Readings, and the times of the kills."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.readings: list[Reading] = []
        self.kills: list[float] = []
        self._server = 0
        if path.exists():
            found = json.loads(path.read_text())
            self.readings = [Reading(**one) for one in found["readings"]]
            self.kills, self._server = found["kills"], found["server"]

    def begin(self, server: int) -> None:
        """All readings are of one server: of another one, they begin anew, and the runs that were made count."""
        print(
            COLUMNS.format("runs", "sessions", "in flight", "killed", "in 5 minutes", "old MB", "least MB"), flush=True
        )
        if self._server not in (0, server):
            raise SystemExit("its Spark server is another one now: remove build/soak, and begin anew")
        self._server = server
        for one in self.readings:
            self._print(one)
        self._keep()

    def kill(self, at: float) -> None:
        self.kills.append(at)
        self._keep()

    def read(self, one: Reading) -> None:
        self.readings.append(one)
        self._keep()
        self._print(one)

    def _keep(self) -> None:
        kept = {"server": self._server, "kills": self.kills, "readings": [asdict(one) for one in self.readings]}
        self._path.write_text(json.dumps(kept))

    def _print(self, one: Reading) -> None:
        told = (one.runs, one.sessions, one.in_flight, one.killed, one.killed_lately)
        print(COLUMNS.format(*told, f"{one.old_megabytes:.0f}", f"{one.least_megabytes:.0f}"), flush=True)
