"""How a producer ends, closed or forgotten: each record is answered or given up, and all that went wrong is told."""

from __future__ import annotations

import logging
import time

from kafka_assets.broker.deliveries import Deliveries
from kafka_assets.broker.in_order import InOrder, undelivered
from kafka_assets.broker.outbox import Outbox
from kafka_assets.broker.transactions import Transactions
from kafka_assets.errors import KafkaAssetsError, ProducerFinished, TransactionMustAbort


def end(outbox: Outbox, transactions: Transactions, *, guard: InOrder | None, deadline: float | None) -> None:
    """Wait for each answer, at most until the deadline, give the others up, and raise what went wrong first.

    That is what interrupted it, or the open transaction, or what a callback raised. Undelivered, where it is
    not alone, is the cause of that, and named in a note.
    """
    outbox.deliveries.collecting = outbox.deliveries.holding = True
    try:
        _settle(outbox, transactions, guard=guard, deadline=deadline)
    except BaseException as raised:  # Ctrl-C, too: what waits is given up, and told of
        outbox.give_up()
        _note(raised, *_wrong(outbox.deliveries))
        raise
    if wrong := _wrong(outbox.deliveries):
        _note(*wrong)
        raise wrong[0]


def left_behind(outbox: Outbox, *, wait: float) -> None:
    """What is done for a producer that nobody closed: what can be sent is sent, and the rest is named in the log."""
    deliveries = outbox.deliveries
    deliveries.collecting = deliveries.holding = True
    if outbox.drain(time.monotonic() + wait):
        outbox.give_up()
    log = logging.getLogger("kafka_assets.producer")
    failures = deliveries.take_untold()
    if failures:
        first = failures[0]
        log.error(
            "a producer was never closed, and %d of its records were not delivered; the first is %r: %s",
            len(failures),
            first.record,
            first.error,
        )
    if deliveries.raised is not None:
        log.error("a producer was never closed, and a callback of it raised", exc_info=deliveries.raised)


def _settle(outbox: Outbox, transactions: Transactions, *, guard: InOrder | None, deadline: float | None) -> None:
    aborted = _abort(outbox, transactions, deadline=deadline) if transactions.open else None
    if guard is not None and guard.stopped is None:
        guard.wait(deadline)
    if outbox.drain(deadline):
        outbox.give_up()
    if aborted is not None:
        raise aborted


def _abort(outbox: Outbox, transactions: Transactions, *, deadline: float | None) -> KafkaAssetsError | None:
    """What is to be said of the open transaction; nothing, where nothing was in it."""
    if outbox.finished is not None:
        return outbox.finished  # it is the broker that aborts
    held = transactions.held
    try:
        transactions.abort(deadline)
    except ProducerFinished as error:
        return error
    except KafkaAssetsError as error:
        outbox.give_up()
        return TransactionMustAbort(
            f"the producer was closed with an open transaction of {held or 'no records'}, and could not abort it",
            why=f"{error.what}: {error.why}",
            cure="the broker aborts it after transaction.timeout.ms, unless a commit was on its way: "
            "look whether its records are there, or send them again where a repeat does no harm",
        )
    if not held:
        return None
    return TransactionMustAbort(
        f"the producer was closed with an open transaction of {held}, which was aborted",
        cure="commit or abort before closing; send its records again",
    )


def _wrong(deliveries: Deliveries) -> list[Exception]:
    wrong = [] if deliveries.raised is None else [deliveries.raised]
    if failures := deliveries.take_untold():
        late = undelivered(failures)
        late.__cause__ = failures[0].error
        wrong.append(late)
    return wrong


def _note(first: BaseException, *others: Exception) -> None:
    for other in others:
        first.add_note(f"and closing the producer: {type(other).__name__}: {other}")
        first.__cause__ = other
