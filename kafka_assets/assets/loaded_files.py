"""What definitions were loaded from: every file that was read for them, to be compared with what lies there later."""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_DECLARING = (".py", ".yaml", ".yml", ".toml", ".json", ".env")
"""What may declare something. In a project's folder a database's files come and go, too."""
_NOBODYS = ("/proc/", "/sys/", "/dev/")

Stamp = tuple[int, int, int]
"""When a file was written last, its size, and which file it is: an editor puts a new one in the place of the old."""


@dataclass
class LoadedFiles:
    """The files and folders that were read while `listen` heard it, as they were when they were asked for.

    Whatever Python opens is heard, of a file that is not there, too; what a library reads by itself is not, and
    neither are definitions that come from elsewhere than files. Of what is installed the folder alone is looked at.
    """

    files: dict[str, Stamp | None] = field(default_factory=dict[str, "Stamp | None"])
    folders: dict[tuple[str, bool], frozenset[str]] = field(default_factory=dict[tuple[str, bool], frozenset[str]])
    """Of each folder that was listed what is in it; of one that a file was read from, its files: whether one is there
    may have been asked before."""
    _listening: bool = True
    _begun: int = field(default_factory=time.time_ns)

    def listen(self) -> None:
        """From now on. Python has no way to take a listener away again: after `close` it does nothing."""
        sys.addaudithook(self._hear)

    def close(self) -> None:
        """All is loaded. The source of a module is not opened where it is compiled already: it is added here."""
        self._listening = False
        for path in [one for one, was in self.files.items() if was and not stamp(one)]:
            del self.files[path]  # a temporary one; of a project's own, its folder tells
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and path.endswith(".py") and _is_projects(path):
                written = stamp(path)
                # What was written after the beginning may be younger than what was imported.
                self.files[path] = written if written and written[0] < self._begun else None
                self._note_folder(str(Path(path).parent), listed=False)
        for path in sys.path:
            if path and not _is_projects(path):
                self.files[path] = stamp(path)

    def changed(self) -> str | None:
        """A file or folder that is not what it was; None where all are."""
        for path, was in self.files.items():
            if stamp(path) != was:
                return path
        for (path, listed), were in self.folders.items():
            if _declaring(path, folders=listed) != were:
                return path
        return None

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self._listening or event not in _EVENTS:
            return
        path = "." if given[0] is None else given[0]
        if not isinstance(path, str | os.PathLike):
            return  # what is open already
        self._listening = False  # what is asked below is no reading
        try:
            self._note(event, str(Path(os.fspath(path)).absolute()), given)
        finally:
            self._listening = True

    def _note(self, event: str, path: str, given: tuple[Any, ...]) -> None:
        if not _is_projects(path) or path.startswith(_NOBODYS) or path.endswith(".pyc"):
            return
        if event != "open":
            self._note_folder(path, listed=True)
        elif given[2] & os.O_ACCMODE == os.O_RDONLY and not Path(path).is_dir():
            self.files.setdefault(path, stamp(path))
            if path.endswith(_DECLARING):
                self._note_folder(str(Path(path).parent), listed=False)

    def _note_folder(self, path: str, *, listed: bool) -> None:
        if (path, listed) not in self.folders:
            self.folders[path, listed] = _declaring(path, folders=listed)


_EVENTS: Mapping[str, None] = dict.fromkeys(("open", "os.listdir", "os.scandir"))


def stamp(path: str) -> Stamp | None:
    """What tells two states of a file apart; None where it cannot be looked at, as one that is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - hundreds of them before each run
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _declaring(folder: str, *, folders: bool) -> frozenset[str]:
    """The names in a folder that may declare something, those of folders with them or not."""
    try:
        with os.scandir(folder) as found:
            return frozenset(
                one.name
                for one in found
                if one.name.endswith(_DECLARING) or (folders and one.is_dir() and not one.name.startswith((".", "__")))
            )
    except OSError:
        return frozenset()


def _is_projects(path: str) -> bool:
    """Whether it is the project's: what is installed changes with its folder."""
    return not path.startswith(_LIBRARY) and not any(
        f"{os.sep}{one}{os.sep}" in f"{path}{os.sep}" for one in _INSTALLED
    )


_LIBRARY = tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib")})
_INSTALLED = ("site-packages", "dist-packages")
