"""What programs are made of: how runs go about their work, where they stop, and what happens to them."""

from __future__ import annotations

from hypothesis import strategies as st

from kafka_assets_tests.properties.attempts import Plan
from kafka_assets_tests.properties.stepping import ENDS, POINTS

PARTITIONS = 2
LONGEST = 12
OUTSIDE = ("claim read", "chunk", "confirmed", "registered", "asking")
"""Where a run may stand still on SQLite: it holds no lock there, `chunk` and `confirmed` come before its BEGIN."""
INSIDE = ("locked", "deleted", "cleared", "quarantined", "reduced")
"""Where it may besides on a server: up to the locks that others wait for."""
BUSY = ("registered", "locked", "deleted", "quarantined", "judged", "merged", "verified", "marked", "advanced")

often = st.sampled_from([True, True, True, False])
seldom = st.sampled_from([False, False, False, True])
rarely = st.sampled_from([False] * 9 + [True])
plans = st.builds(
    Plan,
    replaces=st.booleans(),
    claims_by_force=st.booleans(),
    shrinks_by_force=seldom,
    lease_has_ended=seldom,
    records=st.text("rrrrddbf-mx", min_size=5, max_size=5),
    expired=st.sampled_from([0, 0, 0, 2]),
    on_bad=st.sampled_from(["quarantine", "quarantine", "quarantine", "fail"]),
    stops=st.lists(st.sampled_from((*OUTSIDE, *INSIDE)), min_size=1, max_size=2, unique=True).map(tuple) | st.just(()),
    kill_at=st.sampled_from((None,) * 2 * len(POINTS) + POINTS),
    busy_at=st.sampled_from((None,) * 2 * len(BUSY) + BUSY),
    commit=st.sampled_from((None,) * 2 * len(ENDS) + ENDS),
    tells_its_end=often,
)
arrivals = st.lists(st.integers(0, LONGEST), min_size=PARTITIONS, max_size=PARTITIONS)
sizes = st.lists(st.integers(1, 6), min_size=1, max_size=3)
few = st.integers(0, 7)
