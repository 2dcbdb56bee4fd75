"""Whether a stream is well: what the ledger and the broker say of it, judged. Each verdict says its cure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

HANGING_MS = 15 * 60_000
"""Kafka's own limit for a transaction (transaction.max.timeout.ms): an older one was left behind."""
HEADROOM = 0.1
"""Less than this part of the retention time left, and somebody should look now."""
ASKED_OFTEN = 10
UNSEEN_MS = 2 * 60_000
"""For so long nobody may look at a topic, and a broker be away, before that is a failure and no pause."""

NAMES = (
    "no_gaps", "exact_counts", "lag", "quarantine_ratio", "retention_headroom", "hanging_transaction", "stuck_slices",
    "planning",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """One check's answer: numbers to plot, and what to do where it is no."""

    name: str
    passed: bool
    said: str
    numbers: Mapping[str, int | float] = field(default_factory=dict[str, "int | float"])
    known: bool = True
    """False where nobody answered who could tell: then it has not passed, and nothing is wrong for certain."""

    def unless(self, silent: str | None) -> Verdict:
        """This, where it is certain without those who did not answer; else that they did not, and why."""
        if silent is None or not self.passed:
            return self
        return replace(self, passed=False, known=False, said=f"the broker did not answer, so nobody knows: {silent}")


@dataclass(frozen=True)
class Place:
    """One partition of a stream as the ledger has it; `tail` is what lies above committed_through."""

    topic: str
    partition: int
    planned_through: int
    committed_through: int
    log_start: int
    last_stable: int
    high_watermark: int
    tail_offsets: int = 0
    """So many offsets are in its slices, as far as was looked; `tail_through` is where the last of those ends."""
    tail_through: int | None = None
    tail_end: int | None = None
    """Where the newest slice ends."""
    tail_uncommitted_from: int | None = None
    waits_ms: int = 0
    """Since when the oldest of what waits has waited: to be planned, or to be committed."""
    topic_id: str = ""
    looked_ms: int = 0
    """How long ago somebody last asked the broker where it ends; 0 while a live consumer holds it."""
    moved_ms: int = 0
    """How long ago that was, or something of it was committed."""

    def now(self, *, log_start: int, last_stable: int, high_watermark: int) -> Place:
        """The same, as the broker says that it is at this moment."""
        return replace(self, log_start=log_start, last_stable=last_stable, high_watermark=high_watermark)

    @property
    def unseen(self) -> bool:
        """Whether records wait that nobody plans: what waits since then, no ledger knows."""
        return self.last_stable > self.planned_through

    @property
    def lag(self) -> int:
        return max(0, self.last_stable - self.committed_through)

    @property
    def named(self) -> str:
        return f"{self.topic}:{self.partition}"


@dataclass(frozen=True)
class Recent:
    """A slice that was committed lately: what its books say, and what stands in the tables."""

    key: str
    records_read: int
    quarantined: int
    rows_written: int
    rows_found: int | None
    quarantine_found: int


@dataclass(frozen=True)
class Waiting:
    """What is not committed: how much, how much of it was given up or asked for in vain, and why."""

    slices: int = 0
    failed: int = 0
    asked_often: int = 0
    reason: str = ""
    stalled: str | None = None
    """What keeps all of them from landing, and is no slice's fault."""


def no_gaps(places: Sequence[Place], *, below: int, found: Sequence[str] = ()) -> Verdict:
    """`below`: uncommitted slices under committed_through; `found`: what kafka_gap says, where it was asked."""
    wrong = [*found]
    for one in places:
        expected = (one.planned_through if one.tail_through is None else one.tail_through) - one.committed_through
        reached = one.committed_through if one.tail_end is None else one.tail_end
        if one.tail_offsets != expected or reached != one.planned_through:
            wrong.append(f"{one.named}: slices cover {one.tail_offsets} of the {expected} offsets that wait")
        elif expected and one.tail_uncommitted_from != one.committed_through:
            wrong.append(f"{one.named}: committed_through is {one.committed_through}, and not what it should be")
    if below:
        wrong.append(f"{below} slices below committed_through are not committed")
    said = "every offset lies in one slice, and committed_through is right"
    if wrong:
        said = (
            f"{wrong[0]}{f' (and {len(wrong) - 1} more)' if len(wrong) > 1 else ''} · this must never be: somebody "
            "changed the ledger's tables, or it is a bug · select * from kafka_gap shows all; please report it"
        )
    return Verdict("no_gaps", not wrong, said, {"gaps": len(wrong), "partitions": len(places)})


def exact_counts(recent: Sequence[Recent]) -> Verdict:
    wrong = [
        one
        for one in recent
        if (one.rows_found is not None and one.rows_found != one.rows_written)
        or one.quarantine_found != one.quarantined
    ]
    numbers = {
        "slices_counted": len(recent),
        "rows_counted": sum(one.rows_found or 0 for one in recent),
        "slices_that_differ": len(wrong),
    }
    if not wrong:
        return Verdict("exact_counts", True, "the table has the rows that its newest slices committed", numbers)
    one = wrong[0]
    return Verdict(
        "exact_counts",
        False,
        f"slice {one.key} committed {one.rows_written} rows and {one.quarantined} bad records, and there are "
        f"{one.rows_found} and {one.quarantine_found} · somebody changed the table or the quarantine by hand · "
        "materialize these keys again, which replaces their rows",
        numbers,
    )


def lag(
    places: Sequence[Place], *, max_lag_ms: int, skipped: int = 0, gone: Collection[str] = (), failure: str = ""
) -> Verdict:
    """`skipped`: offsets that were left out lately, and wait no more; `gone`: topics that the broker does not show;
    `failure`: what the last run said that failed at what waits."""
    waited = max((one.waits_ms for one in places if one.lag), default=0)
    offsets = sum(one.lag for one in places)
    numbers = {
        "lag_offsets": offsets,
        "waited_seconds": waited / 1000,
        "max_lag_seconds": max_lag_ms / 1000,
        "skipped_offsets": skipped,
    }
    left_out = f" · {skipped} others were skipped lately (`kafka-assets slices` says why)" if skipped else ""
    left_out += _of_gone(places, gone)
    if waited <= max_lag_ms:
        return Verdict("lag", True, f"{offsets} offsets wait, since {waited / 1000:.0f} s at most{left_out}", numbers)
    worst = max((one for one in places if one.lag), key=lambda one: one.waits_ms)
    failed = f" · a run of it failed: {failure[:300]}" if failure else ""
    return Verdict(
        "lag",
        False,
        f"{offsets} offsets wait, some of {worst.named} since {waited / 1000:.0f} s · runs are too slow or fail, or "
        "the sensor or the daemon is off · look at the sensor kafka_slices, at failed runs, and at stuck_slices"
        + failed
        + left_out,
        numbers,
    )


def planning(
    places: Sequence[Place], *, max_lag_ms: int = 0, gone: Collection[str] = (), silent: str | None = None
) -> Verdict:
    """Whether somebody looks at what comes: where nobody does, nothing is planned, and all that is planned is landed.

    `max_lag_ms`: who may land so late may look as seldom, as cron does; `gone`: topics that the broker does not show;
    `silent`: why it does not answer.
    """
    looked: dict[str, int] = {}
    for one in places:  # a sensor asks for all partitions at once, and leaves out those that are being committed
        looked[one.topic] = min(one.looked_ms, looked.get(one.topic, one.looked_ms))
    worst = max(looked, key=lambda topic: looked[topic], default=None)
    ago = 0 if worst is None else looked[worst]
    missing = sorted(looked.keys() & set(gone))
    numbers = {"looked_seconds": ago / 1000, "topics_gone": len(missing)}
    if worst is None:
        said = (
            "nobody has met a topic of it yet · the sensor kafka_slices has not ticked, or its ticks say why · "
            "`kafka-assets plan` tries it by hand"
        )
        return Verdict("planning", False, said, numbers, known=False)
    if missing:
        said = (
            f"the broker does not show {', '.join(missing[:5])}{f' and {len(missing) - 5} more' * (len(missing) > 5)}"
            " · deleted, or this user may not see it any more, so nothing of it is planned · create it again or give "
            "the user its rights; if it is to stay away, take its stream out"
        )
        return Verdict("planning", False, said, numbers)
    if ago <= max(UNSEEN_MS, max_lag_ms):
        return Verdict("planning", True, f"somebody looked {ago / 1000:.0f} s ago", numbers).unless(silent)
    if silent is not None:
        said = f"nothing was planned of {worst} for {ago / 1000:.0f} s · the broker does not answer: {silent}"
        return Verdict("planning", False, said, numbers)
    said = (
        f"nobody has looked at {worst} for {ago / 1000:.0f} s, so what comes is not planned · the sensor kafka_slices "
        "is off, its ticks fail, or no dagster-daemon runs · turn it on (Automation, kafka_slices) and look at its "
        "last tick; without a daemon, `kafka-assets run` plans and lands"
    )
    return Verdict("planning", False, said, numbers)


def _of_gone(places: Sequence[Place], gone: Collection[str]) -> str:
    """What can be done about offsets whose topic is not there: nothing lands them, and no skip reaches them all."""
    unread = {one.topic: 0 for one in places if one.topic in gone and one.lag}
    if not unread:
        return ""
    count = sum(one.lag for one in places if one.topic in unread)
    return (
        f" · {count} of them are of {', '.join(sorted(unread)[:5])}, which the broker does not show: if it was "
        "deleted, create it again, if only until the sensor has seen it: what it left unread is then recorded as lost"
    )


def quarantine_ratio(recent: Sequence[Recent], *, max_bad_ratio: float) -> Verdict:
    read, bad = sum(one.records_read for one in recent), sum(one.quarantined for one in recent)
    ratio = bad / read if read else 0.0
    numbers = {"quarantined": bad, "records_read": read, "ratio": ratio, "max_bad_ratio": max_bad_ratio}
    said = f"{bad} of the {read} records read lately could not become rows"
    if ratio > max_bad_ratio:
        said += " · the producer or the schema changed · `kafka-assets quarantine list` counts them by what is wrong"
    return Verdict("quarantine_ratio", ratio <= max_bad_ratio, said, numbers)


def retention_headroom(
    places: Sequence[Place], *, retention_ms: Mapping[str, int | None], oldest_ms: Mapping[str, int], now_ms: int
) -> Verdict:
    """`retention_ms`: per topic, None where nothing expires by age; `oldest_ms`: when each first waiting record was."""
    expired = [one for one in places if one.log_start > one.committed_through]
    lost = sum(one.log_start - one.committed_through for one in expired)
    left: dict[str, float] = {}
    for one in places:
        keeps = retention_ms.get(one.topic)
        if one.lag and keeps is not None and one.named in oldest_ms:
            left[one.named] = (oldest_ms[one.named] + keeps - now_ms) / 1000
    numbers: dict[str, int | float] = {"expired_offsets": lost}
    silent = sum(one.lag > 0 and retention_ms.get(one.topic) is not None and one.named not in left for one in places)
    if silent:
        numbers["unanswered_partitions"] = silent
    if left:
        numbers["headroom_seconds"] = min(left.values())
    if expired:
        said = (
            f"{lost} offsets of {expired[0].named} expired before they were committed · retention is shorter than what "
            "landing took · declare on_expired: record to write that down and go on, and lengthen retention.ms"
        )
        return Verdict("retention_headroom", False, said, numbers)
    tight = [
        one
        for one in places
        if one.named in left and left[one.named] < HEADROOM * (retention_ms[one.topic] or 0) / 1000
    ]
    if not tight:
        said = "nothing that waits is about to expire"
        if silent:
            said += f", as far as is known: of {silent} partitions the broker did not tell how old their next record is"
        return Verdict("retention_headroom", True, said, numbers)
    return Verdict(
        "retention_headroom",
        False,
        f"records of {tight[0].named} that are not committed expire in {left[tight[0].named]:.0f} s · what keeps them "
        "from being landed is slower than retention · lengthen the topic's retention.ms now, then cure the lag",
        numbers,
    )


def hanging_transaction(places: Sequence[Place], *, since_ms: Mapping[str, int], now_ms: int) -> Verdict:
    """`since_ms`: the time of the first record that an open transaction holds back, per partition."""
    held = sum(max(0, one.high_watermark - one.last_stable) for one in places)
    age = {one.named: now_ms - since_ms[one.named] for one in places if one.named in since_ms}
    oldest = max(age, key=lambda name: age[name], default=None)
    seconds = 0.0 if oldest is None else age[oldest] / 1000
    numbers = {"held_back_offsets": held, "open_seconds": seconds}
    if oldest is None or age[oldest] <= HANGING_MS:
        return Verdict("hanging_transaction", True, f"{held} offsets wait for open transactions", numbers)
    return Verdict(
        "hanging_transaction",
        False,
        f"a transaction on {oldest} has been open for {seconds:.0f} s, and nothing behind it can be read · its "
        "producer hangs or died · end the producer, or run kafka-transactions.sh find-hanging, then abort",
        numbers,
    )


def stuck_slices(waiting: Waiting) -> Verdict:
    numbers = {"waiting": waiting.slices, "failed": waiting.failed, "asked_often": waiting.asked_often}
    if waiting.slices and waiting.stalled is not None:
        said = f"{waiting.slices} slices wait, and none can land: {waiting.stalled[:500]}"
        return Verdict("stuck_slices", False, f"{said} · cure it: they land within minutes then", numbers)
    if not waiting.failed and not waiting.asked_often:
        return Verdict("stuck_slices", True, f"{waiting.slices} slices wait, none of them in vain", numbers)
    said = f"{waiting.failed} slices were given up, {waiting.asked_often} were asked for {ASKED_OFTEN} times and more"
    why = f" · the last reason: {waiting.reason}" if waiting.reason else ""
    cure = "cure it, then `kafka-assets replay` with --failed, or materialize these keys by hand"
    return Verdict("stuck_slices", False, f"{said}{why} · {cure}", numbers)
