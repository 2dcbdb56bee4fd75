"""One live consumer as a process of its own, to be killed: begun without Dagster and Spark, which it does not need."""

from __future__ import annotations

import json
import logging
import signal
from pathlib import Path
from typing import Any

from kafka_assets.broker.membership import Membership
from kafka_assets.forms import ArrowForm
from kafka_assets.live.consumer import LiveConsumer
from kafka_assets.live.limits import Limits
from kafka_assets.settings import Settings
from kafka_assets.streams import Stream
from kafka_assets_tests.forked import Forked


def begin(settings: Settings, stream: Stream, log: Path, **said: Any) -> Forked:
    """Begin one; SIGTERM drains it: one that comes before the process can drain waits until it can."""
    given = {
        "settings": settings.model_dump(mode="json"),
        "stream": stream.model_dump(mode="json", by_alias=True),
        **said,
    }
    return Forked(__name__, json.dumps(given), log=log, held={signal.SIGTERM})


def main(said: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    given = json.loads(said)
    stream = Stream.model_validate(given["stream"])
    consumer = LiveConsumer(
        ArrowForm(stream, "v1"),
        settings=Settings.model_validate(given["settings"]),
        membership=Membership(stream.asset, **given["membership"]),
        limits=Limits(**given["limits"]),
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    print(json.dumps(consumer.run().as_dict()), flush=True)
