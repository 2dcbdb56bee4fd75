"""What a user declares: a topic that lands in one root asset's table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kafka_assets.durations import Duration
from kafka_assets.errors import StreamError

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"[A-Za-z0-9_]+")
_OURS = ("kafka_", "_kafka")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_INTERNAL = "__"
"""How the names of topics begin that Kafka and its tools keep for themselves."""

MIN_KEEP_KEYS = timedelta(hours=1)


@dataclass(frozen=True)
class Upsert:
    """How the rows of an upsert table find each other, and which of two versions of a row is the later one."""

    key: tuple[str, ...]
    order_by: str
    """`offset`, `kafka_timestamp`, or the name of a column."""

    @property
    def needed(self) -> list[str]:
        """The columns that a row must have a value in."""
        return list(dict.fromkeys([*self.key, *([] if self.order_by == "offset" else [self.order_by])]))


def table_parts(target: str) -> tuple[str | None, str]:
    """The schema that a target's name begins with, if it does, and the table's own name in it."""
    schema, dot, table = target.rpartition(".")
    return schema if dot else None, table


class SliceLimits(BaseModel):
    """How offsets are cut: at most `max_records` a slice, and no record waits longer than `max_delay` to be planned.

    One tick plans at most `per_tick` slices of the stream, of `records_per_tick` offsets in all, and none while
    `waiting` of them are planned and not landed; at most `runs` runs land them at a time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_records: int = Field(default=500_000, ge=1, le=50_000_000)
    max_delay: Duration = timedelta(seconds=10)
    per_tick: int = Field(default=100, ge=1, le=1_000)
    records_per_tick: int = Field(default=50_000_000, ge=1)
    waiting: int = Field(default=1_000, ge=1, le=10_000)
    runs: int = Field(default=4, ge=1, le=100)


class SkipWhenBehind(BaseModel):
    """Where fresh matters more than all: a partition that is too far behind is read from its newest offsets on.

    Too far: with more than `records` unread, or with a record older than `age`. All but the newest `keep` are then
    left out for ever, at most once in `every`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    records: int | None = Field(default=None, ge=1)
    age: Duration | None = None
    keep: int = Field(ge=0)
    every: Duration = timedelta(minutes=15)
    stale_keys: bool = False
    """Mode upsert: yes, a key whose newest record is jumped over stays as it was, deleted or not."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.records is None and self.age is None:
            raise ValueError("say what is too far behind: records, age, or both")
        if self.records is not None and self.keep > self.records:
            raise ValueError(f"keep ({self.keep}) is more than records ({self.records}): nothing would be jumped over")
        if self.every <= timedelta(0) or (self.age is not None and self.age <= timedelta(0)):
            raise ValueError("age and every are longer than nothing")
        return self


