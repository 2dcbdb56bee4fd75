"""Where a service that gives up root keeps its files: where its user can go."""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from pathlib import Path

from kafka_assets.devstack.processes import UNPRIVILEGED
from kafka_assets.errors import ServiceError

SHARED = Path("/var/tmp/kafka_assets-root")


def must_drop() -> bool:
    """Whether we are root, as whom PostgreSQL refuses to run."""
    return os.geteuid() == 0


def reachable(folder: Path) -> Path:
    """The folder itself, or one below /var/tmp in its place where only root can go to it."""
    if not must_drop() or _passable(folder):
        return folder
    _make_shared()
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    return SHARED / f"{folder.name}-{digest}"


def hand_over(folder: Path) -> None:
    """Make an empty folder the unprivileged user's, if there is one."""
    if must_drop():
        user = pwd.getpwnam(UNPRIVILEGED)
        os.chown(folder, user.pw_uid, user.pw_gid)


def as_unprivileged() -> dict[str, object]:
    """The arguments of subprocess that run a helper as the unprivileged user."""
    if not must_drop():
        return {}
    user = pwd.getpwnam(UNPRIVILEGED)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _passable(folder: Path) -> bool:
    existing = [part for part in (folder, *folder.parents) if part.exists()]
    return all(part.stat().st_mode & stat.S_IXOTH for part in existing)


def _make_shared() -> None:
    SHARED.mkdir(mode=0o755, exist_ok=True)
    found = SHARED.lstat()
    # Everybody may create names in /var/tmp: one that another user made first is not ours to run programs from.
    if found.st_uid != 0 or not stat.S_ISDIR(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ServiceError(
            f"{SHARED} is not root's own folder",
            why="another user made it, or may write to it",
            cure=f"look at it, remove it (rm -r {SHARED}) and try again",
        )
