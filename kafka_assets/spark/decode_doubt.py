"""When a value that from_json gave may not be the text's, and what a second look says of it.

The second look is a VARIANT of the whole record: it refuses equal keys and half surrogate pairs, keeps numbers of up
to 38 digits without an exponent exactly, and knows a number from a text. It costs as much as half a from_json, so
what is asked before it must be cheap, and may be true for a good record, but never false for a bad one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql import types as T  # noqa: N812

ESCAPE_BYTES = 5
"""What half a surrogate pair takes in the text beyond the one byte that from_json makes of it."""
KEY_BYTES = 5
"""What a second key takes beside its name: two quotes, a colon, a comma and a value of one byte."""
QUOTE_BYTES = 2
"""What a number in quotes takes beyond the number."""
EXACT_INTEGERS = 2**53
WIDEST = 38
"""Digits of the widest decimal."""


@dataclass(frozen=True)
class Look:
    """One top-level field of one record, as columns."""

    name: str
    text: Column
    """The whole record."""
    spare: Column
    """Its bytes beyond those that its fields need."""
    witness: Column
    value: Column
    found: Column
    """The field in the second look."""


def room_for_harm(text: Column, spare: Column, shortest: int) -> Column:
    """Whether the record is long enough for a second key, an escape, or text after the object.

    `shortest` are the bytes of the shortest name that a declared object may have, at any depth.
    """
    second_key = shortest + KEY_BYTES
    return (
        ~F.startswith(text, F.lit("{"))
        | ~F.endswith(text, F.lit("}"))
        | (spare >= second_key)
        | ((spare >= ESCAPE_BYTES) & F.contains(text, F.lit("\\u")))
        | ((spare >= 1) & text.rlike(rf"\}}[^}}]{{0,{second_key}}}\}}\z"))
    )


def text_doubted(look: Look) -> Column:
    """A number, an object, an array or a boolean, once it is text, begins like this; most texts do not.

    A number past all doubles is the text "Infinity", with its quotes.
    """
    text = look.witness
    number = (text >= "-") & (text < ":") & text.rlike(r"\A-?\d+(?:\.\d+)?(?:E-?\d+)?\z")
    other = text.isin("true", "false", '"Infinity"', '"-Infinity"')
    return number | F.startswith(text, F.lit("{")) | F.startswith(text, F.lit("[")) | other


def text_replaced(text: Column) -> Column:
    """from_json reads bytes that are not UTF-8 as this character; so does a text that holds it."""
    return F.contains(text, F.lit("\ufffd"))


def text_disproved(look: Look) -> Column:
    return text_doubted(look) & (F.schema_of_variant(look.found) != "STRING")


def double_doubted(look: Look) -> Column:
    """Past 2^53 not every integer is a double; and a zero may be a number that was too small."""
    small = (look.witness == 0) & F.contains(F.lower(look.text), F.lit("e-"))
    return (F.abs(look.witness) >= EXACT_INTEGERS) | small


def double_disproved(look: Look) -> Column:
    return double_doubted(look) & double_is_changed(look.found, look.witness)


def double_is_changed(found: Column, double: Column) -> Column:
    """An integer past 2^53 must be the double itself, or what the double prints; a zero must be written as one."""
    kind = F.schema_of_variant(found)
    whole = F.try_variant_get(found, "$", "decimal(38,0)")
    kept = (double.try_cast("DECIMAL(38,0)") == whole) | (_integer(double) == whole)
    integer = (kind == "BIGINT") | F.endswith(kind, F.lit(",0)"))
    lost = (F.abs(double) >= EXACT_INTEGERS) & integer & ~F.coalesce(kept, F.lit(False))
    return lost | ((double == 0) & (kind == "DOUBLE"))


def _integer(double: Column) -> Column:
    """The integer that a double is; a cast gives the one that it prints. Null past 2^116."""
    high = (double / EXACT_INTEGERS).try_cast("BIGINT")
    low = (double - high.cast("DOUBLE") * EXACT_INTEGERS).try_cast("BIGINT")
    return high.cast("DECIMAL(20,0)") * F.lit(Decimal(EXACT_INTEGERS)) + low.cast("DECIMAL(20,0)")


def decimal_doubted(look: Look, *, room: int) -> Column:
    """Digits that may have been rounded away beyond the witness's room; a quoted number ("1,5" is read as 15).

    A rounding that the witness does not show takes `room` zeros and one more digit in the text. Only a number that
    is too small to leave a trace is shorter, and needs a negative exponent.
    """
    quoted = (look.spare >= QUOTE_BYTES) & look.text.rlike(rf'{_key(look.name)}\s*+:\s*+"')
    small = (look.witness == 0) & F.contains(F.lower(look.text), F.lit("e-"))
    return (look.spare > room) | quoted | small


def decimal_disproved(look: Look, declared: T.DecimalType) -> Column:
    """Exact where its own scale fits; with an exponent, where the widest witness says the same, and had the room."""
    kind = F.schema_of_variant(look.found)
    fits = kind.rlike(rf"\A(?:BIGINT|DECIMAL\(\d+,(?:{'|'.join(map(str, range(declared.scale + 1)))})\))\z")
    room = WIDEST - declared.precision
    wide = T.StructType([T.StructField(look.name, T.DecimalType(WIDEST, declared.scale + room))])
    again = F.from_json(look.text, wide).getField(look.name)
    key = rf"{_key(look.name)}\s*+:\s*+-?"
    zero = look.text.rlike(rf"{key}0(?:\.0++)?[eE]") & ~look.text.rlike(rf"{key}[0-9.]*?[1-9][0-9.]*+[eE]")
    short = look.text.rlike(rf"{key}[0-9.]{{1,{room - 1}}}[eE]") & ~look.text.rlike(rf"{key}[0-9.]{{{room}}}")
    # Written with escapes, a key is not found by these patterns, and one deeper down may be found instead.
    plain = look.name.isascii() and look.name.isprintable()
    spelled = ~look.text.rlike(r"\\u00[2-7]" if plain else r"\\u")
    exponent = (kind == "DOUBLE") & (again == look.value) & spelled & F.when(look.value == 0, zero).otherwise(short)
    return look.value.isNotNull() & ~(fits | F.coalesce(exponent, F.lit(False)))


def _key(name: str) -> str:
    return re.escape(json.dumps(name, ensure_ascii=False))
