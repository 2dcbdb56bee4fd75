"""Every error this package raises on purpose: what happened, why, and what to do.

An error is either :class:`Retryable` (the same work may succeed later, unchanged) or
:class:`Permanent` (it fails the same way until somebody acts). Which one it is, is its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class KafkaAssetsError(Exception):
    """The base of all errors of kafka_assets; never raised itself."""

    def __init__(self, what: str, *, why: str = "", cure: str = "") -> None:
        self.what = what
        self.why = why
        self.cure = cure
        super().__init__(what, why, cure)

    def __str__(self) -> str:
        return " · ".join(part for part in (self.what, self.why, self.cure) if part)


class Retryable(KafkaAssetsError):
    """The same work, unchanged, may succeed later."""


class Permanent(KafkaAssetsError):
    """The same work fails the same way until somebody acts."""


class Unready(Permanent):
    """Nothing of a stream can land as it is declared, or as its table is: whatever slice is tried, it fails by this.

    So it is no slice's fault, and none is given up for it: the declaration, the table or a right has to change.
    """


class UsageError(Permanent):
    """The command line was used wrongly (exit code 2)."""


class SettingsError(Unready):
    """A setting is missing, or says what cannot be."""


class SettingWrong(SettingsError, UsageError):
    """What is set is no setting, cannot be read as one, or has a value that none can have (exit code 2)."""


class StreamError(Unready):
    """A stream's declaration contradicts itself, or names what does not exist."""


class KeysUnknown(Permanent):
    """A Dagster key, or a run's set of keys, is not what the ledger and the plan know."""


class ServiceError(Permanent):
    """A local service of the devstack could not be fetched, started or stopped."""


class BrokerUnavailable(Retryable):
    """No broker answered in time."""


class BrokerRefused(Permanent):
    """The broker answered, and said no."""


class RecordRefused(Permanent):
    """One record cannot be written as it is; the producer lives on."""


class HeadersUnreadable(Permanent):
    """A record's headers cannot be told; its key and value can."""


class DeliveryFailed(Retryable):
    """A record was not acknowledged, for a reason that may pass; it may be in the topic nevertheless."""


class QueueFull(Retryable):
    """The producer's queue stayed full for as long as the caller wanted to wait; the record was not taken."""


class TransactionMustAbort(Retryable):
    """The transaction can only be aborted; the same records may go into a new one."""


class ProducerFinished(Permanent):
    """The producer takes nothing more: it was fenced, closed, or failed for good."""


class Undelivered(Permanent):
    """Records were not acknowledged, and somebody must decide: `failures` holds each with its own error."""

    def __init__(self, what: str, *, why: str = "", cure: str = "", failures: Sequence[Any] = ()) -> None:
        super().__init__(what, why=why, cure=cure)
        self.failures = failures


class TopicMissing(Permanent):
    """The topic does not exist on the broker."""


class GroupMissing(Permanent):
    """The consumer group does not exist on the broker."""


class GroupRefused(Permanent):
    """The consumer group does not take this member: another assignor, protocol, or the instance id of another."""


class CommitFailed(Retryable):
    """Kafka did not take a group's offsets; what they stood for is done again."""

    def __init__(self, what: str, *, why: str = "", cure: str = "", moved_on: bool = False) -> None:
        super().__init__(what, why=why, cure=cure)
        self.moved_on = moved_on
        """Whether the group has given the partitions to another member: it does them again."""


class TopicChanged(Retryable):
    """The topic was deleted and created again while it was being looked at."""


class OffsetsExpired(Permanent):
    """Retention took records before they were read, and the policy is to fail."""


class Truncated(Permanent):
    """The topic ends below what was already planned, under the same topic id."""


class NotCaughtUp(Permanent):
    """Not all that was there at the beginning is committed, and nothing moves any more."""


class SparkUnavailable(Retryable):
    """Spark, or its session, is gone, or the way to it."""


class WorkersUnfit(Unready):
    """The Python of Spark's workers cannot run what a query carries: its version, or a package that it lacks."""


class LedgerMissing(Permanent):
    """The database has no ledger, or one of another version."""


class LedgerBusy(Retryable):
    """A lock was not to be had in time, a deadlock was broken, or the database restarted."""


class DiskFull(Retryable):
    """There is no room on this machine for what must be kept until it is committed."""


class DatabaseRefused(Unready):
    """The database answered, and said no: its user lacks a right."""


class LeaseHeld(Retryable):
    """Another run holds a live lease on the slice."""


class Fenced(Permanent):
    """Another attempt took the slice over; this one rolled back."""


class OutcomeUnknown(Retryable):
    """The connection was lost during COMMIT, and the answer could not be had afterwards."""


class UpstreamChanged(Retryable):
    """What a downstream asset reads is not committed yet, or was replayed while it was read."""


class SliceRefused(Permanent):
    """The slice is lost or skipped, or is not what the ledger says it is."""


class SliceFailed(Permanent):
    """The slice cannot be landed as it is: too many bad records, or one where none is allowed."""

    def __init__(self, what: str, *, why: str = "", cure: str = "", bad: Sequence[Any] = ()) -> None:
        super().__init__(what, why=why, cure=cure)
        self.bad = tuple(bad)
        """Some of those records, each with its reason and its bytes: nothing of them is in quarantine."""


class RowsRefused(SliceFailed):
    """The table refuses rows, and not for the fault of single records: those would be quarantined."""


class KeyMoved(SliceFailed):
    """A key of an upsert table that is ordered by offset was met in two partitions, whose offsets do not compare."""


class CountsDisagree(Permanent):
    """What was read, landed and quarantined does not add up; nothing was committed."""


class ChunkTooLarge(Permanent):
    """Records are so large that a chunk of them does not pass through Spark's driver."""


class RecordsChanged(Retryable):
    """Records that had been there were not there when they were read; nothing was committed."""


class RecordsDamaged(Permanent):
    """What Kafka gives for some offsets are no records: a disk or a network has changed them."""


class TableIncompatible(Unready):
    """The target table cannot hold what the stream delivers."""