class Stream(BaseModel):
    """One declared stream, made valid once; inside, nobody checks it again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    topic: str | None = None
    topics: str | None = None
    """Instead of `topic`: a regular expression of Python's `re` for the whole name; Kafka's own topics never match."""
    target: str
    """A table, or `schema.table`: in MySQL and MariaDB a database of that name on the same server."""
    group: str | None = None
    """The ledger's name for this asset, which is the consumer_group of kafka_committed_offset; else the asset's key."""
    mode: Literal["append", "upsert"] = "append"
    key: tuple[str, ...] = ()
    """Mode upsert: columns that the transform gives, or `kafka_key`: the record's own, as bytes unless cast."""
    order_by: str = "offset"
    """Mode upsert: `offset` (Kafka's, and keys must keep to their partition), `kafka_timestamp`, or a column."""
    format: Literal["json", "string", "bytes"] = "json"
    schema_: str = Field(alias="schema")
    slices: SliceLimits = SliceLimits()
    start: Literal["earliest", "latest", "none"] | datetime = "earliest"
    on_bad: Literal["quarantine", "fail"] = "quarantine"
    max_bad_ratio: float = Field(default=0.01, ge=0, le=1)
    on_expired: Literal["fail", "record"] = "fail"
    skip_when_behind: SkipWhenBehind | None = None
    """What is left out where a partition is too far behind; else nothing ever is."""
    evolve: Literal["none", "add_columns"] = "none"
    """What becomes of columns that the stream delivers and an existing table lacks: refused, or added as nullable."""
    scope: Literal["record", "slice"] = "record"
    """What the transform may look at: each record by itself, or all records of exactly one slice."""
    max_attempts: int = Field(default=5, ge=1)
    keep_keys: Duration | None = None
    """Dagster forgets keys of slices that were committed longer ago; the ledger keeps all."""
    max_lag: Duration = timedelta(minutes=15)
    """How long records may wait for their commit before a check says so."""
    preview: bool = True
    """Whether Dagster is shown a slice's first rows: its storage keeps them, also when the table forgets them."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(f"{value!r} is no asset name; use letters, digits and _")
        return value

    @field_validator("topic")
    @classmethod
    def _topic(cls, value: str | None) -> str | None:
        if value is not None and (not _TOPIC.fullmatch(value) or value in {".", ".."}):
            raise ValueError(f"{value!r} is no Kafka topic; use letters, digits, '.', '_' and '-'")
        return value

    @field_validator("topics")
    @classmethod
    def _topics(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression of Python's re: {error}") from error
        return value

    @field_validator("target")
    @classmethod
    def _target(cls, value: str) -> str:
        schema, table = table_parts(value)
        if not table or schema == "" or "." in (schema or ""):
            raise ValueError(f"{value!r} is no table; write a name, or schema.table")
        if schema is None and table.lower().startswith("kafka_"):
            raise ValueError(f"{value!r} begins with kafka_, and those names belong to the ledger")
        return value

    @field_validator("group")
    @classmethod
    def _group(cls, value: str | None) -> str | None:
        if value is not None and (not value.strip() or len(value) > 255):
            raise ValueError("a group's name has 1 to 255 characters")
        return value

    @field_validator("start")
    @classmethod
    def _start(cls, value: str | datetime) -> str | datetime:
        # Else it would be another moment on each machine.
        return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value

    @field_validator("keep_keys")
    @classmethod
    def _keep_keys(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and value < MIN_KEEP_KEYS:
            raise ValueError("runs still tell of younger ones; keep them for an hour or more")
        return value

    @field_validator("key")
    @classmethod
    def _key(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name.lower().startswith(_OURS) and name != "kafka_key":
                raise ValueError(f"{name!r} is no column of yours; of the record's own, only kafka_key can be a key")
        if len({name.lower() for name in value}) < len(value):
            raise ValueError("a column stands twice in it")
        return value

    @field_validator("order_by")
    @classmethod
    def _order_by(cls, value: str) -> str:
        if not value or (value.lower().startswith(_OURS) and value != "kafka_timestamp"):
            raise ValueError(f"{value!r} orders nothing; use offset, kafka_timestamp or one of your columns")
        return value

    @model_validator(mode="after")
    def _one_topic_or_many(self) -> Self:
        if (self.topic is None) == (self.topics is None):
            raise ValueError("name either topic, or with topics a pattern for the names of many")
        if self.topics is not None and self.mode == "upsert":
            # A version begins with the incarnation and the offset, and those of two topics do not compare.
            raise ValueError("topics needs mode append: which of two topics' records is later cannot be told")
        return self

    @model_validator(mode="after")
    def _upsert(self) -> Self:
        if self.mode == "upsert" and not self.key:
            raise ValueError("mode upsert needs key: the columns that tell rows apart, for example [id] or [kafka_key]")
        if self.mode == "append" and (self.key or self.order_by != "offset"):
            raise ValueError("key and order_by belong to mode upsert; an append table is identified by its offsets")
        if self.mode == "upsert" and self.skip_when_behind is not None and not self.skip_when_behind.stale_keys:
            raise ValueError(
                "skip_when_behind loses keys in mode upsert: one whose newest record is jumped over keeps its old row,"
                " though it changed or was deleted; say stale_keys: true in it if that is what you want"
            )
        if self.mode == "append" and self.skip_when_behind is not None and self.skip_when_behind.stale_keys:
            raise ValueError("stale_keys in skip_when_behind belongs to mode upsert; leave it out")
        if self.mode == "upsert" and self.scope == "slice":
            raise ValueError(
                "scope slice belongs to mode append: a row made of many records has no version of its own, "
                "so which of two rows of a key is the later one could not be told"
            )
        return self

    @property
    def upsert(self) -> Upsert | None:
        """Key and order of an upsert table; None for one that only grows."""
        return Upsert(self.key, self.order_by) if self.mode == "upsert" else None

    @property
    def asset(self) -> str:
        """The name under which the ledger keeps this stream's publications."""
        return self.group or self.name

    @property
    def reads(self) -> str:
        """The topic, or the pattern of topics, for people to read."""
        return self.topic or f"{self.topics}"

    def matching(self, names: Iterable[str]) -> list[str]:
        """Which of these topics the stream reads: its own whether it is there or not, or all that match its pattern."""
        if self.topic is not None:
            return [self.topic]
        pattern = re.compile(self.topics or "")
        return sorted(name for name in names if not name.startswith(_INTERNAL) and pattern.fullmatch(name))

    @property
    def partitions_name(self) -> str:
        """The name of the Dagster dynamic partitions that are this stream's slices."""
        return f"kafka_{self.name}"


