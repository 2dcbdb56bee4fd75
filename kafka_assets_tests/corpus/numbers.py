"""Records whose numbers are written in every way there is, in records with and without room for harm."""

from __future__ import annotations

from random import Random

_FIELDS = ("n", "wide", "zero", "d", "l", "ds")
_EXPONENTS = ("", "", "e0", "E+1", "e2", "e-1", "e-2", "E-3", "e-9", "e10", "e+30", "e-40", "e400", "e-400")
_WHOLE = (
    "0", "1", "7", "10", "100", "120", "9007199254740993", "9007199254740992", "36893488147419103230", "1" + "0" * 25,
    "1" + "0" * 38, "1" + "0" * 40, "123456789012345678901234567890", "9" * 10, "1" * 12,
)  # fmt: skip
_FRACTIONS = (
    "", "", ".0", ".00", ".5", ".50", ".25", ".125", ".001", ".000", "." + "0" * 20, "." + "0" * 36 + "1",
    "." + "0" * 40, "." + "5" * 38, "." + "0" * 45 + "1",
)  # fmt: skip
_AROUND = ("", "", "", ',"more":1', ',"text":"e-mail"', ',"x":"\\u0041"', ',"x":"\\u00e9"', ',"deep":[{"n":1.5e2}]')


def number_records(count: int, *, seed: int) -> list[bytes]:
    random = Random(seed)
    return [_record(random) for _ in range(count)]


def _record(random: Random) -> bytes:
    colon = random.choice((":", ":", ": ", " :  "))
    names = random.sample(_FIELDS, random.choice((1, 1, 1, 2, 3)))
    parts = [f'"{name}"{colon}{_value(name, random)}' for name in names]
    space = random.choice(("", "", " ", " " * 8))
    return f"{{{space}{','.join(parts)}{random.choice(_AROUND)}{space}}}".encode()


def _value(name: str, random: Random) -> str:
    if name != "ds":
        return number(random)
    return f"[{','.join(number(random) for _ in range(random.randint(0, 2)))}]"


def number(random: Random) -> str:
    if random.random() < 0.2:
        return f"{random.uniform(-1000, 1000):.{random.randint(0, 12)}f}"
    sign = random.choice(("", "", "-"))
    return sign + random.choice(_WHOLE) + random.choice(_FRACTIONS) + random.choice(_EXPONENTS)
