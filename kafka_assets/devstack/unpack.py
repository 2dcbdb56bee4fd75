"""Archives of the cache, unpacked beside them: once for a user, whole or not at all."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO
from zipfile import ZipFile

from kafka_assets.devstack.fetch import require_space
from kafka_assets.devstack.locks import held
from kafka_assets.devstack.progress import Progress

LONGEST_UNPACK = 10 * 60.0


def unpacked(place: Path, fill: Callable[[Path], None], *, size: int, progress: Progress) -> Path:
    """Return the folder `place`, after `fill` has filled it, this time or once before."""
    if place.is_dir():
        return place
    waiting = f"another process is unpacking {place.name}; waiting for it"
    with held(place.with_name(f"{place.name}.lock"), timeout=LONGEST_UNPACK, on_wait=lambda: progress.say(waiting)):
        if not place.is_dir():
            require_space(place.parent, size, what=f"unpack {place.name}")
            progress.say(f"unpacking {place.name}, once for this user")
            aside = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
            try:
                fill(aside)
                aside.chmod(0o755)
                aside.rename(place)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    return place


def untar(file: Path | IO[bytes], into: Path) -> None:
    """Unpack a tar of any compression."""
    with tarfile.open(file) if isinstance(file, Path) else tarfile.open(fileobj=file) as archive:
        # Refuses names that lead outside; Python 3.11.2, Debian's, does not have it yet.
        archive.extraction_filter = getattr(tarfile, "data_filter", _as_it_is)
        archive.extractall(into)


def unzip(file: Path, into: Path, *, prefix: str) -> None:
    """Unpack what lies below `prefix` in a zip (a jar is one)."""
    with ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(prefix) and not entry.is_dir():
                target = into / entry.filename.removeprefix(prefix)
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink)


def _as_it_is(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    return member
