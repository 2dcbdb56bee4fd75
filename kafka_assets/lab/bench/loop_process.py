"""One process of a measurement, told on its standard input what to do: `python -m kafka_assets.lab.bench.loop_process`.

It says "ready" when it could begin, waits for "go", and prints when its first record was there and its last committed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.subscription import Subscription
from kafka_assets.decode.messages import Message
from kafka_assets.errors import Retryable
from kafka_assets.forms import ArrowForm
from kafka_assets.lab.bench.hand_loops import LOOPS, Target, Task, Times, run
from kafka_assets.lab.bench.loop_road import LIVE
from kafka_assets.lab.bench.record_shapes import SHAPES
from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.leases import new_owner
from kafka_assets.live.batch import Place
from kafka_assets.live.collecting import seldom_collected
from kafka_assets.live.figures import Figures
from kafka_assets.live.gathering import Gathering
from kafka_assets.live.keeping import Keeper
from kafka_assets.live.landing import Landing
from kafka_assets.live.limits import Limits
from kafka_assets.live.loop import Loop
from kafka_assets.live.taking import Answer, Taking, Wait
from kafka_assets.streams import declare

PATIENCE = 600.0
DELAY = 0.1
"""Seconds that the last batch, which never gets full, waits for more: it would be counted."""


class _Gate(Taking):
    """Begins with no partition before this process has its share, and everybody may."""

    group: Subscription
    share = 0
    mine: Collection[Place] = ()
    """What it had when everybody might begin: it may be given the other's when that has ended."""
    opened = threading.Event()

    def begin(self, places: Collection[Place], *, given: Collection[Place] = ()) -> dict[Place, Answer]:
        if len(self.group.assigned) != self.share:
            return dict.fromkeys(places, Wait("the other process is not there yet", 0.05))
        if not self.opened.is_set():
            self.mine = self.group.assigned
            _wait_for_go()
            self.opened.set()
        return super().begin(places, given=given)


class _Timed(Gathering):
    """Notes when the first record was there."""

    first = 0.0

    def add(self, messages: Sequence[Message]) -> None:
        super().add(messages)
        if self.records and not self.first:
            self.first = time.time()


def live(task: Task, *, group: str, limits: Limits, holds: Sequence[int]) -> Times:
    """The consumer that `kafka-assets live` runs, until its share is committed.

    `holds` says how many records each partition has: the group decides which of them are its share.
    """
    table, schema = task.target.table, task.target.shape.schema
    stream = declare(name=table, topic=task.topic, target=table, schema=schema, on_bad="fail")
    owner, lease_ms = new_owner(group), round(limits.lease * 1000)
    taking = _Gate(task.engine, task.connection, stream, owner=owner, lease_ms=lease_ms)
    _met(taking)
    landing = Landing(task.engine, task.connection, ArrowForm(stream, "bench"), owner=owner, limits=limits)
    figures, gathering = Figures(), _Timed()
    with Keeper(task.engine, lease_ms=lease_ms, aside=landing.close_windows) as keeper:
        loop = Loop(
            taking=taking, landing=landing, keeper=keeper, limits=limits, figures=figures,
            patience=30.0, gathering=gathering,
        )  # fmt: skip
        last, deadline = 0.0, time.monotonic() + PATIENCE
        try:
            with Subscription(
                task.connection, [task.topic], Membership(group),
                on_assign=loop.on_assign, on_revoke=loop.on_revoke, on_lost=loop.on_lost,
            ) as taking.group:  # fmt: skip
                taking.share = len(task.partitions)
                while time.monotonic() < deadline and not (
                    taking.opened.is_set() and figures.records >= sum(holds[partition] for _, partition in taking.mine)
                ):
                    loop.turn(taking.group)
                last = time.time()
        finally:
            loop.close()
    return Times(gathering.first, last)


def _met(taking: Taking) -> None:
    """Both processes meet the topic at the same moment: one of them is told to come again."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            taking.look()
            return
        except Retryable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _wait_for_go() -> None:
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        raise SystemExit(1)


def main() -> None:
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    task = Task(
        connection=Connection(job["bootstrap"], job["properties"]),
        engine=make_engine(job["url"]),
        topic=job["topic"],
        partitions=job["partitions"],
        records=job["records"],
        target=Target(job["table"], SHAPES[job["shape"]], function=job["function"]),
    )
    began = time.process_time()
    with seldom_collected():  # for all roads: a good engineer finds that out, too
        if job["road"] == LIVE:
            times = live(task, group=job["table"], limits=Limits(records=job["batch"], delay=DELAY), holds=job["holds"])
        else:
            _wait_for_go()
            times = run(task, LOOPS[job["road"]])
    spent = time.process_time() - began
    print(json.dumps({"first": times.first, "last": times.last, "spent": spent}), flush=True)


if __name__ == "__main__":
    main()
