"""A live owner as a process of its own, that stops where it is told to; see `publisher`.

It takes the partition of a key and commits its offsets.
"""

from __future__ import annotations

from kafka_assets.errors import KafkaAssetsError
from kafka_assets.ledger.engine import make_engine
from kafka_assets.sinks import live as transaction
from kafka_assets.slices import SliceKey
from kafka_assets_tests.integration.publisher import followed, once, stop_in_rows
from kafka_assets_tests.lives import Live, meet

MODULE = __name__


def main(url: str, where: str, wanted: str) -> None:
    engine = make_engine(url, lock_seconds=2)
    key = SliceKey.parse(wanted)
    live = Live(engine, meet(engine, end=1000), "frozen")
    # A lease that has ended: whoever comes next need not wait for it.
    live.take(key.partition, lease_ms=-1)
    stop = once(where)
    if where == "copy":
        stop_in_rows(stop)
    else:
        name = {"moved": "move", "advanced": "advance"}[where]
        setattr(transaction, name, followed(getattr(transaction, name), stop))
    try:
        said = f"committed {len(live.land(key.start, key.end, key.partition, note='frozen'))}"
    except KafkaAssetsError as error:
        said = type(error).__name__
    print(said, flush=True)
