"""`kafka-assets replay` and `skip`: slices that land again, and offsets that never will."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafka_assets.cli.asking import (
    MOST_OFFSET,
    MOST_PARTITION,
    TIMES,
    AsJson,
    Partition,
    Verbose,
    Yes,
    confirm,
    milliseconds,
    the_connection,
    the_ledger,
    the_root,
    the_stream,
)
from kafka_assets.cli.console import err, out, print_json, print_table
from kafka_assets.cli.stopped import ends_on_signals
from kafka_assets.errors import UsageError

if TYPE_CHECKING:
    from kafka_assets.assets.replaying import Replayed
    from kafka_assets.ledger.slice_list import Listed, Wanted
    from kafka_assets.slices import SliceKey

Stream = Annotated[str, typer.Argument(help="The stream.")]
Keys = Annotated[list[str] | None, typer.Argument(help="Slices by their keys, as orders:3:120000-130000.")]
Topic = Annotated[str | None, typer.Option(help="Only this topic, where the stream reads several.")]
From = Annotated[
    int | None, typer.Option("--from", min=0, max=MOST_OFFSET, help="From this offset on (with --partition).")
]
To = Annotated[
    int | None, typer.Option("--to", min=1, max=MOST_OFFSET, help="To the offset before this one (with --partition).")
]
Since = Annotated[str | None, typer.Option(help=f"Records of this time and later: {TIMES}.")]
Until = Annotated[str | None, typer.Option(help="Records of before this time.")]


def register(app: typer.Typer) -> None:
    app.command()(replay)
    app.command()(skip)


def replay(
    stream: Stream,
    keys: Keys = None,
    topic: Topic = None,
    partition: Partition = None,
    start: From = None,
    end: To = None,
    since: Since = None,
    until: Until = None,
    failed: Annotated[bool, typer.Option("--failed", help="Those that were given up.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also where fewer records are left than were committed, or a run holds it.")
    ] = False,
    yes: Yes = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Land slices again, here and now: every slice that meets the range, each in place of what it had."""
    from kafka_assets.broker.connection import require_words
    from kafka_assets.broker.listing import topic_offsets
    from kafka_assets.ledger.slice_list import find_slices, list_slices
    from kafka_assets.settings import load_settings
    from kafka_assets.streams import root_of

    wanted = _wanted(keys, topic, partition, start, end, since, until, any_way=failed)
    settings = load_settings()
    found = the_stream(settings, stream)
    engine = the_ledger(settings)
    root = root_of(found)
    if keys and failed:
        raise UsageError(
            "slices are chosen in one way at a time", cure="give keys, or --failed for all that were given up"
        )
    if keys:
        listed = find_slices(engine, stream=root, asset=found.asset, keys=_parsed(keys))
    else:
        state = "failed" if failed else None
        # What lies above keeps its rows when its topic is deleted, and so can be landed from.
        gone = failed and root != found.name
        listed = list_slices(engine, stream=root, asset=found.asset, wanted=wanted, state=state, gone=gone)
    engine.dispose()
    slices = [one for one in listed if one.state in ("planned", "committed", "failed")]
    left = {str(one.key): _why_not(one) for one in listed if one not in slices}
    for key, why in left.items() if keys else ():
        raise UsageError(f"slice {key} cannot be replayed", why=why, cure="leave it out")
    if not as_json:
        _say_left(left)
    if not slices:
        raise UsageError(
            "no slice that can land again is in that range" if left else "no slice is in that range",
            why=next(iter(left.values()), ""),
            cure=f"`kafka-assets slices {stream}` lists them",
        )
    offsets = sum(one.key.offsets for one in slices)
    require_words(settings.kafka)
    settings.require_spark()
    if root == found.name:
        for name in sorted({one.key.topic for one in slices}):
            topic_offsets(the_connection(settings), name)  # no broker: said once, and not by each run
    _show([one.key for one in slices], as_json=as_json)
    confirm(f"Land these {len(slices)} slices ({offsets:,} offsets) again, in place of what they have?", yes=yes)

    def say(text: str) -> None:
        err.print(text, markup=False, highlight=False, soft_wrap=True)

    with ends_on_signals():
        from kafka_assets.assets.replaying import replay as land_again
        from kafka_assets.assets.runner import Runner

        with Runner(settings, only=[stream], say=say, verbose=verbose) as runner:
            done = land_again(runner, found, [one.key for one in slices], force=force)
    _tell_replayed(done, left, as_json=as_json)
    if done.failed:
        raise typer.Exit(1)


