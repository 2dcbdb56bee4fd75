"""Taking over from another system: its offsets become the origins of partitions that the ledger does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from kafka_assets.errors import LedgerBusy, SettingsError, UsageError
from kafka_assets.ledger import tables as t
from kafka_assets.ledger.constructs import now_ts
from kafka_assets.ledger.engine import write
from kafka_assets.ledger.retries import retried
from kafka_assets.ledger.sources import source_in
from kafka_assets.plan import Offsets


def import_origins(
    engine: Engine,
    *,
    stream: str,
    asset: str,
    topic: str,
    topic_id: str,
    origins: Mapping[int, int],
    offsets: Mapping[int, Offsets],
) -> None:
    """Begin each of these partitions at its origin, all or none; refused where the ledger knows one of them.

    `offsets` are those of all partitions of the topic: each must have an origin now, or be known already.

    The source, the progress and the committed rows come in one transaction: a sensor that ticks meanwhile sees
    none of it, and either plans after it, from these origins, or was first, and this is refused.
    """
    retried(
        lambda: _import(
            engine, stream=stream, asset=asset, topic=topic, topic_id=topic_id, origins=origins, offsets=offsets
        )
    )


def _import(
    engine: Engine,
    *,
    stream: str,
    asset: str,
    topic: str,
    topic_id: str,
    origins: Mapping[int, int],
    offsets: Mapping[int, Offsets],
) -> None:
    p = t.progress.c
    try:
        with write(engine) as connection:
            source = source_in(connection, stream=stream, topic=topic, topic_id=topic_id)
            connection.execute(select(t.source.c.id).where(t.source.c.id == source.id).with_for_update()).all()
            rows = connection.execute(select(p.partition, p.planned_through).where(p.source_id == source.id)).all()
            known = {row[0]: row[1] for row in rows}
            if there := sorted(known.keys() & origins.keys()):
                raise _known(stream, topic, {part: known[part] for part in there})
            if left := sorted(offsets.keys() - origins.keys() - known.keys()):
                raise _left_out(topic, left)
            for partition, origin in sorted(origins.items()):
                at = offsets[partition]
                connection.execute(
                    insert(t.progress).values(
                        source_id=source.id,
                        partition=partition,
                        origin=origin,
                        planned_through=origin,
                        log_start=at.log_start,
                        last_stable=at.last_stable,
                        high_watermark=at.high_watermark,
                        observed_at=now_ts(),
                    )
                )
                connection.execute(
                    insert(t.committed).values(
                        asset=asset,
                        source_id=source.id,
                        partition=partition,
                        committed_through=origin,
                        updated_at=now_ts(),
                    )
                )
    except IntegrityError as error:
        raise LedgerBusy(
            f"somebody else met the topic {topic!r} of stream {stream!r} at the same moment",
            why="a sensor ticks on this ledger",
            cure="try again; where it has planned meanwhile, its slices stand and the import is refused",
        ) from error


def _left_out(topic: str, partitions: Sequence[int]) -> UsageError:
    return UsageError(
        f"partitions {', '.join(map(str, partitions))} of the topic {topic!r} are left out",
        why="once a topic is known, a partition that is met later begins at offset 0: all of it would land",
        cure="import all partitions at once; --missing says where those begin for which nothing is stored",
    )


def _known(stream: str, topic: str, known: Mapping[int, int]) -> SettingsError:
    standing = ", ".join(f"partition {part} through {through}" for part, through in known.items())
    return SettingsError(
        f"the ledger knows stream {stream!r} already: the topic {topic!r} is planned, {standing}",
        why="an origin never changes once it stands: offsets below it would be neither landed nor recorded",
        cure="leave these partitions out with --partition, jump with `kafka-assets skip`, or declare the stream "
        "under a new name with a target of its own, and import there before the sensor meets it",
    )
