"""What no two streams may share: a name in the ledger, and a table."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_assets.errors import StreamError
from kafka_assets.streams import Stream


def refuse_shared(streams: Iterable[Stream]) -> None:
    """Refuse two streams of one group or target, wherever streams meet: in a folder, in definitions, in a sensor."""
    owners: dict[str, str] = {}
    groups: dict[str, str] = {}
    for stream in streams:
        other = groups.setdefault(stream.asset, stream.name)
        if other != stream.name:
            raise StreamError(
                f"streams {other!r} and {stream.name!r} have the same group {stream.asset!r}",
                why="it is the name under which the ledger keeps what one asset has landed",
                cure="give one of them another group",
            )
        owner = owners.setdefault(stream.target.lower(), stream.name)
        if owner != stream.name:
            raise StreamError(
                f"streams {owner!r} and {stream.name!r} have the same target {stream.target!r}",
                why="two writers of one table could replace each other's rows",
                cure="give one of them another target",
            )
