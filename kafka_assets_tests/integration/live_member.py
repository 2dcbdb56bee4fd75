"""One live consumer as a process of its own, to be killed: begun without Dagster and Spark, which it does not need."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from kafka_assets.broker.membership import Membership
from kafka_assets.forms import ArrowForm
from kafka_assets.live.consumer import LiveConsumer
from kafka_assets.live.limits import Limits
from kafka_assets.settings import Settings
from kafka_assets.streams import Stream


def begin(settings: Settings, stream: Stream, log: IO[bytes], **said: Any) -> subprocess.Popen[bytes]:
    """Begin one; SIGTERM drains it."""
    given = {
        "settings": settings.model_dump(mode="json"),
        "stream": stream.model_dump(mode="json", by_alias=True),
        **said,
    }
    command = [sys.executable, "-m", "kafka_assets_tests.integration.live_member", json.dumps(given)]
    # Inherited: a SIGTERM that comes before the process can drain waits until it can.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parents[2])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    given = json.loads(sys.argv[1])
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


if __name__ == "__main__":
    main()
