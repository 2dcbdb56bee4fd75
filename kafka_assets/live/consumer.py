"""`LiveConsumer`: a stream consumed in a group, landed on the same ledger as the sensor's slices, without Spark."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Engine

from kafka_assets.broker.connection import Connection
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.subscription import Subscription
from kafka_assets.errors import LedgerBusy, NotCaughtUp, UsageError
from kafka_assets.forms import ArrowForm, form_of
from kafka_assets.ledger.engine import make_engine
from kafka_assets.ledger.leases import new_owner
from kafka_assets.ledger.retries import retried
from kafka_assets.ledger.schema import ensure_schema
from kafka_assets.ledger.standing import Place as Goal
from kafka_assets.ledger.standing import Remaining, remaining
from kafka_assets.live.figures import Figures
from kafka_assets.live.keeping import Keeper
from kafka_assets.live.landing import Landing
from kafka_assets.live.limits import Limits
from kafka_assets.live.loop import Loop
from kafka_assets.live.taking import Taking
from kafka_assets.settings import Settings, load_settings

_log = logging.getLogger(__name__)

_REVOKED_WITHIN = 0.5
"""Of the time that the group gives for a revocation: the rest is for what comes after it."""
_ASK_EVERY = 1.0


class LiveConsumer:
    """One member of a stream's consumer group: `run` consumes until `stop`, in the thread that calls it.

    Each batch commits its rows, its slice and its offsets in one transaction; killed anywhere, nothing is lost and
    nothing is there twice. It may run beside others of its kind, here and elsewhere, and beside the sensor.
    """

    def __init__(
        self,
        asset: object,
        *,
        settings: Settings | None = None,
        membership: Membership | None = None,
        limits: Limits | None = None,
        tell_kafka: bool = False,
    ) -> None:
        """`asset` is what `kafka_asset` or a YAML file declared. The group is the stream's own, if not said otherwise.

        `tell_kafka` commits the offsets to Kafka, too, after the ledger: for tools that watch the lag there.
        """
        self.form = _form(asset)
        self.form.require_live()
        self.settings = settings or load_settings()
        self.membership = membership or Membership(self.form.stream.asset)
        self.limits = limits or Limits()
        self.tell_kafka = tell_kafka
        self.figures = Figures()
        self._stop = threading.Event()

    def stop(self) -> None:
        """Commit what was gathered, give the partitions back, leave the group. From any thread, or a signal handler."""
        self._stop.set()

    def run(
        self,
        *,
        until_caught_up: bool = False,
        patience: timedelta = timedelta(minutes=5),
        say: Callable[[Figures], None] | None = None,
        say_every: float = 10.0,
    ) -> Figures:
        """Consume until `stop`, or with `until_caught_up` until all that was there when it began is committed.

        What passes (a database or broker that went away, a fence) is tried again; what does not is raised, after
        everything was given back. NotCaughtUp: nothing has moved for as long as `patience`.
        """
        connection = Connection.of(self.settings)
        engine = make_engine(self.settings.database_url)
        try:
            ensure_schema(engine)
            return self._run(engine, connection, _Turns(until_caught_up, patience, say, say_every))
        finally:
            engine.dispose()

    def _run(self, engine: Engine, connection: Connection, turns: _Turns) -> Figures:
        owner, stream, lease_ms = new_owner(self.membership.group), self.form.stream, round(self.limits.lease * 1000)
        taking = Taking(engine, connection, stream, owner=owner, lease_ms=lease_ms)
        # Others of its group may meet the same topics at this moment.
        goal = retried(taking.look)
        landing = Landing(engine, connection, self.form, owner=owner, limits=self.limits)
        with Keeper(engine, lease_ms=lease_ms, aside=landing.close_windows) as keeper:
            loop = Loop(
                taking=taking,
                landing=landing,
                keeper=keeper,
                limits=self.limits,
                figures=self.figures,
                patience=self.membership.poll_interval(connection) * _REVOKED_WITHIN,
                tell_kafka=self.tell_kafka,
            )
            topics = [stream.topic] if stream.topic is not None else f"^{stream.topics}"
            try:
                with Subscription(
                    connection,
                    topics,
                    self.membership,
                    on_assign=loop.on_assign,
                    on_revoke=loop.on_revoke,
                    on_lost=loop.on_lost,
                ) as group:
                    turns.begin(engine, goal)
                    while not self._stop.is_set() and not turns.over(self.figures):
                        loop.turn(group)
                    loop.drain(group)
            finally:
                loop.close()
                turns.end(self.figures)
        return self.figures.now()


class _Turns:
    """When a run is over, and when it is time to say how it stands."""

    def __init__(
        self, until_caught_up: bool, patience: timedelta, say: Callable[[Figures], None] | None, say_every: float
    ) -> None:
        self._until, self._patience = until_caught_up, patience.total_seconds()
        self._say, self._say_every = say, say_every
        self._before: Remaining | None = None

    def begin(self, engine: Engine, goal: dict[Goal, int]) -> None:
        self._engine, self._goal = engine, goal
        self._asked = self._moved = self._said = time.monotonic()

    def end(self, figures: Figures) -> None:
        """What is left when the last batch was committed, too."""
        if self._until and self._before is not None:
            try:
                figures.left = remaining(self._engine, self._goal, leased=True).offsets
            except LedgerBusy as error:
                _log.warning("%s", error)

    def over(self, figures: Figures) -> bool:
        """Whether all that was there at the beginning is committed, by whomever; also says how it stands."""
        now = time.monotonic()
        if self._say is not None and now - self._said >= self._say_every:
            self._said = now
            self._say(figures.now())
        if not self._until or now - self._asked < _ASK_EVERY:
            return False
        self._asked = now
        try:
            # Its own leases, too: it moves planned_through and committed_through together.
            left = remaining(self._engine, self._goal, leased=True)
        except LedgerBusy as error:
            _log.warning("%s", error)
            return False
        figures.left = left.offsets
        if left != self._before:
            self._before, self._moved = left, now
        elif now - self._moved > self._patience:
            raise NotCaughtUp(
                f"{left.offsets:,} offsets are not committed, and nothing has moved for {self._patience:g} s",
                why=_why(figures),
                cure="see `kafka-assets lag` and `kafka-assets slices`, and try again",
            )
        return left.offsets == 0


def _why(figures: Figures) -> str:
    """What keeps this member from committing more."""
    if said := {**figures.troubles, **figures.waiting}:
        return " | ".join(said.values())
    if figures.committing:
        return f"a batch of {figures.committing:,} records of its own is under way, and the database has not answered"
    if figures.partitions:
        return f"no more records came of the {figures.partitions} partitions that it reads"
    return "it reads no partition: other members of its group have them"


def _form(asset: object) -> ArrowForm:
    form = asset if isinstance(asset, ArrowForm) else form_of(asset)
    if form is None:
        raise UsageError(
            f"{asset!r} cannot be consumed live",
            why="it was not declared by kafka_asset, nor by a YAML file of the type kafka_assets.KafkaTopic",
            cure="give such an asset; one that is made of another one's rows lands by the sensor",
        )
    return form
