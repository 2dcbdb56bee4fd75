"""Benchmarks: figures beside the limit that was measured in the same run, since a machine is never the same twice."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from kafka_assets import devstack
from kafka_assets.audit.bulk import bulk_limit, means_of
from kafka_assets.audit.generated import Orders, fresh_table, planned_slice, publish_orders
from kafka_assets.audit.scratch import scratch_ledger
from kafka_assets.errors import UsageError
from kafka_assets.ledger.schema import dialect_name
from kafka_assets.settings import Settings
from kafka_assets.sinks.road import road_for

ROUNDS = 3
"""Limit and publisher take turns, and the middle one counts: caches, and neighbours on the machine, favour neither."""
SERVERS = ("postgresql", "mariadb", "mysql")


@dataclass(frozen=True)
class Figure:
    """One measurement; `ratio` is its value to that of the figure that `against` names."""

    name: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None


def database_url(settings: Settings, named: str | None) -> str:
    """The URL that is meant by a URL, by the name of a database, or by nothing: the one in the settings."""
    if named is None:
        return settings.database_url
    if "://" in named:
        return named
    if named == "sqlite":
        return f"sqlite:///{settings.state / 'bench.db'}"
    if named not in SERVERS:
        raise UsageError(
            f"there is no database {named!r}", cure=f"name one of sqlite, {', '.join(SERVERS)}, or give a URL"
        )
    for service in devstack.status(settings.state):
        if service.name == named and service.state == "ready":
            return service.url
    raise UsageError(
        f"{named} is not up",
        why=f"no service of that name is ready in {settings.state}",
        cure=f"run `kafka-assets up --with {named}`, or give the URL of a database of yours",
    )


def bench_publish(url: str, *, records: int, say: Callable[[str], None] = lambda what: None) -> list[Figure]:
    """What one publishing transaction takes: rows per second, beside the database's own limit."""
    orders = Orders(records)
    next(orders.tables())  # the values that all chunks share are made before any clock runs
    limits, published = list[float](), list[float]()
    with scratch_ledger(url) as engine:
        road = road_for(engine)
        database, means = dialect_name(engine), means_of(engine.dialect.name)
        for number in range(1, ROUNDS + 1):
            say(f"round {number} of {ROUNDS}: what {database} takes at most")
            limit = fresh_table(engine, road, f"limit_{number}")
            limits.append(records / bulk_limit(engine, road, limit, orders.tables()))
            say(f"round {number} of {ROUNDS}: the publisher")
            target = fresh_table(engine, road, f"orders_{number}")
            key = planned_slice(engine, asset=target.name, records=records)
            began = time.perf_counter()
            publish_orders(engine, road, target, orders, key)
            published.append(records / (time.perf_counter() - began))
    limit_name = f"{database}: {means}"
    value, against = statistics.median(published), statistics.median(limits)
    return [
        Figure(limit_name, round(against), "rows/s"),
        Figure(f"{database}: one slice published", round(value), "rows/s", limit_name, round(value / against, 3)),
    ]
