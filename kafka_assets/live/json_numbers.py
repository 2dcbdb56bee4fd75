"""Numbers as they are written, and the decimals that they are: exactly, or not at all."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from kafka_assets.live.json_text import Number

WIDEST = 38
"""Digits of the widest decimal."""
ROOM = 6
LONG_DIGITS = 18
_EXACT = Context(prec=2_100, rounding=ROUND_HALF_UP, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation])
"""Wider than the longest number that is read at all."""


class Misfit(Exception):
    """The value is not one of its type, exactly."""


def is_wide(kind: Any) -> bool:
    """Whether a decimal leaves no room for digits in which rounding would show."""
    return kind.precision + ROOM > WIDEST


def room_of(kind: Any) -> int:
    return (LONG_DIGITS if kind.precision + ROOM <= LONG_DIGITS else WIDEST) - kind.precision


def exactly(text: str) -> Decimal:
    return _EXACT.create_decimal(text)


def is_kept(number: Number) -> bool:
    """Whether a VARIANT keeps the number exactly: no exponent, and no more than 38 digits."""
    return number.plain and (len(number) <= WIDEST or _digits(number) <= WIDEST)


def fits(number: Number, scale: int) -> bool:
    """Whether the number is kept, and has no more digits behind the point than `scale`, zeros at the end aside."""
    if not is_kept(number):
        return False
    fraction = number.partition(".")[2].rstrip("0")
    return len(fraction) <= scale


def rounded(number: Number, *, precision: int, scale: int) -> Decimal:
    """Half up, as `from_json` does; a Misfit where it has more digits then."""
    exact = exactly(number)
    if not exact.is_finite():
        raise Misfit
    if exact.is_zero():
        return Decimal(0).scaleb(-scale)
    if exact.adjusted() >= precision - scale:
        raise Misfit
    if exact.adjusted() < -scale - 1:
        return Decimal(0).scaleb(-scale)
    made = exact.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if made.adjusted() >= precision - scale:
        raise Misfit
    return made


def witnessed_decimal(given: Any, kind: Any) -> Decimal:
    """The value where rounding to a wider type does not show it to be another; the rest is for a second look."""
    number = number_of(given)
    room = room_of(kind)
    wide = rounded(number, precision=kind.precision + room, scale=kind.scale + room)
    return _as(wide, kind)


def plain_decimal(given: Any, kind: Any) -> Decimal:
    number = number_of(given)
    if not fits(number, kind.scale):
        raise Misfit
    return _as(exactly(number), kind)


def _as(exact: Decimal, kind: Any) -> Decimal:
    try:
        made = exact.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    except InvalidOperation as error:
        raise Misfit from error
    if made != exact or (made and made.adjusted() >= kind.precision - kind.scale):
        raise Misfit
    return abs(made) if made.is_zero() else made


def _digits(number: Number) -> int:
    """Digits that a decimal needs for it: those behind the point, or all but leading zeros."""
    whole, _, fraction = number.lstrip("-").partition(".")
    return max(len(fraction), len((whole + fraction).lstrip("0")))


def number_of(given: Any) -> Number:
    if not isinstance(given, Number):
        raise Misfit
    return given