def skip(
    stream: Stream,
    keys: Keys = None,
    reason: Annotated[str, typer.Option(help="Why: it stands in the ledger for ever.")] = "",
    topic: Topic = None,
    partition: Partition = None,
    start: From = None,
    end: To = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Leave out offsets that nobody has landed, for ever: slices that lie in the range, and what is not planned yet."""
    from kafka_assets.audit.skip import skip_of_range, skip_of_slices
    from kafka_assets.ledger.slice_list import find_slices
    from kafka_assets.settings import load_settings

    if not reason.strip():
        raise UsageError("a skip needs its reason", why="nothing is left out in silence", cure="give --reason '…'")
    wanted = _wanted(keys, topic, partition, start, end, since, until)
    settings = load_settings()
    found = the_root(settings, stream)
    engine = the_ledger(settings)
    if keys:
        chosen = skip_of_slices(find_slices(engine, stream=found.name, asset=found.asset, keys=_parsed(keys)))
    else:
        chosen = skip_of_range(engine, lambda: the_connection(settings), found, wanted)
    left = {str(key): why for key, why in chosen.left}
    if not as_json:
        _say_left(left)
    if not chosen.keys:
        raise UsageError(
            "there is nothing to skip in that range",
            why=next(iter(left.values()), "it is skipped already, or has no offsets"),
            cure=f"`kafka-assets slices {stream}` lists what there is: slices are skipped whole",
        )
    _show(chosen.keys, as_json=as_json)
    offsets = sum(key.offsets for key in chosen.keys)
    confirm(f"Skip these {offsets:,} offsets of {stream} for ever?", yes=yes)
    chosen.carry_out(engine, found, reason=reason.strip())
    engine.dispose()
    if as_json:
        print_json({"skipped": [str(key) for key in chosen.keys], "left": left, "offsets": offsets})
    else:
        out.print(f"skipped {offsets:,} offsets in {len(chosen.keys)} slices")


def _tell_replayed(done: Replayed, left: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        told = {
            "replayed": [str(key) for key in done.landed],
            "failed": {str(key): why for key, why in done.failed.items()},
            "untried": [str(key) for key in done.untried],
            "left": left,
        }
        print_json(told)
        return
    for why in dict.fromkeys(done.failed.values()):
        err.print(why, markup=False, highlight=False, soft_wrap=True)
    out.print(f"{len(done.landed):,} slices landed again; {len(done.failed):,} failed, and have what they had")
    if done.untried:
        out.print(f"{len(done.untried):,} more were not tried: what ended it is no slice's fault")


def _wanted(
    keys: list[str] | None,
    topic: str | None,
    partition: int | None,
    start: int | None,
    end: int | None,
    since: str | None,
    until: str | None,
    *,
    any_way: bool = False,
) -> Wanted:
    """The range that was asked for; exactly one way of asking."""
    from kafka_assets.ledger.slice_list import Wanted

    by_offset, by_time = start is not None or end is not None, since is not None or until is not None
    ways = [bool(keys), by_offset, by_time]
    if sum(ways) > 1 or (keys and (topic or partition is not None)):
        raise UsageError("slices are chosen in one way at a time", cure="give keys, offsets, or times")
    if not any(ways) and not any_way:
        raise UsageError("say which slices", cure="give keys, --partition with --from and --to, or --since and --until")
    if by_offset and partition is None:
        raise UsageError("offsets are of one partition", cure="give --partition")
    if start is not None and end is not None and end <= start:
        raise UsageError(f"--to {end} is not after --from {start}", cure="give the offset after the last one")
    times = (milliseconds(since), milliseconds(until))
    if times[0] is not None and times[1] is not None and times[1] <= times[0]:
        raise UsageError(f"--until {until} is not after --since {since}", cure="give the later time to --until")
    return Wanted(topic, partition, start, end, *times)


def _parsed(keys: list[str]) -> list[SliceKey]:
    from kafka_assets.errors import KeysUnknown
    from kafka_assets.slices import SliceKey

    lists = "`kafka-assets slices STREAM` lists keys"
    try:
        parsed = [SliceKey.parse(key) for key in keys]
    except KeysUnknown as error:
        raise UsageError(error.what, why=error.why, cure=lists) from error
    for key in parsed:
        if max(key.partition, key.incarnation) > MOST_PARTITION or key.end > MOST_OFFSET:
            raise UsageError(f"'{key}' is not the key of a slice", why="no partition goes so far", cure=lists)
    return parsed


def _why_not(one: Listed) -> str:
    return f"it is {one.state}" + (f": {one.reason}" if one.reason else "")


def _say_left(left: dict[str, str]) -> None:
    for key, why in left.items():
        err.print(f"left alone: {key} · {why}", markup=False, highlight=False, soft_wrap=True)


def _show(keys: list[SliceKey], *, as_json: bool) -> None:
    if not as_json:
        rows = [{"slice": str(key), "offsets": key.offsets} for key in keys]
        print_table(("slice", "offsets"), rows[:50])
        if len(rows) > 50:
            out.print(f"and {len(rows) - 50:,} more")
