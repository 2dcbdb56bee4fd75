"""Where rows wait on disk until SQLite's one writer may write them; what a killed process left there goes."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from kafka_assets.errors import DiskFull, SettingsError
from kafka_assets.settings import PREFIX, make_private

SPOOL = f"{PREFIX}SPOOL"
_LOCK = ".lock"


def spool_place(database: str) -> Path:
    """The folder of all spools: the one that is set, else beside the database, where its disk is."""
    given = os.environ.get(SPOOL)
    return Path(given).expanduser() if given else Path(f"{database}-spool")


@contextmanager
def spool_folder(place: Path) -> Generator[Path]:
    """A new folder, removed at the end. It is locked as long as its process lives: so others know what is left over."""
    with spooling(place):
        make_private(place)
        with _alone(place):
            _remove_left_over(place)
            folder = Path(tempfile.mkdtemp(prefix="slices-", dir=place))
            held = os.open(folder, os.O_RDONLY)
            fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


@contextmanager
def spooling(place: Path) -> Generator[None]:
    """What the system says to the block, which makes or fills a folder there: no slice is at fault."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(
                f"there is no room for a slice's rows in {place}",
                why=f"{error}; they wait there until SQLite's one writer may write them",
                cure=f"make room, or set {SPOOL} to a folder on another disk; the same is tried again by itself",
            ) from error
        raise SettingsError(
            f"a slice's rows cannot wait in {place}",
            why=f"{error}; they wait there until SQLite's one writer may write them",
            cure=f"let this user write and lock files there, or set {SPOOL} to a folder where it may",
        ) from error


def _remove_left_over(place: Path) -> None:
    for folder in place.glob("slices-*"):
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # its owner has just removed it
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


@contextmanager
def _alone(place: Path) -> Generator[None]:
    """Nobody else makes or removes a folder meanwhile: one that is made is not locked yet."""
    descriptor = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
