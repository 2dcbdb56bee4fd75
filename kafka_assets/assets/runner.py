"""Landing without a daemon: the sensor's tick, and the runs that it asks for, one after the other, here."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import dagster as dg

from kafka_assets import errors
from kafka_assets.arenas import share_arenas
from kafka_assets.assets.by_hand import flushing
from kafka_assets.assets.decorator import versions_of
from kafka_assets.assets.definitions import landing_definitions
from kafka_assets.assets.ending import at_last, end_if_told, told_to_end
from kafka_assets.assets.faults import divides
from kafka_assets.assets.folder import Declared, chosen, load_assets
from kafka_assets.assets.names import DIVIDES, FAILED, SPARK, UNTRIED
from kafka_assets.assets.resources import SparkResource, default_resources
from kafka_assets.assets.tick import Caller, Tick, tick
from kafka_assets.assets.warmth import keep_revisions
from kafka_assets.broker.connection import Connection
from kafka_assets.devstack.dagster import HOME, write_instance
from kafka_assets.errors import Retryable, SettingsError, SparkUnavailable
from kafka_assets.ledger.claims import give_back
from kafka_assets.ledger.engine import make_engine, shared_reads
from kafka_assets.ledger.requests import given_up, withdraw
from kafka_assets.ledger.slice_list import list_slices
from kafka_assets.ledger.standing import (
    Place,
    Remaining,
    ends_of,
    lost_within,
    remaining,
    standing_of,
)
from kafka_assets.ledger.waits import waits
from kafka_assets.settings import Settings
from kafka_assets.streams import root_of

PAUSE = 0.5
"""Seconds between two ticks that found nothing to do."""
SAID = 3
"""Of so many slices of a stream it is said why they wait."""
NAMED = 10
"""Of so many slices that are given up it is said which they are."""
_FIRST, _LAST = (f"dagster/asset_partition_range_{end}" for end in ("start", "end"))

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # what a tick warns of stands in what came of it, too: it is said once


@dataclass(frozen=True)
class Failed:
    """Why a run carried out here failed."""

    reasons: Sequence[str]
    """One for each of its transactions that failed, with its slices."""
    divides: bool
    """Whether fewer of its slices may land, as far as anybody can tell."""
    untried: int = 0
    """Slices that it has not come to."""

    @property
    def said(self) -> str:
        return "; ".join(self.reasons)


@dataclass
class Done:
    """What came of it."""

    runs: int = 0
    failures: list[str] = field(default_factory=list[str])
    """Why runs failed, each reason once, newest last; a slice may have landed in a later run."""
    troubles: list[str] = field(default_factory=list[str])
    """What the last tick could not do, but for the slices that are given up."""
    failed_slices: int = 0
    """Slices that are given up."""
    given_up: dict[str, int] = field(default_factory=dict[str, int])
    """How many of each stream."""
    given_up_slices: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    """Which of each stream, in order; of many the newest."""
    waits: list[str] = field(default_factory=list[str])
    """Why some of what is left waits."""
    remaining: int = 0
    """Offsets that were there when it began, and are not committed."""
    lost: dict[str, int] = field(default_factory=dict[str, int])
    """By topic the offsets that nobody had read when the topic was deleted, as this call has found."""

    @property
    def caught_up(self) -> bool:
        return not (self.remaining or self.failed_slices or self.troubles or self.lost)


class Runner:
    """The assets of a project, run by whoever calls: cron, a script, a person. A context manager.

    It is as safe as a daemon, and beside one: what is planned and who lands it is decided in the ledger.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        only: Sequence[str] = (),
        say: Callable[[str], None] = _log.info,
        instance: dg.DagsterInstance | None = None,
        assets: Sequence[Declared] | None = None,
        resources: Mapping[str, object] | None = None,
        verbose: bool = False,
    ) -> None:
        self._settings, self._say, self._given = settings, say, instance
        self._assets = load_assets(settings.streams) if assets is None else assets
        self.streams = chosen(self._assets, only)
        # Why a run failed is said by us, in one line: Dagster's log has it in a hundred.
        level = "DEBUG" if verbose else "CRITICAL"
        self._run_config = {"loggers": {"console": {"config": {"log_level": level}}}}
        self._cursor: str | None = None
        self._again = True
        """What kept a stream from landing may have been cured before this was called."""
        self._versions = versions_of(one for one in self._assets if isinstance(one, dg.AssetsDefinition))
        self._resources = {**default_resources(), **(resources or {})}
        self._spark_met = False
        self._asked: Future[None] | None = None
        """What Spark says that was asked from aside."""
        self._failed: set[str] = set()
        """What runs were asked for, by their slices, and have failed here since."""
        self._run_id: str | None = None
        """Of the run that was carried out here last."""
        self._told: set[str] = set()
        """Why, as it was said."""
        definitions = landing_definitions(self._assets, resources=resources)
        # Without an asset Dagster has no such job; without a stream no run is asked for.
        self._job = definitions.resolve_implicit_global_asset_job_def() if self.streams else None

    def __enter__(self) -> Self:
        share_arenas()
        self.engine = make_engine(self._settings.database_url)
        return self

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        """The Dagster that is told: opened when it is needed, since that takes a while in which Spark can be asked."""
        if self._given is not None:
            return self._given
        keep_revisions()
        return dg.DagsterInstance.from_config(str(_home(self._settings)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._given is None and "instance" in vars(self):
            self.instance.dispose()
        self.engine.dispose()

    def once(self) -> Done:
        """One tick, and its runs."""
        done = Done()
        begun = time.monotonic()
        found = self._step(done)
        return self._closed(done, remaining(self.engine, self._goal(found)), since=begun)

    def until_caught_up(self, *, patience: timedelta) -> Done:
        """Tick and run until all that was in the topics when this began is committed.

        It gives up on what is failed for good, and when nothing has moved for as long as `patience`:
        another run may hold a slice, or a failed one waits for its next attempt.
        """
        done = Done()
        begun = time.monotonic()
        found = self._step(done)
        with shared_reads(self.engine):
            goal = self._goal(found)
            before, moved = remaining(self.engine, goal), time.monotonic()
        while before.offsets or found.unsettled:
            unsettled, found = found.unsettled, self._step(done)
            if unsettled:  # what could not be looked at before is there now
                goal = {**self._goal(found), **goal}
            left = remaining(self.engine, goal, stalled=found.stalled)
            if left != before or found.requests:
                if left.offsets != before.offsets:
                    self._say(f"{left.offsets:,} offsets to go")
                before, moved = left, time.monotonic()
            elif not found.unsettled and not left.landable and (not left.unplanned or found.troubles):
                break  # what is left is given up, or cannot be planned
            elif time.monotonic() - moved > patience.total_seconds():
                break
            else:
                time.sleep(PAUSE)
        return self._closed(done, before, since=begun)

    def _goal(self, found: Tick) -> dict[Place, int]:
        """Where the partitions end that the tick has looked at."""
        return ends_of(self.engine, assets=[one.asset for one in self.streams if one.name not in found.refused])

    def standing(self) -> list[dict[str, object]]:
        """Where each partition stands now."""
        return [
            {
                "stream": stream.name,
                "topic": one.topic,
                "partition": one.partition,
                "committed_through": one.committed_through,
                "end": one.end,
                "lag": one.end - one.committed_through,
                "hanging": one.hanging,
            }
            for stream in self.streams
            for one in standing_of(self.engine, asset=stream.asset)
        ]

    def _closed(self, done: Done, left: Remaining, *, since: float) -> Done:
        with shared_reads(self.engine):
            failed = given_up(self.engine, assets=[stream.asset for stream in self.streams])
            done.given_up = {stream.name: failed[stream.asset] for stream in self.streams if stream.asset in failed}
            done.failed_slices = sum(done.given_up.values())
            for stream in (one for one in self.streams if one.name in done.given_up):
                stand = list_slices(
                    self.engine, stream=root_of(stream), asset=stream.asset, state="failed", limit=NAMED
                )
                done.given_up_slices[stream.name] = [str(one.key) for one in stand]
            done.remaining = left.offsets
            passed = timedelta(seconds=time.monotonic() - since)
            done.lost = lost_within(self.engine, passed, streams=[stream.name for stream in self.streams])
            if done.remaining:
                some = (waits(self.engine, asset=stream.asset, limit=SAID) for stream in self.streams)
                done.waits = [one.said() for found in some for one in found]
        return done

    def _step(self, done: Done) -> Tick:
        """A tick, and the runs that it asked for."""
        found = self._tick()
        done.troubles = [trouble for trouble in found.troubles if trouble not in found.given_up]
        for skipped in found.skipped:
            self._say(skipped)
        for event in found.events:
            self.instance.report_runless_asset_event(event)
        undone = {str(request.run_key) for request in found.requests}
        again = sum(_named(request) in self._failed for request in found.requests)
        if again:
            self._say(f"{again:,} runs that failed are tried again")
        repeated = 0
        try:
            for request in found.requests:
                failure = self.run(request)
                undone.discard(str(request.run_key))
                done.runs += 1
                if failure is None:
                    self._failed.discard(_named(request))
                    continue
                self._require_spark()
                self._failed.add(_named(request))
                repeated += all(reason in self._told for reason in failure.reasons)
                for reason in failure.reasons:
                    done.failures = [said for said in done.failures if said != reason] + [reason]
                    if reason not in self._told:
                        self._told.add(reason)
                        self._say(reason)
                if failure.untried:
                    self._withdraw([str(request.run_key)])
        except (KeyboardInterrupt, SparkUnavailable):
            self._withdraw(undone)
            raise
        if repeated:
            self._say(
                f"{repeated:,} runs failed as told above: what is not given up is tried again after a pause that grows"
            )
        return found

    def _withdraw(self, tokens: Collection[str]) -> None:
        """Have what no run has come to asked for again at once, and not a minute after it was asked for."""
        with suppress(Retryable):
            assets = [stream.asset for stream in self.streams]
            withdraw(self.engine, tokens, assets=assets, run_id=self._run_id)

    def _tick(self) -> Tick:
        self._asked = None  # what it said a tick ago may be past
        with shared_reads(self.engine):
            found = tick(
                [flushing(stream) for stream in self.streams],
                engine=self.engine,
                connection=lambda: Connection.of(self._settings),
                instance=lambda: self.instance,
                log=_log,
                cursor=self._cursor,
                caller=Caller(here=True, again=self._again, versions=self._versions, planned=self._ask_spark),
            )
        self._cursor, self._again = found.cursor, False
        return found

    def run(self, request: dg.RunRequest) -> Failed | None:
        """Carry out a run here; why it failed, if it did.

        Raises Stopped where somebody ended it, and SparkUnavailable where there is no Spark.
        """
        self._require_spark()
        assert self._job is not None
        assert request.asset_selection is not None
        first = request.tags[_FIRST]
        if _named(request) not in self._failed:
            self._say(f"landing {_named(request)}")
        run_id = str(uuid.uuid4())
        self._run_id = run_id
        with at_last(lambda: give_back(self.engine, run_id=run_id)):
            try:
                result = self._job.execute_in_process(
                    instance=self.instance,
                    run_config=self._run_config,
                    run_id=run_id,
                    asset_selection=list(request.asset_selection),
                    tags=dict(request.tags),
                    raise_on_error=False,
                )
            finally:
                if told_to_end() is not None:
                    with suppress(Retryable):  # a second signal may have met what gave them back
                        give_back(self.engine, run_id=run_id)
        interrupted = any(map(_interrupted, result.all_events))
        if interrupted or (told_to_end() and not result.success):
            # Dagster takes it for the worker's death, which its daemon might make up for by a retry.
            self.instance.report_run_canceled(result.dagster_run)
        end_if_told(interrupted=interrupted)
        if result.success:
            return None
        self._spark_met = False  # that may be why
        failed: list[Any] = [one for one in result.all_events if one.event_type_value == "STEP_FAILURE"]
        if not failed:  # it never came to its slices
            return Failed([f"{first}: ?"], divides=False)
        why = failed[-1].event_specific_data
        told: Mapping[str, Any] = {} if why.user_failure_data is None else why.user_failure_data.metadata
        reasons: list[str] = told[FAILED].value if FAILED in told else [f"{first}: {_reason(why)}"]
        untried: int = told[UNTRIED].value if UNTRIED in told else 0
        return Failed([" ".join(reason.split()) for reason in reasons], divides=_divides(why), untried=untried)

    def _require_spark(self) -> None:
        """Without one, all runs would fail, each in its turn: it is asked before the first, and after one failed."""
        spark = self._resources[SPARK]
        if not self._spark_met and isinstance(spark, SparkResource):
            asked, self._asked = self._asked, None
            spark.require() if asked is None else asked.result()
        self._spark_met = True

    def _ask_spark(self) -> None:
        """Ask a Spark Connect server from aside: it takes as long to answer as Dagster's instance to open."""
        spark = self._resources[SPARK]
        with suppress(SettingsError):  # none is known: who needs it says so
            if not self._spark_met and isinstance(spark, SparkResource) and spark.remote is not None:
                self._asked = answer = Future[None]()
                # Nobody waits for it at the end: a process that is told to end does so within seconds.
                threading.Thread(target=_answer, args=(answer, spark.require), name="spark", daemon=True).start()


def _answer(answer: Future[None], ask: Callable[[], None]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:  # noqa: BLE001 - a thread's edge: raised in the run's own
        answer.set_exception(error)


def _named(request: dg.RunRequest) -> str:
    """The slices that a run is asked for."""
    first, last = request.tags[_FIRST], request.tags[_LAST]
    return first + (f" … {last}" if last != first else "")


def _reason(failed: Any) -> str:
    """Why a step failed: the sentence that was told, or what was raised."""
    told, said = failed.user_failure_data, failed.error
    if told is not None and told.description:
        return told.description
    return "?" if said is None else (said.cause or said).message


def _divides(failed: Any) -> bool:
    """Whether a step's failure may be that of some of its slices; one that nobody judged is told by its name."""
    told, said = failed.user_failure_data, failed.error
    if told is not None and DIVIDES in told.metadata:
        return bool(told.metadata[DIVIDES].value)
    kind = None if said is None else getattr(errors, (said.cause or said).cls_name or "", None)
    return not (isinstance(kind, type) and issubclass(kind, errors.KafkaAssetsError)) or divides(kind(""))


def _interrupted(event: dg.DagsterEvent) -> bool:
    """Whether Dagster says by it that the run was ended, and not that it failed."""
    reason = getattr(event.event_specific_data, "failure_reason", None)
    canceled = event.event_type == dg.DagsterEventType.RUN_CANCELED
    return canceled or getattr(reason, "value", None) == "UNEXPECTED_TERMINATION"


def _home(settings: Settings) -> Path:
    """The Dagster instance that is told: the one that is set, else the project's own."""
    given = os.environ.get("DAGSTER_HOME")
    home = Path(given).expanduser() if given else settings.project / HOME
    if not given:
        write_instance(home)
    os.environ.setdefault("DAGSTER_HOME", str(home))
    return home
