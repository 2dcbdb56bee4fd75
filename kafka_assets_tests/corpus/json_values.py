"""JSON tokens for each declared type: the value that must land, or a part of the reason why it must not."""

# ruff: noqa: E501 - a table of tokens reads better in long lines

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


@dataclass(frozen=True)
class Bad:
    """The record is bad, and the reason says this."""

    reason: str = "does not fit"


@dataclass(frozen=True)
class Case:
    type: str
    token: str
    expected: Any

    @property
    def column(self) -> str:
        return COLUMNS[self.type]


TYPES = (
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "BOOLEAN",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(12,2)",
    "DECIMAL(18,6)",
    "DECIMAL(38,0)",
    "DECIMAL(38,18)",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "ARRAY<DECIMAL(5,2)>",
    "ARRAY<STRING>",
    "ARRAY<DOUBLE>",
    "ARRAY<TIMESTAMP>",
    "MAP<STRING,STRING>",
    "MAP<STRING,BIGINT>",
    "STRUCT<x: INT NOT NULL, y: STRING, z: ARRAY<TINYINT>>",
)
COLUMNS = {name: f"c{number}" for number, name in enumerate(TYPES)}
SCHEMA = ", ".join(f"{column} {name}" for name, column in COLUMNS.items())

NOT_JSON = Bad("not valid JSON")
HALF = Bad("half of a surrogate pair")
TWICE = Bad("stands twice in one object")
MISSING = Bad("missing or null, and declared NOT NULL")
_JUNK = (
    "NaN",
    "Infinity",
    "-Infinity",
    "+1",
    "01",
    ".5",
    "1.",
    "0x10",
    "True",
    "None",
    "'a'",
    "undefined",
    "1_000",
    "--1",
)


CASES: list[Case] = []


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def add(type: str, **expected: Any) -> None:
    """Each token of a type, and what becomes of it."""
    CASES.extend(Case(type, token, value) for token, value in expected.items())


for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("BIGINT", 64)):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for number in (0, 7, -1, low, high):
        add(name, **{str(number): number})
    for number in (low - 1, high + 1, high + 2, 2**bits - 1, 2**bits, 10**30):
        add(name, **{str(number): Bad()})
    add(name, **{"-0": 0, "null": None})
    add(name, **{"1.0": 1, "1e2": 100})
    add(name, **{token: Bad() for token in ("1.5", "true", '"12"', '""', '"abc"', "[1]", '{"a":1}')})
add("TINYINT", **{"200": Bad(), "255": Bad()})

add("BOOLEAN", true=True, false=False, null=None)
add("BOOLEAN", **{token: Bad() for token in ("1", "0", '"true"', '""', "[true]", "1.0")})

add(
    "DOUBLE",
    **{
        "0": 0.0,
        "1": 1.0,
        "0.1": 0.1,
        "-0.0": -0.0,
        "1e2": 100.0,
        "1.7976931348623157e308": 1.7976931348623157e308,
    },
)
add(
    "DOUBLE",
    **{
        "4.9e-324": 5e-324,
        "9007199254740992": 2.0**53,
        "9007199254740994": 2.0**53 + 2,
        "1e22": 1e22,
        "null": None,
    },
)
add(
    "DOUBLE",
    **{
        "0.10000000000000001": 0.1,
        "9223372036854775808": 2.0**63,
        "9223372036854776000": 2.0**63,
        "36893488147419103232": 2.0**65,
        "-18446744073709551616": -(2.0**64),
        "1e5": 1e5,
    },
)
add(
    "DOUBLE",
    **{
        "9007199254740993": 2.0**53,
        "-9007199254740993": -(2.0**53),
        "9223372036854775807": 2.0**63,
        "9223372036854775809": 2.0**63,
        "-36893488147419103233": -(2.0**65),
        "1e400": Bad(),
        "-1e400": Bad(),
        "1e-400": 0.0,
    },
)

add("DOUBLE", **{token: Bad() for token in ('"1.5"', '"NaN"', '"Infinity"', '""', "true", "[]", "{}")})

