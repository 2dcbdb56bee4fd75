"""The words for where and when offsets are kept, and which of them go together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from kafka_assets.broker.group_offsets import AutoCommitted, GroupOffsets
from kafka_assets.broker.in_sequence import InSequence
from kafka_assets.broker.keepers import Keeper, Nowhere
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.units import EACH
from kafka_assets.errors import UsageError

Commit = Literal["none", "auto", "sync", "async"]
COMMITS: tuple[Commit, ...] = ("none", "auto", "sync", "async")


def keeper_of(commit: Commit | Keeper | None, *, group: Membership | None, auto_interval: float) -> Keeper:
    """The keeper of this word; a keeper stands for itself."""
    if commit is None:
        commit = "none" if group is None else "sync"
    if not isinstance(commit, str):
        return commit
    if commit not in COMMITS:
        raise UsageError(f"there is no commit mode {commit!r}", cure=f"choose among {', '.join(COMMITS)}, or a keeper")
    if commit == "auto":
        return AutoCommitted(interval=auto_interval)
    return {"none": Nowhere, "sync": GroupOffsets, "async": InSequence}[commit]()


def check(
    keeper: Keeper,
    commit: object,
    *,
    group: Membership | None,
    each: str,
    offset_first: bool,
    partitions: Collection[int] | None,
) -> None:
    """Refuse what contradicts itself, before anything is connected."""
    if each not in EACH:
        raise UsageError(f"there is no commit with each {each!r}", cure=f"choose among {', '.join(EACH)}")
    if keeper.needs_group and group is None:
        raise UsageError(
            f"commit={commit!r} needs a group", why="Kafka keeps offsets by the group's name", cure="give a group"
        )
    if partitions is not None and group is not None:
        raise UsageError(
            "a member of a group does not choose its partitions",
            why="the group gives them to its members",
            cure="leave the group out, or the partitions",
        )
    if offset_first and type(keeper) is not GroupOffsets:
        raise UsageError(
            "offset_first needs commit='sync'",
            why="a record is handed over only when its offset is sure to be committed",
            cure="give commit='sync', or leave offset_first out",
        )
