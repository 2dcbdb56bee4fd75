"""`kafka-assets groups`: consumer groups in Kafka, which this project itself does not use for progress."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_assets.cli.asking import (
    TIMES,
    AsJson,
    Group,
    Partition,
    Topic,
    Yes,
    confirm,
    milliseconds,
    no_partition,
    the_connection,
)
from kafka_assets.cli.console import err, out, print_json, print_table
from kafka_assets.errors import UsageError

if TYPE_CHECKING:
    from kafka_assets.broker.connection import Connection

groups = typer.Typer(help="The consumer groups of the cluster.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(groups, name="groups")


@groups.command("list")
def list_(as_json: AsJson = False) -> None:
    """List groups, their state and their type; of share groups and those of Streams only that they are there."""
    from kafka_assets.broker.groups import list_groups

    found = list_groups(the_connection())
    rows = [asdict(one) for one in found.groups]
    if as_json:
        print_json(rows)
    else:
        print_table(("group", "state", "type"), rows)
    for trouble in found.troubles:
        err.print(f"a broker did not say which groups it has: {trouble}", markup=False, highlight=False, soft_wrap=True)
    if found.troubles:
        raise typer.Exit(1)


@groups.command()
def describe(group: Group, as_json: AsJson = False) -> None:
    """Show a group's members, its offsets, and how far it is behind."""
    from kafka_assets.broker.groups import describe_group
    from kafka_assets.broker.offsets import TopicOffsets, observe

    connection = the_connection()
    found = describe_group(connection, group)
    holders = {place: member for member in found.members for place in member.partitions}
    places = sorted(found.offsets.keys() | holders.keys())
    seen = observe(connection, sorted({topic for topic, _ in places}))
    rows: list[dict[str, object]] = []
    for topic, partition in places:
        there = seen[topic]
        part = there.partitions.get(partition) if isinstance(there, TopicOffsets) else None
        offset, holder = found.offsets.get((topic, partition)), holders.get((topic, partition))
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "next_offset": offset,
                "end": part.last_stable if part else None,
                "lag": max(0, part.last_stable - offset) if part and offset is not None else None,
                "member": holder and holder.client_id,
                "member_id": holder and holder.member_id,
            }
        )
    members = [{**asdict(one), "partitions": len(one.partitions)} for one in found.members]
    if as_json:
        known = {"group": group, "state": found.state, "members": len(members)}
        print_json({**known, "offsets": rows, "consumers": members})
        return
    title = f"{group} · {found.state} · {len(members)} members"
    print_table(("topic", "partition", "next_offset", "end", "lag", "member_id"), rows, title=title)
    if members:
        print_table(("member_id", "client_id", "host", "partitions"), members, title="members")


@groups.command()
def reset(
    group: Group,
    topic: Topic,
    to: Annotated[str | None, typer.Option(help="earliest, latest, or an offset (with --partition).")] = None,
    at: Annotated[str | None, typer.Option(help=f"The first offset at or after this time: {TIMES}.")] = None,
    partition: Partition = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Set a group's next offsets of a topic; refused while the group has members. A new group is made so, too."""
    from kafka_assets.broker.groups import describe_group, refuse_members, set_offsets
    from kafka_assets.errors import GroupMissing

    if (to is None) == (at is None):
        raise UsageError("say where the group is to go on", cure="give either --to or --at")
    connection = the_connection()
    wanted = _targets(connection, topic, to=to, at=milliseconds(at), partition=partition)
    try:
        found = describe_group(connection, group)
        refuse_members(found)
        before = found.offsets
    except GroupMissing:
        before = dict[tuple[str, int], int]()
    rows = [
        {"topic": topic, "partition": part, "before": before.get((topic, part)), "next_offset": offset}
        for part, offset in wanted.items()
    ]
    if not as_json:
        print_table(("topic", "partition", "before", "next_offset"), rows, title=f"{group} · to be set")
    confirm(f"Set these offsets of the group {group}?", yes=yes)
    set_offsets(connection, group, {(topic, part): offset for part, offset in wanted.items()})
    if as_json:
        print_json(rows)
    else:
        out.print("set")


@groups.command()
def delete(group: Group, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a group and the offsets that it has committed."""
    from kafka_assets.broker.groups import delete_group, describe_group

    connection = the_connection()
    found = describe_group(connection, group)
    confirm(f"Delete the group {group} with its {len(found.offsets)} offsets?", yes=yes)
    delete_group(connection, group)
    if as_json:
        print_json({"group": group, "deleted": True})
    else:
        out.print(f"deleted: {group}", markup=False, highlight=False)


def _targets(
    connection: Connection, topic: str, *, to: str | None, at: int | None, partition: int | None
) -> dict[int, int]:
    from kafka_assets.broker.consume import check_begin
    from kafka_assets.broker.listing import topic_offsets
    from kafka_assets.broker.offsets import offsets_at

    there = topic_offsets(connection, topic).partitions
    if partition is not None and partition not in there:
        raise no_partition(topic, partition, of=len(there))
    parts = [partition] if partition is not None else sorted(there)
    if at is not None:
        found = offsets_at(connection, topic, at)
        return {part: found[part] for part in parts}
    if to in ("earliest", "latest"):
        return {part: there[part].log_start if to == "earliest" else there[part].high_watermark for part in parts}
    if to is None or not to.isdecimal() or partition is None:
        raise UsageError(
            f"{to!r} is no place in all partitions", cure="give earliest, latest, or an offset with --partition"
        )
    check_begin(topic, {partition: int(to)}, there)
    return {partition: int(to)}
