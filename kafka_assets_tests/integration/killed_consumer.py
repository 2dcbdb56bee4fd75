"""A consumer as a process of its own, killed without a chance to do anything, after so many records were handled.

What is handled goes into the file `out`, a line for each record, or, in the ledger's mode, into the table `handled`;
in a transaction, into the topic `out`. It kills itself with SIGKILL between handling record number `handled` and asking
for the next one; with 0 it goes on until nothing comes. In mode `transaction-committed` it is killed right after the
commit.
"""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

from sqlalchemy import text

from kafka_assets import Consumer, InLedger, InTransaction
from kafka_assets.broker import Connection, Producer
from kafka_assets.broker.read import StoredRecord
from kafka_assets.ledger.engine import make_engine
from kafka_assets_tests.forked import Forked

INSERT = text("INSERT INTO handled (kafka_partition, kafka_offset, number) VALUES (:partition, :offset, :number)")


def killed(*arguments: object) -> None:
    """Run it until it kills itself, or, with no number of records to handle, to its end."""
    with tempfile.NamedTemporaryFile() as log:
        done = Forked(__name__, *map(str, arguments), log=Path(log.name))
        wanted = 0 if arguments[4] == 0 else -signal.SIGKILL
        assert done.wait(180) == wanted, log.read().decode()


def main(broker: str, topic: str, out: str, mode: str, handled: str, url: str = "") -> None:
    connection = Connection(broker, {"session.timeout.ms": "6000", "heartbeat.interval.ms": "300"})
    options: dict[str, Any] = {"group": topic, "each": "record", "start": "earliest"}
    if mode == "ledger":
        ledger = InLedger(make_engine(url), lease_ms=3_600_000)
        options |= {"commit": ledger, "each": "batch", "max_records": 3}

        def handle(record: StoredRecord) -> None:
            row = {"partition": record.partition, "offset": record.offset, "number": int(record.value or b"")}
            ledger.sql.execute(INSERT, row)
    elif mode.startswith("transaction"):
        producer = Producer(connection, transactional_id=out)
        keeper = InTransaction(producer)
        options |= {"commit": keeper, "each": "batch", "max_records": 3}

        def handle(record: StoredRecord) -> None:
            producer.send(out, record.value, key=str(record.partition), partition=0)
            if mode == "transaction-flushed":
                producer.flush()
    else:
        options |= {"offset_first": True} if mode == "offset-first" else {"commit": mode}
        if mode == "auto":
            options |= {"auto_interval": 0.1}

        def handle(record: StoredRecord) -> None:
            with Path(out).open("ab") as file:
                file.write(b"%d %d\n" % (record.partition, int(record.value or b"")))

    with Consumer(connection, topic, **options) as consumer:
        for count, record in enumerate(consumer.records(idle=None if int(handled) else 4), start=1):
            if mode == "offset-first" and count == int(handled):
                os.kill(os.getpid(), signal.SIGKILL)  # its offset is committed, and nobody has handled it
            handle(record)
            if count == int(handled):
                if mode == "transaction-committed":
                    consumer.done()
                os.kill(os.getpid(), signal.SIGKILL)