add(
    "FLOAT",
    **{
        "0.5": 0.5,
        "0.1": 0.10000000149011612,
        "0.10000000149011612": 0.10000000149011612,
        "16777216": 16777216.0,
        "null": None,
    },
)
add("FLOAT", **{"3.4028235e38": 3.4028234663852886e38, "-0.0": -0.0, "100": 100.0})
add(
    "FLOAT",
    **{
        "16777217": 16777216.0,
        "3.14159265358979": 3.1415927410125732,
        "1e-60": 0.0,
        "9007199254740993": 2.0**53,
        **{token: Bad() for token in ("1e39", '"NaN"', '"1"', "true")},
    },
)

add(
    "DECIMAL(12,2)",
    **{
        "1": Decimal("1.00"),
        "1.2": Decimal("1.20"),
        "1.230": Decimal("1.23"),
        "-0.0": Decimal("0.00"),
        "0.05": Decimal("0.05"),
        "null": None,
    },
)
add(
    "DECIMAL(12,2)",
    **{
        "1e2": Decimal("100.00"),
        "1.2e1": Decimal("12.00"),
        "5e-2": Decimal("0.05"),
        "5e9": Decimal("5000000000.00"),
        "1.230000000": Decimal("1.23"),
    },
)
add(
    "DECIMAL(12,2)",
    **{
        "9999999999.99": Decimal("9999999999.99"),
        "-9999999999.99": Decimal("-9999999999.99"),
        "1E+2": Decimal("100.00"),
        "0E-18": Decimal("0.00"),
        "0e5": Decimal("0.00"),
        "123456789.12e1": Decimal("1234567891.20"),
        "-5e-2": Decimal("-0.05"),
    },
)
add("DECIMAL(12,2)", **{token: Bad() for token in (
    "1.239", "1.001", "10000000000", "-10000000000.00", "1.0000001", "1.00000000000000000000000000000000001", "1e-40", "1e-3", "1e10", "1e999999999",
    "1.23000000000000000000000000000000000000000001", '"1.2"', '"1,5"', '"12"', '""', '"abc"', "true", "[1]", '{"a":1}', "0.001", "9999999999.995",
)})  # fmt: skip
add(
    "DECIMAL(18,6)",
    **{
        "123456789012.123456": Decimal("123456789012.123456"),
        "1E-6": Decimal("0.000001"),
        "0.1": Decimal("0.100000"),
        "1E-7": Bad(),
    },
)
nines = "9" * 38
add(
    "DECIMAL(38,0)",
    **{
        nines: Decimal(nines),
        "-" + nines: Decimal("-" + nines),
        "12": Decimal(12),
        "1.0": Decimal(1),
        nines + "9": Bad(),
        "0.5": Bad(),
        '"1"': Bad(),
        "null": None,
    },
)
add(
    "DECIMAL(38,18)",
    **{
        "12345678901234567890.123456789012345678": Decimal("12345678901234567890.123456789012345678"),
        "0.1": Decimal("0.1"),
        "0": Decimal(0),
    },
)
add(
    "DECIMAL(38,18)",
    **{token: Bad() for token in ("0.1234567890123456789", "123456789012345678901", "1e-19", '"0.1"')},
)

add(
    "STRING",
    **{
        '""': "",
        '"a"': "a",
        "null": None,
        '"null"': "null",
        '"12"': "12",
        '"true"': "true",
        '"{}"': "{}",
        '"[1]"': "[1]",
        '"-1.5"': "-1.5",
    },
)
add(
    "STRING",
    **{
        r'"\u0000"': "\0",
        r'"a\u0000b"': "a\0b",
        r'"\ud83d\ude00"': "😀",
        '"😀"': "😀",
        r'"\u00e9"': "é",
        r'"\/\b\f\n\r\t\"\\"': '/\b\f\n\r\t"\\',
    },
)
add(
    "STRING",
    **{
        '" 1 "': " 1 ",
        '"\u2028\ufeff\ufffd"': "\u2028\ufeff\ufffd",
        r'"\ufffd"': "\ufffd",
        r'"\\ud800"': r"\ud800",
        '"a}"': "a}",
        r'"\""': '"',
        '"?"': "?",
    },
)
add(
    "STRING",
    **dict.fromkeys(
        (r'"\ud800"', r'"\udc00"', r'"\udc00\ud800"', r'"a\uD83Db"', r'"\\\ud800"', r'"\ud83d\u0041"'), HALF
    ),
)
add(
    "STRING",
    **{token: Bad() for token in ("12", "-1.5", "1e2", "true", "false", "{}", '{"a":1}', "[]", '["a"]', "0")},
)
add("STRING", **dict.fromkeys(('"a\tb"', '"a\nb"', r'"\x41"', r'"\u00g0"', '"a', "\"a'"), NOT_JSON))

