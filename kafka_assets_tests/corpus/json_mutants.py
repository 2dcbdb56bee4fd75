"""Records that go wrong in many small ways, the same ones on every run."""

from __future__ import annotations

from random import Random

from kafka_assets_tests.corpus.json_values import CASES

FIELDS = {
    "id": "BIGINT",
    "tiny": "TINYINT",
    "price": "DECIMAL(12,2)",
    "fine": "DECIMAL(30,6)",
    "huge": "DECIMAL(38,18)",
    "ratio": "DOUBLE",
    "part": "FLOAT",
    "ok": "BOOLEAN",
    "note": "STRING",
    "body": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "tags": "ARRAY<STRING>",
    "sums": "ARRAY<DECIMAL(5,2)>",
    "counts": "MAP<STRING,BIGINT>",
    "inner": "STRUCT<x: INT NOT NULL, y: STRING>",
}
SCHEMA = ", ".join(f"{name} {type}" for name, type in FIELDS.items())

_GOOD = {
    "id": ("7", "-9223372036854775808", "null"),
    "tiny": ("127", "-128"),
    "price": ("12.50", "1e2", "-0.01", "9999999999.99", "3"),
    "fine": ("123456789012345678901234.123456", "1E-6", "0.5"),
    "huge": ("0.000000000000000001", "12345678901234567890.5"),
    "ratio": ("0.1", "-0.0", "1e300", "9007199254740992"),
    "part": ("0.1", "16777216", "-2.5"),
    "ok": ("true", "false"),
    "note": ('"a"', '""', '"12"', r'"\ud83d\ude00"', '"{}"', r'"\u0000"', '"é}"'),
    "body": ('"AQI="', '""', '"1234"'),
    "day": ('"2024-02-29"', '"0001-01-01"'),
    "at": ('"2024-01-01T00:00:00Z"', '"2024-03-10T02:30:00.123456-08:00"', '"9999-12-31 23:59:59.999999"'),
    "local": ('"2024-03-10T02:30:00"',),
    "tags": ('["a","12"]', "[]", "[null]"),
    "sums": ("[1.5,2]", "[null]"),
    "counts": ('{"a":1}', "{}"),
    "inner": ('{"x":1,"y":"b"}', '{"x":0}'),
}
_BYTES = [*b'{}[]",:\\0123456789-+.eEtfnul \n\t\x00/*', 0x80, 0xC3, 0xED, 0xFF]
_PIECES = (
    b"\\ud800", b"\\u0000", b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"1e400", b"NaN", b"{}", b"[]", b",",
    b'""', b"null", b"}{", b"\xef\xbb\xbf", b'"id":1,', b"00000000000000000000000000000001", b"\xef\xbf\xbd",
    b"e-9", b"E+2",
)  # fmt: skip


def mutants(count: int, *, seed: int) -> list[bytes]:
    random = Random(seed)
    return [_mutant(random) for _ in range(count)]


def _mutant(random: Random) -> bytes:
    record = _record(random)
    for _ in range(random.choice((0, 0, 1, 1, 1, 2, 3))):
        record = _spoiled(record, random)
    return record


def _record(random: Random) -> bytes:
    """Fields in any order, some missing, twice or undeclared; values good, or meant for another type."""
    names = random.sample(list(FIELDS), random.randint(1, 6))
    if random.random() < 0.05:
        names.append(random.choice(names))
    colon, comma = random.choice(((":", ","), (":", ","), (": ", ", "), (" :\n", "\t, ")))
    parts = [f'"{name}"{colon}{_token(name, random)}' for name in names]
    if random.random() < 0.2:
        parts.insert(random.randint(0, len(parts)), f'"more{random.randint(0, 9)}"{colon}{_token("inner", random)}')
    end = random.choice(("", "", "", "", "\n", " "))
    return ("{" + comma.join(parts) + "}" + end).encode()


def _token(name: str, random: Random) -> str:
    chance = random.random()
    if chance < 0.8:
        return random.choice(_GOOD[name])
    if chance < 0.95:
        same = [case.token for case in CASES if case.type == FIELDS[name]]
        return random.choice(same or ["1"])
    return random.choice(CASES).token


def _spoiled(record: bytes, random: Random) -> bytes:
    at = random.randint(0, len(record))
    to = min(len(record), at + random.randint(1, 6))
    byte = bytes([random.choice(_BYTES)])
    flipped = bytes([record[at] ^ (1 << random.randint(0, 7))]) if at < to else b""
    tail = record[:at] if random.random() < 0.5 else random.choice(_PIECES)
    spoiled = (
        record[:at] + byte + record[at:],
        record[:at] + record[to:],
        record[:at] + byte + record[at + 1 :],
        record[:at] + random.choice(_PIECES) + record[at:],
        record[:to] + record[at:],
        record[:at] + flipped + record[at + 1 :],
        record + tail,
    )
    return random.choice(spoiled)
