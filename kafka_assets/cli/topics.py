"""`kafka-assets topics` and `offsets`: what the cluster has, and what may be changed of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_assets.cli.asking import TIMES, AsJson, Topic, Yes, confirm, milliseconds, the_connection
from kafka_assets.cli.console import err, out, print_json, print_table
from kafka_assets.errors import KafkaAssetsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_assets.broker.connection import Connection
    from kafka_assets.broker.topics import Topic as Found

topics = typer.Typer(help="The topics of the cluster.", no_args_is_help=True)

MOST_PARTITIONS, MOST_COPIES = 100_000, 10_000  # what librdkafka asks for at most
Config = Annotated[list[str] | None, typer.Option("--config", help="name=value; as often as needed.")]


def register(app: typer.Typer) -> None:
    app.add_typer(topics, name="topics")
    app.command()(offsets)


@topics.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List topics with their partitions and replication factor."""
    from kafka_assets.broker.listing import list_topics

    rows = [asdict(one) for one in list_topics(the_connection(), internal=internal)]
    if as_json:
        print_json(rows)
    else:
        print_table(("topic", "partitions", "replication_factor", "offline"), rows)


@topics.command()
def create(
    topic: Topic,
    partitions: Annotated[int, typer.Option(min=1, max=MOST_PARTITIONS, help="How many partitions.")] = 1,
    replication_factor: Annotated[
        int, typer.Option(min=1, max=MOST_COPIES, help="How many brokers keep each of them.")
    ] = 1,
    config: Config = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no error.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a topic, and wait until it can be used."""
    from kafka_assets.broker.topics import create_topic

    made = create_topic(
        the_connection(),
        topic,
        partitions=partitions,
        replication_factor=replication_factor,
        config=_pairs(config),
    )
    if made.existed and not if_not_exists:
        raise UsageError(
            f"the topic {topic!r} exists already",
            why=f"it has {made.partitions} partitions, kept by {made.replication_factor} brokers",
            cure="use another name, or give --if-not-exists",
        )
    if as_json:
        print_json(asdict(made))
    else:
        verb = "exists" if made.existed else "created"
        out.print(f"{verb}: {topic} · {made.partitions} partitions · replication factor {made.replication_factor}")


@topics.command()
def describe(
    topic: Topic,
    all_: Annotated[bool, typer.Option("--all", help="The whole configuration, not only what the topic sets.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a topic's partitions, leaders, replicas, offsets and configuration."""
    from kafka_assets.broker.configs import topic_config
    from kafka_assets.broker.listing import list_partitions
    from kafka_assets.broker.topics import describe_topic

    connection = the_connection()
    found = describe_topic(connection, topic, leaderless=True)
    partitions = [asdict(one) for one in list_partitions(connection, topic)]
    config = {name: one for name, one in topic_config(connection, topic).items() if all_ or one.own}
    if as_json:
        named = {name: one.value for name, one in config.items()}
        print_json({**asdict(found), "partitions": partitions, "config": named})
        return
    print_table(
        ("partition", "leader", "replicas", "in_sync", "log_start", "last_stable", "high_watermark"),
        partitions,
        title=f"{topic} · id {found.topic_id} · replication factor {found.replication_factor}",
    )
    if config:
        rows = [{"name": name, "value": one.value, "set here": one.own} for name, one in config.items()]
        print_table(("name", "value", "set here"), rows, title="configuration")


@topics.command()
def alter(
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=MOST_PARTITIONS, help="How many partitions it is to have.")
    ] = None,
    config: Config = None,
    default: Annotated[
        list[str] | None, typer.Option("--default", help="A name that goes back to the broker's default.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Change a topic's configuration, or give it more partitions (which moves keys, and is never undone)."""
    from kafka_assets.broker.configs import alter_config, refuse_fewer
    from kafka_assets.broker.topics import describe_topic

    changes: dict[str, str | None] = {**_pairs(config), **dict.fromkeys(default or ())}
    if partitions is None and not changes:
        raise UsageError("nothing is to be changed", cure="give --partitions, --config name=value or --default name")
    connection = the_connection()
    found = describe_topic(connection, topic, leaderless=True)
    if partitions is not None:
        refuse_fewer(found, partitions)
        confirm(
            f"Give {topic} {partitions} partitions instead of {found.partitions}? New records of a key may go to"
            " another partition than its old ones, and no partition can be taken away again.",
            yes=yes,
        )
    if not yes:
        _confirm_changes(connection, topic, changes)
    # Configuration first: what the broker may well refuse, and what can be set back.
    stands = alter_config(connection, topic, changes) if changes else {}
    if partitions is not None:
        found = _more_partitions(connection, topic, partitions, changed=bool(changes))
    changed = {name: stands[name].value if name in stands else None for name in changes}
    if as_json:
        print_json({**asdict(found), "config": changed})
        return
    out.print(f"{topic} has {found.partitions} partitions")
    for name, value in changed.items():
        out.print(f"{name} = {value}", markup=False, highlight=False)


@topics.command()
def delete(topic: Topic, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a topic with all its records."""
    from kafka_assets.broker.listing import list_partitions
    from kafka_assets.broker.topics import delete_topic

    connection = the_connection()
    there = list_partitions(connection, topic)
    held = [one.offsets for one in there if one.offsets is not None]
    more = f", and more in {len(there) - len(held)} that no broker leads now" if len(held) < len(there) else ""
    confirm(f"Delete the topic {topic} with {sum(held):,} offsets in {len(there)} partitions{more}?", yes=yes)
    delete_topic(connection, topic)
    if as_json:
        print_json({"topic": topic, "deleted": True})
    else:
        out.print(f"deleted: {topic}", markup=False, highlight=False)


def offsets(
    topic: Topic,
    at: Annotated[str | None, typer.Option(help=f"The first offset at or after this time, too: {TIMES}.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show where a topic's partitions begin and end, and which offset a time leads to."""
    from kafka_assets.broker.listing import topic_offsets
    from kafka_assets.broker.offsets import offsets_at

    when = milliseconds(at)
    connection = the_connection()
    there = topic_offsets(connection, topic)
    found = offsets_at(connection, topic, when) if when is not None else dict[int, int]()
    rows = [
        {"partition": number, **asdict(one), **({"at": found.get(number)} if at else {})}
        for number, one in there.partitions.items()
    ]
    if as_json:
        print_json(rows)
    else:
        columns = ("partition", "log_start", "last_stable", "high_watermark", *(("at",) if at else ()))
        print_table(columns, rows, title=f"{topic} · id {there.topic_id}")


def _confirm_changes(connection: Connection, topic: str, changes: Mapping[str, str | None]) -> None:
    """Ask for those entries after whose change records may be gone."""
    from kafka_assets.broker.configs import can_destroy, topic_config

    if not any(map(can_destroy, changes)):
        return
    before = topic_config(connection, topic)
    told = ", ".join(
        f"{name}={'the default' if value is None else value}"
        + (f" (now {before[name].value})" if name in before else "")
        for name, value in changes.items()
        if can_destroy(name)
    )
    confirm(f"Set {told} of {topic}? Records that are there now may be deleted, and do not come back.", yes=False)


def _more_partitions(connection: Connection, topic: str, total: int, *, changed: bool) -> Found:
    from kafka_assets.broker.configs import add_partitions

    try:
        return add_partitions(connection, topic, total)
    except KafkaAssetsError:
        if changed:
            err.print(f"the configuration of {topic} was changed before this", highlight=False)
        raise


def _pairs(given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{one!r} is no name=value", cure="write for example --config retention.ms=86400000")
        found[name.strip()] = value.strip()
    return found
