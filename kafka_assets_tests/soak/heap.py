"""The heap of a running JVM, as the JDK's own tools tell it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kafka_assets.devstack.java import find_java

HOLDER = "org.apache.spark.sql.connect.service.SessionHolder"


class Heap:
    """Of one process; needs a JDK beside the `java` that runs it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def sessions(self) -> int:
        """Sessions that are alive, after a full collection."""
        for line in self._tool("jmap", "-histo:live", str(self.pid)).splitlines():
            match line.split():
                case [_, instances, _, name, *_] if name == HOLDER:
                    return int(instances)
        return 0

    def old_megabytes(self) -> float:
        """The old generation, as the last collection left it."""
        names, values = self._tool("jstat", "-gc", str(self.pid)).splitlines()
        return float(dict(zip(names.split(), values.split(), strict=True))["OU"]) / 1024

    def _tool(self, name: str, *arguments: str) -> str:
        tool: Path = find_java().resolve().with_name(name)
        return subprocess.run([tool, *arguments], check=True, capture_output=True, text=True, timeout=120).stdout
