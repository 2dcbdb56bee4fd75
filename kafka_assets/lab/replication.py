"""What a cluster of three brokers loses and doubles, with producers as careful as you let them be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kafka_assets.lab.brokers import Brokers, Say
from kafka_assets.lab.outcome import Outcome
from kafka_assets.lab.rounds import alone_in_sync, alone_on_disk, answer_lost

Round = Callable[[Brokers, int, Say], list[Outcome]]

ROUNDS: Mapping[str, Round] = {
    "leader-killed": alone_on_disk,
    "out-of-sync": alone_in_sync,
    "answer-lost": answer_lost,
}


def replication(
    brokers: Brokers, *, rounds: Sequence[str], records: int, say: Say = lambda what: None
) -> list[Outcome]:
    """Run these rounds, one after the other, on brokers that may be frozen and killed."""
    found: list[Outcome] = []
    for number, name in enumerate(rounds, start=1):
        where = f"round {number} of {len(rounds)}, {name}"
        outcomes = ROUNDS[name](brokers, records, lambda what, where=where: say(f"{where}: {what}"))
        found += [replace(one, more={"round": name, **one.more}) for one in outcomes]
    return found
