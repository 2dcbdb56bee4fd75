"""Whose fault a failed run is: what that decides is counted, waited for, tried again by one run, or told to nobody."""

from __future__ import annotations

from enum import Enum

from pyspark.errors import AnalysisException

from kafka_assets.assets.ending import ended
from kafka_assets.errors import (
    BrokerRefused,
    LeaseHeld,
    RecordsChanged,
    Retryable,
    TopicChanged,
    Unready,
    UpstreamChanged,
)


class Fault(Enum):
    """What a failure is put down to."""

    NOBODY = "nobody"
    """Somebody ended the run."""
    PASSING = "passing"
    """It passes by itself: the slices wait a while."""
    STREAM = "stream"
    """The declaration, the table or a right: no slice can land, and none is given up for it."""
    SLICE = "slice"
    """The slice, as far as anybody can tell: it is given up when it has failed alone too often."""


_OF_SOME = (LeaseHeld, RecordsChanged, TopicChanged, UpstreamChanged)
"""They pass by themselves, and what they say is of some of a run's slices: the others are not concerned."""


def divides(error: BaseException) -> bool:
    """Whether some of the run's slices may land without the others, where all of them together met this."""
    return isinstance(error, _OF_SOME) or fault_of(error) is Fault.SLICE


def fault_of(error: BaseException) -> Fault:
    """Whose fault it is that this was raised while a run landed slices."""
    if ended(error):
        return Fault.NOBODY
    if isinstance(error, Retryable):
        return Fault.PASSING
    # Spark looks at a query's names and types before it reads a record: the function is wrong for all of them. And what
    # the broker refuses a run is a right.
    return Fault.STREAM if isinstance(error, Unready | AnalysisException | BrokerRefused) else Fault.SLICE