add(
    "BINARY",
    **{
        '""': b"",
        '"AQI="': b"\1\2",
        '"/+8="': b"\xff\xef",
        '"MTIz"': b"123",
        "null": None,
        '"1234"': bytes.fromhex("d76df8"),
        '"true"': bytes.fromhex("b6bb9e"),
    },
)
add(
    "BINARY",
    **{
        token: Bad()
        for token in ('"x"', '"AQI"', '"AQJ="', '"AQ I="', '"_-8="', "1234", "true", "[1]", '"AQI=\\n"', '"====="')
    },
)

add(
    "DATE",
    **{
        f'"{day}"': date.fromisoformat(day)
        for day in ("0001-01-01", "1582-10-10", "1970-01-01", "2024-02-29", "9999-12-31")
    },
)
add("DATE", **{token: Bad() for token in (
    '"2023-02-29"', '"2024-13-01"', '"2024-00-01"', '"0000-01-01"', '"10000-01-01"', '"-0001-01-01"', '"2024-1-1"', '"2024-01-01T00:00:00"',
    '"2024-01-01 "', '"2024"', '"20240101"', "20240101", "0", '""', '"today"', '"epoch"', "true", '"2024-01-01T"',
)})  # fmt: skip

add("TIMESTAMP", **{
    '"2024-01-01T00:00:00Z"': at("2024-01-01"), '"2024-01-01T00:00:00"': at("2024-01-01"), '"2024-01-01 00:00:00"': at("2024-01-01"),
    '"2024-03-10T02:30:00"': at("2024-03-10T02:30"), '"2024-01-01T00:00"': at("2024-01-01"),
    '"2024-01-01T10:00Z"': at("2024-01-01T10:00"), '"2024-01-01T00:00:00+0530"': at("2023-12-31T18:30:00"),
    '"2024-01-01T00:00:00+05:30"': at("2023-12-31T18:30:00"), '"2024-01-01T00:00:00-08:00"': at("2024-01-01T08:00:00"),
    '"2024-01-01T00:00:00.1Z"': at("2024-01-01T00:00:00.100000"), '"2024-01-01T00:00:00.123456Z"': at("2024-01-01T00:00:00.123456"),
    '"2024-01-01T00:00:00.123456000Z"': at("2024-01-01T00:00:00.123456"), '"0001-01-01T00:00:00Z"': at("0001-01-01"),
    '"9999-12-31T23:59:59.999999Z"': at("9999-12-31T23:59:59.999999"), '"1883-11-18T12:00:00"': at("1883-11-18T12:00"), "null": None,
    '"0001-01-01T00:00:00-01:00"': at("0001-01-01T01:00:00"), '"1969-12-31T23:59:59.999999"': at("1969-12-31T23:59:59.999999"),
})  # fmt: skip
add("TIMESTAMP", **{token: Bad() for token in (
    '"2024-01-01T00:00:00.1234567Z"', '"2024-01-01T00:00:00.123456789Z"', '"2024-02-30T00:00:00Z"', '"2024-01-01T24:00:00Z"',
    '"2024-01-01T23:59:60Z"', '"2024-01-01T00:61:00Z"', '"2024-01-01"', '"2024"', '"12:00:00"', '"T12:00:00Z"', "1700000000", "1700000000000",
    "1.5", '"1700000000"', '"2024-01-01T00:00:00 Europe/Berlin"', '"2024-01-01T00:00:00[UTC]"', '"now"', '""', '" "',
    '"2024-01-01T00:00:00+99:00"', '"0001-01-01T00:00:00+01:00"', '"9999-12-31T23:59:59-01:00"', '"0000-12-31T23:59:59Z"', '"10000-01-01T00:00:00Z"',
    '"2024-1-1T0:0:0Z"', '"2024-01-01T00:00:00Z "', '"2024-01-01T00:00:00UTC"', '"2024-01-01t00:00:00z"', "true", "[]", "{}", '"2024-01-01T00:00:00."',
    '"2024-01-01T00:00:00+18:01"', '"+2024-01-01T00:00:00Z"', '"２０２４-01-01T00:00:00Z"',
)})  # fmt: skip
add("TIMESTAMP_NTZ", **{
    '"2024-03-10T02:30:00"': datetime(2024, 3, 10, 2, 30), '"0001-01-01 00:00:00"': datetime(1, 1, 1),
    '"9999-12-31T23:59:59.999999"': datetime(9999, 12, 31, 23, 59, 59, 999999), "null": None,
})  # fmt: skip
add(
    "TIMESTAMP_NTZ",
    **{
        token: Bad()
        for token in (
            '"2024-01-01T00:00:00Z"',
            '"2024-01-01T00:00:00+01:00"',
            '"2024-01-01"',
            "0",
            '"2024-01-01T00:00:00.1234567"',
        )
    },
)

