"""What no two streams may share: a name in the ledger, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_assets.errors import StreamError
from kafka_assets.streams import Stream


def refuse_shared(streams: Iterable[Stream]) -> None:
    """Refuse two streams of one group or target, wherever streams meet: in a folder, in definitions, in a sensor."""
    for _, _, error in shared(streams):
        raise error


def shared(streams: Iterable[Stream]) -> Iterator[tuple[Stream, Stream, StreamError]]:
    """Each two streams of one group or target, and what is to be said of them."""
    owners: dict[str, Stream] = {}
    groups: dict[str, Stream] = {}
    for stream in streams:
        other = groups.setdefault(stream.asset, stream)
        if other.name != stream.name:
            yield (
                other,
                stream,
                StreamError(
                    f"streams {other.name!r} and {stream.name!r} have the same group {stream.asset!r}",
                    why="it is the name under which the ledger keeps what one asset has landed",
                    cure="give one of them another group",
                ),
            )
        owner = owners.setdefault(stream.target.lower(), stream)
        if owner.name != stream.name:
            yield (
                owner,
                stream,
                StreamError(
                    f"streams {owner.name!r} and {stream.name!r} have the same target {stream.target!r}",
                    why="two writers of one table could replace each other's rows",
                    cure="give one of them another target",
                ),
            )
