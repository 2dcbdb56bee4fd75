"""A member of a group, as a process of its own: it handles records, says which, and commits now and then."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from kafka_assets.broker.client_partitions import place_of
from kafka_assets.broker.groups import describe_group
from kafka_assets.broker.membership import Membership
from kafka_assets.broker.rebalances import Place
from kafka_assets.broker.subscription import Subscription
from kafka_assets.errors import Retryable
from kafka_assets.lab.child import Parent

COMMIT_EVERY = 1.0
"""What was handled since the last commit is handled again when the member dies."""


def main() -> None:
    """Run until told to leave."""
    parent = Parent()
    connection, group = parent.connection, parent.task["group"]
    handled: dict[Place, int] = {}

    def assigned(places: Sequence[Place]) -> dict[Place, int]:
        known = describe_group(connection, group).offsets
        parent.say("assigned", at=time.time(), partitions=[number for _, number in places])
        return {place: known.get(place, 0) for place in places}

    def commit(places: Sequence[Place]) -> None:
        done = {place: handled[place] for place in places if place in handled}
        # While the group is arranged anew it takes no offsets: they are told later, or what was done is done again.
        with suppress(Retryable):
            member.commit(done)
            for place in done:
                del handled[place]
            parent.say("committed", at=time.time())

    def forget(places: Sequence[Place]) -> None:
        for place in places:
            handled.pop(place, None)

    def revoked(places: Sequence[Place]) -> None:
        commit(places)
        forget(places)
        parent.say("revoked", at=time.time(), partitions=[number for _, number in places])

    def lost(places: Sequence[Place]) -> None:
        forget(places)
        parent.say("lost", at=time.time(), partitions=[number for _, number in places])

    membership = Membership(group, **parent.task["membership"])
    committed = time.monotonic()
    with Subscription(
        connection, [parent.task["topic"]], membership, on_assign=assigned, on_revoke=revoked, on_lost=lost
    ) as member:
        while not parent.told():
            offsets: dict[int, list[int]] = defaultdict(list)
            for message in member.consume(500, timeout=0.1):
                place, offset = place_of(message), message.offset() or 0
                offsets[place[1]].append(offset)
                handled[place] = offset + 1
            if offsets:
                parent.say("handled", at=time.time(), offsets=offsets)
            if time.monotonic() - committed > COMMIT_EVERY:
                commit(list(handled))
                committed = time.monotonic()


if __name__ == "__main__":
    main()