add(
    "ARRAY<DECIMAL(5,2)>",
    **{"[]": [], "[1e2]": [Decimal("100.00")], "[1,2.50,null]": [Decimal("1.00"), Decimal("2.50"), None], "null": None},
)
add(
    "ARRAY<DECIMAL(5,2)>",
    **{token: Bad() for token in ("[1.239]", "[1,1000]", '["1"]', "1", "{}", "[[1]]", '"[1]"')},
)
add(
    "ARRAY<STRING>",
    **{
        '["a","12",null,""]': ["a", "12", None, ""],
        r'["\u0000"]': ["\0"],
        "[12]": Bad(),
        "[true]": Bad(),
        "[{}]": Bad(),
        '"a"': Bad(),
        r'["\ud800"]': HALF,
    },
)
add(
    "ARRAY<DOUBLE>",
    **{
        "[0.1,-1,null,1e2]": [0.1, -1.0, None, 100.0],
        "[9007199254740993]": [2.0**53],
        "[1e400]": Bad(),
        "[1e-400]": [0.0],
        '["1"]': Bad(),
        '["NaN"]': Bad(),
    },
)
add(
    "ARRAY<TIMESTAMP>",
    **{'["2024-01-01T00:00:00Z"]': [at("2024-01-01")], "[1700000000]": Bad(), '["2024-02-30T00:00:00Z"]': Bad()},
)
add(
    "MAP<STRING,STRING>",
    **{
        "{}": [],
        '{"a":"b","c":null}': [("a", "b"), ("c", None)],
        '{"a":1}': Bad(),
        '{"a":"b","a":"b"}': TWICE,
        "[]": Bad(),
        '"a"': Bad(),
    },
)
add(
    "MAP<STRING,BIGINT>",
    **{'{"a":1}': [("a", 1)], '{"a":1.0}': [("a", 1)], '{"a":"1"}': Bad(), '{"a":9223372036854775808}': Bad()},
)
struct = TYPES[-1]
add(struct, **{
    '{"x":1,"y":"a","z":[1,-128]}': {"x": 1, "y": "a", "z": [1, -128]}, '{"x":1}': {"x": 1, "y": None, "z": None},
    '{"x":1,"other":{}}': {"x": 1, "y": None, "z": None}, "null": None,
})  # fmt: skip
add(
    struct,
    **{
        token: Bad()
        for token in (
            '{"x":1,"y":2}',
            '{"x":1,"z":[200]}',
            '{"x":2147483648}',
            "[]",
            '"a"',
            "1",
        )
    },
)
add(struct, **{'{"x":1,"x":1}': TWICE})
add(struct, **dict.fromkeys(("{}", '{"y":"a"}', '{"x":null}'), MISSING))
for name in ("BIGINT", "DOUBLE", "DECIMAL(12,2)", "STRING", "ARRAY<STRING>"):
    add(name, **dict.fromkeys(_JUNK, NOT_JSON))
