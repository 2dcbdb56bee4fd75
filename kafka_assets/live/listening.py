"""Running listeners: each in threads of its own, with a consumer that is made anew after trouble that passes."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from sqlalchemy import Engine

from kafka_assets.broker.cluster import describe_cluster
from kafka_assets.broker.commit_modes import Commit
from kafka_assets.broker.connection import Connection
from kafka_assets.broker.consumer import Consumer
from kafka_assets.broker.in_transaction import InTransaction
from kafka_assets.broker.keepers import Keeper
from kafka_assets.broker.producer import Producer
from kafka_assets.broker.read import StoredRecord
from kafka_assets.broker.stopping import stopped_by_signals
from kafka_assets.broker.threads import run_all
from kafka_assets.errors import Fenced, ProducerFinished, Retryable, UsageError
from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.schema import require_schema
from kafka_assets.live.dead_letters import DeadLetters
from kafka_assets.live.handling import Again, Handling, Raised, Stopped
from kafka_assets.live.in_ledger import InLedger
from kafka_assets.live.listener import QUARANTINE, Listener
from kafka_assets.live.reasons import kind_of, message_of
from kafka_assets.settings import load_settings

LOGGER = logging.getLogger("kafka_assets.listeners")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


def run_listeners(
    *listeners: Listener,
    connection: Connection | None = None,
    engine: Engine | None = None,
    stop: threading.Event | None = None,
    idle: float | None = None,
) -> None:
    """Run these until SIGTERM, SIGINT or `stop`.

    With `idle`, each ends when all that it reads was read to its end and nothing more came for so many seconds: not
    while a record is tried again, a broker is slow or away, or a partition cannot be had yet.

    What a listener's function raises, and nothing handles, ends all of them, and is raised here; each has
    finished what it had in hand, and that record is not done. Trouble that passes is waited for, but at the beginning
    it is raised. Broker and ledger are the settings', where not given.
    """
    if not listeners:
        raise UsageError("there is no listener to run", cure="declare one with @kafka_listener, and name it here")
    connection = connection or Connection.of(load_settings())
    ledger = _ledger(engine) if any(one.commit == "ledger" for one in listeners) else None
    describe_cluster(connection)  # a broker that is away now is an error; one that goes away later is waited for
    works = [
        partial(_listen, listener, connection, ledger, idle=idle, number=number)
        for listener in listeners
        for number in range(listener.threads)
    ]
    if stop is not None or threading.current_thread() is not threading.main_thread():
        return run_all(works, stop=stop or threading.Event())
    with stopped_by_signals() as signalled:
        return run_all(works, stop=signalled)


def _ledger(engine: Engine | None) -> Engine:
    made = engine or make_engine(load_settings().database_url)
    require_schema(made)
    return made


def _listen(
    listener: Listener,
    connection: Connection,
    engine: Engine | None,
    stop: threading.Event,
    *,
    idle: float | None,
    number: int,
) -> None:
    handling = Handling(listener, pause=stop.wait)
    pause = _FIRST_PAUSE
    while not stop.is_set():
        begun = time.monotonic()
        try:
            with ExitStack() as stack:
                consumer = _consumer(listener, connection, engine, handling, stack, stop, number=number)
                _hand_over(listener, consumer, handling, idle=idle)
                return
        except Raised as raised:
            raise raised.error from raised.error.__cause__
        except (Retryable, Fenced, ProducerFinished) as error:
            pause = _FIRST_PAUSE if time.monotonic() - begun > _LONGEST_PAUSE else pause
            LOGGER.warning("%s: %s; it begins anew in %g s", listener.group, error, pause)
            stop.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _hand_over(listener: Listener, consumer: Consumer, handling: Handling, *, idle: float | None) -> None:
    """All that comes, until the consumer is stopped, or idle."""
    while True:
        try:
            if listener.batch:
                for batch in consumer.batches(idle=idle):
                    handling(batch)
            else:
                for record in consumer.records(idle=idle):
                    handling([record])
            return
        except Stopped:
            return  # closing the consumer leaves the record in hand undone, and keeps those before it
        except Again as again:
            handling.pause(again.seconds)


def _consumer(
    listener: Listener,
    connection: Connection,
    engine: Engine | None,
    handling: Handling,
    stack: ExitStack,
    stop: threading.Event,
    *,
    number: int,
) -> Consumer:
    commit: Commit | Keeper
    sends = _of_any_size(connection)
    handling.quarantine = handling.sql = handling.require_whole = handling.producer = None
    if listener.commit == "ledger":
        assert engine is not None
        ledger = InLedger(engine, on_expired=listener.on_expired)
        commit = ledger
        handling.sql = lambda: ledger.sql
        handling.require_whole = ledger.require_whole
        if listener.quarantine == QUARANTINE:
            handling.quarantine = partial(_into_ledger, ledger)
    elif listener.commit == "transaction":
        name = listener.transactional_id or f"{listener.group}:{socket.gethostname()}:{os.getpid()}"
        handling.producer = stack.enter_context(Producer(sends, transactional_id=f"{name}:{number}"))
        commit = InTransaction(handling.producer, on_commit=handling.committed)
    else:
        commit = listener.commit
    if listener.quarantine not in (None, QUARANTINE):
        producer = handling.producer or stack.enter_context(Producer(sends))
        handling.quarantine = DeadLetters(producer, listener.quarantine, listener.group, handling.shortened)
    return stack.enter_context(
        Consumer(
            connection,
            listener.topics,
            group=listener.group,
            start=listener.start,
            commit=commit,
            each=listener.each,
            max_records=listener.max_records,
            stop=stop,
        )
    )


def _of_any_size(connection: Connection) -> Connection:
    """What a broker has taken once, its client must not refuse for being more than its default."""
    return replace(connection, properties={"message.max.bytes": "1000000000", **connection.properties})


def _into_ledger(ledger: InLedger, record: StoredRecord, error: Exception, tries: int) -> None:
    ledger.quarantine(record, f"{kind_of(error)} after {tries} tries: {message_of(error)}")
