"""The tags of a run: which slices it is for, to read; who asked for it, and for exactly which keys, to verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_assets.assets.names import DIGEST_TAG, SLICES_TAG, STREAM_TAG, TOKEN_TAG
from kafka_assets.slices import SliceKey, digest, readable
from kafka_assets.streams import Stream


def run_tags(stream: Stream, keys: Sequence[SliceKey], *, token: str | None = None) -> dict[str, str]:
    """The tags of a run over these keys, which stand beside each other in Dagster; with the sensor's `token`, if its.

    The token carries the digest of the keys: one tag that nobody can read is enough.
    """
    named = [str(key) for key in keys]
    return {
        "dagster/asset_partition_range_start": named[0],
        "dagster/asset_partition_range_end": named[-1],
        SLICES_TAG: readable(keys),
        STREAM_TAG: stream.name,
        **({DIGEST_TAG: digest(named)} if token is None else {TOKEN_TAG: f"{token}-{digest(named)}"}),
    }


def token_of(tags: Mapping[str, str]) -> str | None:
    """The token under which a sensor asked for the run; None for any other run."""
    asked = tags.get(TOKEN_TAG)
    return None if asked is None else asked.partition("-")[0]


def digest_of(tags: Mapping[str, str]) -> str | None:
    """The digest of the keys that the run is for; None where nobody said."""
    return tags.get(DIGEST_TAG) or tags.get(TOKEN_TAG, "").partition("-")[2] or None
