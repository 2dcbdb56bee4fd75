"""Three ways in which brokers lose or double what producers send. Each is arranged, so that it happens each time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager

from kafka_assets.broker.leadership import NOBODY, Leadership, leaderships
from kafka_assets.broker.listing import topic_offsets
from kafka_assets.broker.topics import create_topic, delete_topic
from kafka_assets.errors import BrokerUnavailable, KafkaAssetsError
from kafka_assets.lab.brokers import Brokers, Say
from kafka_assets.lab.outcome import Outcome
from kafka_assets.lab.waiting import until
from kafka_assets.lab.writers import Mode, Writer

PREFIX = "kafka_assets_lab_"
FETCH_WAIT = 1.0
"""Seconds after which a leader has answered every fetch that it held back (replica.fetch.wait.max.ms is half)."""
OFTEN = {"socket.timeout.ms": "1000"}
"""A producer that gives up waiting for an answer after a second; by default it is a minute."""

ALONE_ON_DISK = (Mode("acks=0", "0", idempotence=False), Mode("acks=1", "1", idempotence=False), Mode("acks=all"))
ALONE_IN_SYNC = (
    Mode("acks=all, min.isr=1, unclean", min_in_sync=1, unclean=True),
    Mode("acks=all, min.isr=1", min_in_sync=1),
    Mode("acks=all, min.isr=2", min_in_sync=2),
)
ANSWER_LOST = (
    Mode("acks=1, idempotence off", "1", idempotence=False, properties=OFTEN),
    Mode("acks=all, idempotence off", idempotence=False, properties=OFTEN),
    Mode("acks=all, idempotence on", properties=OFTEN),
)


def alone_on_disk(brokers: Brokers, records: int, say: Say) -> list[Outcome]:
    """The leader dies with records that no follower has fetched yet: what was acknowledged too early is gone."""
    victim, *followers = brokers.nodes
    survivor = brokers.connection(followers[0])
    with _writers(brokers, ALONE_ON_DISK, [victim, *followers], records) as writers:
        _freeze_after_fetches(brokers, followers, say)
        hasty = [one for one in writers if one.mode.acks != "all"]
        for writer in writers:
            writer.send(records - records // 2)
        _all_answered(hasty)
        told = {one.topic: len(one.acknowledged) for one in writers}
        say(f"killing the leader, kafka-{victim}; {sum(told.values()):,} records are acknowledged by now")
        brokers.kill(victim)
        brokers.wake(*followers)
        topics = [one.topic for one in writers]
        until(lambda: all(one.leader in followers for one in _led(brokers, topics, followers[0])), "a new leader")
        say("the new leader answers; the last acknowledgements come in")
        _all_answered(writers)
        _restart(brokers, topics, say)
        return [one.outcome(survivor, acknowledged_before=told[one.topic]) for one in writers]


def alone_in_sync(brokers: Brokers, records: int, say: Say) -> list[Outcome]:
    """The only other replica stands still until it is out of sync, and the leader dies: who may take over?"""
    victim, follower, witness = brokers.nodes
    reader = brokers.connection(witness)
    with _writers(brokers, ALONE_IN_SYNC, [victim, follower], records) as writers:
        topics = [one.topic for one in writers]
        say(f"freezing the follower, kafka-{follower}, until it is out of sync")
        brokers.freeze(follower)
        until(
            lambda: all(one.in_sync == (victim,) for one in _led(brokers, topics, witness)),
            "the leader is alone in sync",
        )
        for writer in writers:
            writer.send(records - records // 2)
        _all_answered([one for one in writers if one.mode.min_in_sync == 1])
        told = {one.topic: len(one.acknowledged) for one in writers}
        say(f"killing the leader, kafka-{victim}, and waking the follower")
        brokers.kill(victim)
        brokers.wake(follower)
        until(lambda: _taken_over(brokers, writers, follower, asked=witness), "the follower leads what it may lead")
        leaders = {one.topic: _led(brokers, [one.topic], witness)[0].leader for one in writers}
        _restart(brokers, topics, say)
        _all_answered(writers)
        return [
            one.outcome(
                reader,
                acknowledged_before=told[one.topic],
                led_meanwhile=leaders[one.topic] != NOBODY,
            )
            for one in writers
        ]


def answer_lost(brokers: Brokers, records: int, say: Say) -> list[Outcome]:
    """The leader stands still for longer than the producer waits for its answer: the request is sent again."""
    leader = brokers.nodes[0]
    with _writers(brokers, ANSWER_LOST, list(brokers.nodes), records) as writers:
        say(f"freezing the leader, kafka-{leader}, until each producer has given up waiting")
        brokers.freeze(leader)
        for writer in writers:
            writer.send(records - records // 2)
        for writer in writers:
            writer.answered(0.01)  # nothing lingers any more
        before = {one.topic: one.timeouts for one in writers}
        until(lambda: _timed_out(writers, before), "each producer has given up a request", every=0.0)
        say("waking it: it writes what it was sent, and what it is sent again")
        brokers.wake(leader)
        _all_answered(writers)
        survivor = brokers.connection(leader)
        return [
            one.outcome(
                survivor,
            )
            for one in writers
        ]


def _taken_over(brokers: Brokers, writers: Sequence[Writer], follower: int, *, asked: int) -> bool:
    """Under unclean election it leads; elsewhere it may, or nobody does."""
    for writer in writers:
        [found] = _led(brokers, [writer.topic], asked)
        if found.leader != follower and (writer.mode.unclean or found.leader != NOBODY):
            return False
    return True


def _timed_out(writers: Sequence[Writer], before: dict[str, int]) -> bool:
    for writer in writers:
        writer.listen(0.05)
    return all(one.timeouts > before[one.topic] for one in writers)


@contextmanager
def _writers(brokers: Brokers, modes: Sequence[Mode], replicas: list[int], records: int) -> Generator[list[Writer]]:
    """A topic and a producer for each mode, the first half of the records written in peace."""
    name = PREFIX + secrets.token_hex(4)
    everybody = brokers.connection()
    with ExitStack() as stack:
        stack.callback(_delete, brokers, [f"{name}_{number}" for number in range(len(modes))])
        writers: list[Writer] = []
        for number, mode in enumerate(modes):
            topic = f"{name}_{number}"
            create_topic(everybody, topic, partitions=1, replicas=[replicas], config=mode.config)
            writers.append(Writer(everybody, topic, mode))
            stack.callback(writers[-1].close)
        # Nobody may be frozen or dead when producers close and topics are deleted, whatever happened.
        stack.callback(brokers.mend)
        _wait_in_sync(brokers, [one.topic for one in writers], replicas)
        for writer in writers:
            writer.send(records // 2)
        _all_answered(writers)
        for writer in writers:
            until(lambda one=writer: _end(brokers, one.topic) >= records // 2, "the first half is replicated")
        yield writers


def _freeze_after_fetches(brokers: Brokers, followers: Sequence[int], say: Say) -> None:
    say(f"freezing the followers, {', '.join(f'kafka-{one}' for one in followers)}")
    brokers.freeze(*followers)
    # A fetch that waits at the leader would still carry the first of the new records to a frozen follower's socket.
    time.sleep(FETCH_WAIT)


def _all_answered(writers: Sequence[Writer]) -> None:
    for writer in writers:
        if not writer.answered():
            raise BrokerUnavailable(
                f"{writer.mode.name}: the producer had no answer for all of its records",
                why="the cluster did not come to rest, or the machine is very busy",
                cure="run the experiment again",
            )


def _restart(brokers: Brokers, topics: Sequence[str], say: Say) -> None:
    say("starting the killed broker again")
    brokers.restart()
    until(lambda: all(one.leader != NOBODY for one in _led(brokers, topics, brokers.nodes[-1])), "all are led again")


def _wait_in_sync(brokers: Brokers, topics: Sequence[str], replicas: Sequence[int]) -> None:
    leader, wanted = replicas[0], tuple(sorted(replicas))

    def settled(asked: int) -> bool:
        found = _led(brokers, topics, asked)
        return len(found) == len(topics) and all(one.leader == leader and one.in_sync == wanted for one in found)

    # Each of them: a broker that has not heard of a new topic tells a producer that there is none.
    for node in brokers.nodes:
        until(lambda node=node: settled(node), "all replicas are in sync, and all brokers know it")


def _led(brokers: Brokers, topics: Sequence[str], asked: int) -> list[Leadership]:
    return list(leaderships(brokers.connection(asked), topics).values())


def _end(brokers: Brokers, topic: str) -> int:
    return topic_offsets(brokers.connection(), topic).partitions[0].high_watermark


def _delete(brokers: Brokers, topics: Sequence[str]) -> None:
    for topic in topics:
        try:
            delete_topic(brokers.connection(), topic)
        except KafkaAssetsError:
            # Not made yet, or the cluster is in a state that its own error tells.
            continue
