"""Artifacts into the per-user cache: through the Ivy inside pyspark, checked by sha256, then renamed into place.

A file below `artifacts/` is there completely or not at all, so that two processes can fetch at once and
either may be killed. What was downloaded before an interruption is not downloaded again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafka_assets.devstack import ivy
from kafka_assets.devstack.artifacts import Artifact, cache_folder, sha256_of
from kafka_assets.devstack.locks import held
from kafka_assets.devstack.progress import Progress, Silent
from kafka_assets.errors import ServiceError

LONGEST_FETCH = 30 * 60.0


def fetch(artifacts: Sequence[Artifact], *, progress: Progress | None = None) -> list[Path]:
    """Return the artifacts' files, in order; fetch those that the cache does not hold intact."""
    progress = progress or Silent()
    if absent(artifacts):
        cache = cache_folder()
        waiting = "another process is fetching into the cache; waiting for it"
        with held(cache / "fetch.lock", timeout=LONGEST_FETCH, on_wait=lambda: progress.say(waiting)):
            # The other process may have fetched the same meanwhile.
            if missing := absent(artifacts):
                _download(missing, cache=cache, progress=progress)
    return [path_of(artifact) for artifact in artifacts]


def path_of(artifact: Artifact) -> Path:
    return cache_folder() / "artifacts" / artifact.relative_path


def absent(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Those that the cache does not hold, or not as the lock says."""
    return [artifact for artifact in artifacts if not _intact(path_of(artifact), artifact)]


def _intact(path: Path, artifact: Artifact) -> bool:
    return path.is_file() and path.stat().st_size == artifact.size and sha256_of(path) == artifact.sha256


def _download(artifacts: Sequence[Artifact], *, cache: Path, progress: Progress) -> None:
    total = sum(artifact.size for artifact in artifacts)
    # Ivy keeps what it downloaded until the whole of it is checked, and then copies it once.
    require_space(cache, 2 * total, what="fetch the services' files")
    progress.say(f"fetching {len(artifacts)} files, {total / 1e6:.0f} MB, once for this user")
    aside = Path(tempfile.mkdtemp(prefix="fetched-", dir=cache))
    try:
        ivy.retrieve(artifacts, cache=cache / "ivy", into=aside, progress=progress)
        for artifact in artifacts:
            admit(aside / artifact.relative_path, artifact, cache=cache)
        shutil.rmtree(cache / "ivy", ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def admit(file: Path, artifact: Artifact, *, cache: Path) -> None:
    """Move a downloaded file to its place in the cache, if it is what the lock says; else remove it."""
    found = sha256_of(file)
    if found != artifact.sha256:
        file.unlink()
        # Ivy's own copy is as wrong as this one.
        shutil.rmtree(cache / "ivy", ignore_errors=True)
        raise ServiceError(
            f"{artifact.coordinates} is not the file that jars.lock names",
            why=f"its sha256 is {found}, and should be {artifact.sha256}; it was removed",
            cure="try again; if it stays so, ask who runs the repository or proxy that it came from",
        )
    place = cache / "artifacts" / artifact.relative_path
    place.parent.mkdir(parents=True, exist_ok=True)
    file.replace(place)


def require_space(folder: Path, size: int, *, what: str) -> None:
    """Refuse to begin what cannot fit on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < size:
        raise ServiceError(
            f"the disk is too full to {what}",
            why=f"{size / 1e6:.0f} MB are needed in {folder}, {free / 1e6:.0f} MB are free",
            cure="free some space, or go to another disk (the cache with XDG_CACHE_HOME, a project by moving it)",
        )
