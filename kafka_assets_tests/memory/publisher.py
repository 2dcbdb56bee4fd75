"""A publisher in a process of its own, which says how much memory it took: `python -m … URL RECORDS`."""

from __future__ import annotations

import resource
import subprocess
import sys

from kafka_assets.audit.generated import Orders, fresh_table, planned_slice, publish_orders
from kafka_assets.audit.scratch import scratch_ledger
from kafka_assets.sinks.road import road_for


def peak_megabytes(url: str, records: int) -> float:
    """The peak of a fresh process that publishes one slice of so many records."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, url, str(records)], capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return float(done.stdout)


def main(url: str, records: int) -> None:
    with scratch_ledger(url) as engine:
        road = road_for(engine)
        table = fresh_table(engine, road, "orders")
        key = planned_slice(engine, asset=table.name, records=records)
        [one] = publish_orders(engine, road, table, Orders(records), key)
        assert one.outcome is not None
        assert one.outcome.landed == records
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
