"""Why a record is bad, in words that name the field. Computed for suspects only; here nothing needs to be fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

from kafka_assets.spark.decode_doubt import Look
from kafka_assets.spark.decode_fields import Reading

EXCERPT = 60
UNPROVEN = "the value could not be shown to be read exactly"
_BYTE_ORDER_MARK = "\ufeff"
_HALF_PAIR = (
    r"(?i)(?<!\\)(?:\\\\)*(?:\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2})"
    r"|(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2})"
)


@dataclass(frozen=True)
class Verdict:
    """All that was seen of one suspect."""

    text: Column
    again: Column
    broken: Column
    looks: Sequence[tuple[T.StructField, Reading, Look]]


def reason(verdict: Verdict, *, end: str) -> Column:
    """The first reason that holds."""
    text, again = verdict.text, verdict.again
    whole = F.try_variant_get(again, f"$[1].{end}", "int").isNotNull()
    alone = F.try_parse_json(text).isNotNull()
    return F.coalesce(
        F.when(text.isNull(), F.lit("the value is null (a tombstone)")),
        F.when(~F.is_valid_utf8(text), F.lit("the value is not valid UTF-8")),
        _not_an_object(text),
        F.when(text.rlike(_HALF_PAIR) & ~alone, F.lit("the value holds half of a surrogate pair (\\ud800 to \\udfff)")),
        F.when(~whole & alone, F.lit("text, or a second object, follows the JSON object")),
        F.when(verdict.broken & again.isNull(), F.lit("the value is not valid JSON")),
        F.when(again.isNull(), F.lit("a key stands twice in one JSON object (or it is too big to tell)")),
        *(_misfit(field, how, look, verdict.broken) for field, how, look in verdict.looks),
    )


def _not_an_object(text: Column) -> Column:
    start = F.regexp_replace(text, r"\A[ \t\r\n]+", F.lit(""))
    return F.coalesce(
        F.when(F.octet_length(text) == 0, F.lit("the value is empty")),
        F.when(F.octet_length(start) == 0, F.lit("the value is only white space")),
        F.when(
            F.startswith(text, F.lit(_BYTE_ORDER_MARK)), F.lit("the value begins with a byte order mark, not with {")
        ),
        F.when(~F.startswith(start, F.lit("{")), F.concat(F.lit("the value is not a JSON object: "), _excerpt(start))),
    )


def _misfit(field: T.StructField, how: Reading, look: Look, broken: Column) -> Column:
    unread = broken & look.witness.isNull() & (F.schema_of_variant(look.found) != "VOID")
    changed = F.lit(False)
    if how.wrong is not None:
        changed = changed | F.coalesce(how.wrong(look.witness, look.value), F.lit(False))
    if how.disproved is not None:
        changed = changed | F.coalesce(how.disproved(look), F.lit(False))
    kind = field.dataType.simpleString().upper()[:100]
    given = F.when(F.schema_of_variant(look.found) == "STRING", _quoted(look.found)).otherwise(_plain(look.found))
    misfit = F.concat(F.lit(f"{field.name}: "), F.coalesce(given, F.lit("it")), F.lit(f" does not fit {kind} exactly"))
    missing = F.lit(f"{field.name}: missing or null, and declared NOT NULL")
    return F.coalesce(
        F.when(F.coalesce(unread, F.lit(False)) | changed, misfit),
        F.when(F.lit(not field.nullable) & look.value.isNull(), missing),
    )


def _plain(found: Column) -> Column:
    return _excerpt(F.try_variant_get(found, "$", "string"))


def _quoted(found: Column) -> Column:
    return F.concat(F.lit('"'), _plain(found), F.lit('"'))


def _excerpt(text: Column) -> Column:
    return F.when(F.char_length(text) > EXCERPT, F.concat(F.left(text, F.lit(EXCERPT)), F.lit("…"))).otherwise(text)
