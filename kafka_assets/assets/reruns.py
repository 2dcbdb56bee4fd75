"""What a run does with a slice that is committed already: nothing, or it replaces what that has.

Dagster copies the tags of a run to those that execute it again, the sensor's token with them. Who asked for one
of these, a person or Dagster's own retries, is told by two tags that it sets itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import dagster as dg

from kafka_assets.assets.names import TOKEN_TAG

PARENT_TAG = "dagster/parent_run_id"
ROOT_TAG = "dagster/root_run_id"
RETRY_TAG = "dagster/retry_number"
"""Only on Dagster's automatic retries: who executes one of them by hand does not get it."""
AUTOMATION_TAG = "dagster/from_automation_condition"
"""On what Dagster asks for by itself, because of an automation condition."""


@dataclass(frozen=True)
class Asked:
    """What was asked of a run."""

    replaces: bool
    """False where no person asked for it, but the sensor or an automation condition: what is committed stays."""
    keeps: frozenset[str] = field(default_factory=frozenset[str])
    """Runs whose results stay all the same: this one tries again what they were asked for, and they have done it."""


def asked_of(tags: Mapping[str, str], *, run_of: Callable[[str], dg.DagsterRun | None]) -> Asked:
    """What was asked of a run with these tags; an automatic retry was asked what the run was that it tries again.

    A backfill that died before its COMMIT still replaces in its retry, and one that died after it has done so.
    """
    tried: set[str] = set()
    while RETRY_TAG in tags and (parent := tags.get(PARENT_TAG)) is not None and parent not in tried:
        tried.add(parent)
        run = run_of(parent)
        if run is None:  # deleted: then its tags are all that is left of the first one
            tried.add(tags.get(ROOT_TAG, parent))
            break
        tags = run.tags
    by_hand = PARENT_TAG in tags and RETRY_TAG not in tags
    # A condition, `on_cron` for example, asks for every partition that there is, each time: nobody means a replay.
    by_itself = TOKEN_TAG in tags or AUTOMATION_TAG in tags
    return Asked(replaces=by_hand or not by_itself, keeps=frozenset(tried))