class Derived(Stream):
    """An asset on the slices of another one: it reads that one's committed rows, and has publications of its own."""

    upstream: str
    upstream_target: str
    root: str
    """The stream that reads the topic, and whose slices these are."""

    @property
    def partitions_name(self) -> str:
        return f"kafka_{self.root}"


_PARTS: Mapping[str, type[BaseModel]] = {"slices": SliceLimits, "skip_when_behind": SkipWhenBehind}
_UNWRITTEN = ("upstream_target", "root")
"""Fields that nobody writes."""


def unknown_attribute(name: str, known: Iterable[str], *, inside: Iterable[str] = ()) -> StreamError:
    """What is told of an attribute that is none, below those that it stands in, where these are known."""
    known = list(known)
    near = get_close_matches(name, known, n=1)
    return StreamError(
        f"there is no attribute {'.'.join((*inside, name))!r}",
        why=f"did you mean {near[0]!r}?" if near else "",
        cure=f"known attributes: {', '.join(known)}",
    )


def declare(further: Iterable[str] = (), /, **attributes: Any) -> Stream:
    """Make a stream of what the user wrote, or say what is wrong with it in the user's words.

    `further` are attributes that may be written beside the stream's own, and are read elsewhere.
    """
    kind = Derived if "upstream" in attributes else Stream
    try:
        stream = kind.model_validate(attributes)
        declared_fields(stream)
        return stream
    except StreamError as error:
        raise StreamError(
            f"stream {attributes.get('name', '?')!r}: {error.what}", why=error.why, cure=error.cure
        ) from error
    except ValidationError as error:
        # What is written wrongly is missing under its right name, too.
        found = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        *inside, last = [str(part) for part in found["loc"] if part not in {"datetime"}] or ["mode"]
        if found["type"] == "extra_forbidden":
            model = _PARTS[inside[0]] if inside else kind
            names = [field.alias or name for name, field in model.model_fields.items() if name not in _UNWRITTEN]
            said = unknown_attribute(last, names if inside else [*names, *further], inside=inside)
            raise StreamError(
                f"stream {attributes.get('name', '?')!r}: {said.what}", why=said.why, cure=said.cure
            ) from error
        where = ".".join((*inside, last))
        raise StreamError(
            f"stream {attributes.get('name', '?')!r}: {where}: {found['msg'].removeprefix('Value error, ')}",
            cure=f"correct {where!r} where the stream is declared",
        ) from error


def declared_fields(stream: Stream) -> pa.Schema:
    """The fields that the stream's schema declares; what is wrong with it is refused."""
    from kafka_assets.schema import declared  # Arrow takes a while

    return declared(stream.schema_, stream.format)


def require_columns(stream: Stream) -> None:
    """Refuse a key or an order that is no declared field, or of a type that cannot be one.

    For a stream whose records land as they come: what a function gives is known when it runs.
    """
    from kafka_assets.schema import compares, orders, spelled

    if stream.upsert is None:
        return
    fields = declared_fields(stream)
    kinds: dict[str, Any] = dict(zip(fields.names, fields.types, strict=True))
    wanted = [("key", name, compares) for name in stream.key if name != "kafka_key"]
    if stream.order_by not in {"offset", "kafka_timestamp"}:
        wanted.append(("order_by", stream.order_by, orders))
    for attribute, name, fits in wanted:
        if name not in kinds:
            raise StreamError(
                f"stream {stream.name!r}: {attribute}: the schema has no field {name!r}",
                why=f"it declares {', '.join(kinds)}",
                cure="name one of these, or declare the field",
            )
        if not fits(kinds[name]):
            needs = "a number without fraction, " + ("a text, " if attribute == "key" else "") + "a date or a timestamp"
            raise StreamError(
                f"stream {stream.name!r}: {attribute}: {name!r} is {spelled(kinds[name])}",
                why="values of that type do not compare alike in every database",
                cure=f"name a field that is {needs}",
            )


def with_demands(stream: Stream, delivered: pa.Schema) -> pa.Schema:
    """The delivered columns, each NOT NULL where it is declared so, by name and type, and nowhere else.

    What is made of other rows, or of many records, is no declared field, whatever it is called.
    """
    import pyarrow as pa

    from kafka_assets.schema import fields_of, landed_type

    own = [] if isinstance(stream, Derived) or stream.scope == "slice" else fields_of(declared_fields(stream))
    demanded = {field.name: landed_type(field.type) for field in own if not field.nullable}
    return pa.schema(
        [
            field.with_nullable(field.name not in demanded or landed_type(field.type) != demanded[field.name])
            for field in fields_of(delivered)
        ]
    )


def root_of(stream: Stream) -> str:
    """The name of the stream whose slices these are: its own, or of the one that reads the topic for it."""
    return stream.root if isinstance(stream, Derived) else stream.name
