"""`kafka-assets lab`: experiments with real kills."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_assets.cli.asking import AsJson, Database, Yes, confirm, shown_time, the_connection
from kafka_assets.cli.console import err, print_json, print_table
from kafka_assets.errors import UsageError
from kafka_assets.settings import load_settings

if TYPE_CHECKING:
    from kafka_assets.lab.outcome import Outcome

lab = typer.Typer(
    help="Experiments with real kills: what can be lost, what can be doubled, and when.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    app.add_typer(lab, name="lab")


@lab.command()
def semantics(
    modes: Annotated[list[str] | None, typer.Argument(help="Only these; else all.")] = None,
    *,
    database: Database = None,
    records: Annotated[int, typer.Option(min=20, max=1_000_000, help="How many for each mode.")] = 1000,
    kills: Annotated[int, typer.Option(min=1, max=8, help="How often each consumer is killed.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Kill a consumer at the worst moment of each commit mode; count its rows in a scratch database."""
    from kafka_assets.audit.bench import database_url
    from kafka_assets.lab.semantics import MODES
    from kafka_assets.lab.semantics import semantics as run

    settings = load_settings()
    outcomes = run(
        the_connection(settings),
        database_url(settings, database),
        modes=_chosen(modes, MODES),
        records=records,
        kills=kills,
        say=_say,
    )
    _print(outcomes, ("mode", "records", "kills", "rows", "lost", "doubled"), as_json=as_json)


@lab.command()
def replication(
    rounds: Annotated[
        list[str] | None, typer.Argument(help="leader-killed, out-of-sync, answer-lost; else all.")
    ] = None,
    *,
    records: Annotated[int, typer.Option(min=10, max=1_000_000, help="How many for each mode.")] = 1000,
    here: Annotated[
        bool, typer.Option("--here", help="Kill this project's own brokers (`up --brokers 3`), and start them again.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Kill and freeze brokers under acks 0, 1 and all, idempotence, min.insync.replicas, unclean election."""
    from kafka_assets.lab.brokers import own_brokers, project_brokers
    from kafka_assets.lab.replication import ROUNDS
    from kafka_assets.lab.replication import replication as run

    settings = load_settings()
    chosen = _chosen(rounds, ROUNDS)
    if here:
        confirm("Kill and freeze the brokers of this project, one after the other? All come back.", yes=yes)
    cluster = project_brokers(settings) if here else own_brokers(settings.state / "lab", _say)
    with cluster as brokers:
        outcomes = run(brokers, rounds=chosen, records=records, say=_say)
    columns = ("round", "mode", "records", "acknowledged", "lost", "doubled")
    _print(outcomes, columns, as_json=as_json)


@lab.command()
def rebalance(
    modes: Annotated[list[str] | None, typer.Argument(help="range, cooperative, static, kip-848; else all.")] = None,
    *,
    rate: Annotated[int, typer.Option("--rate", min=6, max=10_000, help="Records a second, over 6 partitions.")] = 300,
    as_json: AsJson = False,
) -> None:
    """Let members join, leave, die and come back, and count what stopped, for how long, and what came again."""
    from kafka_assets.lab.rebalance import MODES
    from kafka_assets.lab.rebalance import rebalance as run

    outcomes = run(the_connection(), modes=_chosen(modes, MODES), rate=rate, say=_say)
    columns = ("mode", "event", "records", "lost", "doubled", "stopped", "pause_s")
    _print(outcomes, columns, as_json=as_json)


@lab.command()
def partitioners(
    records: Annotated[int, typer.Option(min=10, max=1_000_000, help="How many for each partitioner.")] = 10_000,
    keys: Annotated[int, typer.Option(min=1, help="How many different keys they have.")] = 1000,
    partitions: Annotated[int, typer.Option(min=1, max=1000, help="Of the topic.")] = 6,
    add: Annotated[int, typer.Option(min=1, max=1000, help="So many partitions are added.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Spread keyed records by each partitioner; add partitions, and count the keys that moved."""
    from kafka_assets.lab.partitioners import partitioners as run

    outcomes = run(the_connection(), records=records, keys=keys, partitions=partitions, more=add, say=_say)
    columns = ("mode", "lost", "doubled", "least", "most", "run", "split", "moved")
    title = f"{records:,} records with {min(keys, records):,} keys into {partitions} partitions"
    _print(outcomes, columns, as_json=as_json, title=title)


@lab.command()
def compression(
    records: Annotated[
        int, typer.Option(min=100, max=1_000_000, help="How many JSON records of about 190 bytes.")
    ] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Produce the same records with each compression: bytes on the wire, rate, and all of them read back."""
    from kafka_assets.lab.compression import compression as run

    outcomes = run(the_connection(), records=records, say=_say)
    if as_json:
        print_json([one.row for one in outcomes])
        return
    named = {"bytes_per_record": "bytes", "bytes_to_none": "to none", "records_per_second": "records/s"}
    named |= {"rate_to_none": "to none "}
    rows = [{named.get(name, name): value for name, value in one.row.items()} for one in outcomes]
    print_table(("mode", "records", "lost", "doubled", *named.values()), rows, title="bytes of a record on the wire")


@lab.command()
def segments(
    topic: Annotated[str, typer.Argument(help="A topic of the local broker.")],
    partition: Annotated[int, typer.Option(min=0, help="One of its partitions.")] = 0,
    broker: Annotated[int, typer.Option(min=1, help="Of three brokers, the one whose disk is read.")] = 1,
    limit: Annotated[int, typer.Option(min=1, help="So many batches and index entries are shown.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show how a local broker stores a partition: files, batches, indexes, by Kafka's own DumpLogSegments."""
    from kafka_assets.lab.segments import dump, partition_folder

    found = dump(partition_folder(load_settings().state, topic, partition, broker=broker))
    files, batches = [asdict(one) for one in found.files], [asdict(one) for one in found.batches]
    entries = [asdict(one) for one in found.entries]
    if as_json:
        print_json({"folder": found.folder, "files": files, "batches": batches, "entries": entries})
        return
    print_table(("file", "bytes", "used"), files, title=f"{found.folder.name} on kafka-{broker}")
    print_table(
        ("segment", "position", "size", "first", "last", "records", "codec", "sequence"),
        [
            {
                **batch,
                "segment": int(batch["segment"].partition(".")[0]),
                "first": batch["base_offset"],
                "last": batch["last_offset"],
                "sequence": batch["base_sequence"],
            }
            for batch in batches[:limit]
        ],
        title=f"batches: {min(limit, len(batches))} of {len(batches)}",
    )
    for what, column in (("by offset", "position"), ("by time", "timestamp")):
        mine = [_entry(one) for one in entries if one[column] is not None]
        title = f"index entries {what}: {min(limit, len(mine))} of {len(mine)}"
        print_table(("index", "offset", column), mine[:limit], title=title)


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    at = entry["timestamp"]
    return {**entry, "timestamp": None if at is None else shown_time(at)}


def _chosen(given: Sequence[str] | None, known: Collection[str]) -> list[str]:
    """What was named, in that order, or all there is."""
    for one in given or ():
        if one not in known:
            raise UsageError(f"there is no experiment {one!r} here", cure=f"choose among {', '.join(map(repr, known))}")
    return list(given or known)


def _say(what: str) -> None:
    err.print(f"· {what}", markup=False, highlight=False, soft_wrap=True)


def _print(outcomes: Sequence[Outcome], columns: Sequence[str], *, as_json: bool, title: str | None = None) -> None:
    rows = [one.row for one in outcomes]
    if as_json:
        print_json(rows)
    else:
        print_table(columns, rows, title=title)
