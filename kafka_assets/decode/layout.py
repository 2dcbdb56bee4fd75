"""How one program writes its records: the same members in the same order each time, and between them only values.

Most topics are written so. Then a record is known by what stands the same in all of them, its *runs*, such as
`{"id":` and `,"name":"` and `"}`; what lies between two runs is a value. Where the runs are is told by the quotes:
a record without a backslash in which as many quotes stand, and each run where its own quotes are, is the runs and
the values and nothing else. That takes a few looks at all bytes of many records at once, and no parser.

It is JSON if each value is: a text without control characters, or a number or a word, which `numerals` tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kafka_assets.decode.json_text import NotJson, parse

Places = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Path = tuple[str, ...]

LONGEST = 16_384
"""Bytes of a record that is looked at for its layout."""

_QUOTE, _BACKSLASH, _BLANK = ord('"'), ord("\\"), ord(" ")
_PIECE = re.compile(rb'"(?P<text>[^"]*)"(?P<key>[ \t\r\n]*:)?|(?P<mark>[{}\[])|(?P<word>[^ \t\r\n{}\[\]:,"]+)')
_LOOK = 1 << 19
"""Bytes that are looked at together: they stay in the processor's cache until nothing more is asked of them."""
_END = -1
"""Where a run ends that has no quote of its own: with the record."""


class Value(NamedTuple):
    """Where a value stands in the record's objects, and whether in quotes."""

    path: Path
    quoted: bool


class _Run(NamedTuple):
    text: bytes
    quote: int
    """The first of its quotes, counted among all of the record's; or `_END`."""
    before: int
    """How many of its bytes stand before that."""


class Spans(NamedTuple):
    """What of some records is laid out so."""

    rows: Places | None
    """Which of them are; None where all are."""
    begins: list[Places]
    """For each value, where it begins in the bytes of these rows, and where it ends."""
    ends: list[Places]


@dataclass(frozen=True)
class Layout:
    """Of records that are each one object, with objects inside of it and no arrays."""

    values: tuple[Value, ...]
    objects: frozenset[Path]
    """The objects inside of it."""
    runs: tuple[_Run, ...]
    quotes: int
    controls: int
    """White space among its runs that is no blank."""

    @staticmethod
    def of(record: bytes) -> Layout | None:
        """That of this record, where it has one."""
        if len(record) > LONGEST or b"\\" in record:
            return None
        try:
            if not isinstance(parse(record.decode()), dict):
                return None
        except (NotJson, UnicodeDecodeError):
            return None
        found = _values(record)
        if found is None or not found[0]:
            return None
        values, objects, spans = found
        runs: list[_Run] = []
        ends = [begin for begin, _ in spans] + [len(record)]
        for start, end in zip([0, *(end for _, end in spans)], ends, strict=True):
            text = record[start:end]
            if _QUOTE in text:
                runs.append(_Run(text, record[:start].count(b'"'), text.index(b'"')))
            else:
                runs.append(_Run(text, _END, len(text)))
        controls = sum(one < _BLANK for run in runs for one in run.text)
        return Layout(tuple(values), frozenset(objects), tuple(runs), record.count(b'"'), controls)

    def spans(self, data: Bytes, bounds: Places) -> Spans:
        """Of records that lie one after the other in valid UTF-8, each between two bounds."""
        seen = _seen(data)
        rows, marks = self._marks(seen.quotes, bounds)
        starts, ends = (bounds[:-1], bounds[1:]) if rows is None else (bounds[rows], bounds[rows + 1])
        at = [ends - run.before if run.quote == _END else marks[:, run.quote] - run.before for run in self.runs]
        # Each of them behind the one before, from the record's start to its end: then all of it is inside.
        behind = [one + len(run.text) for one, run in zip(at, self.runs, strict=True)]
        fits = (at[0] == starts) & (behind[-1] == ends)
        for begin, end, value in zip(behind, at[1:], self.values, strict=False):
            fits &= (begin <= end) if value.quoted else (begin < end)
        if not fits.all():
            rows, at = _some(rows, fits), [one[fits] for one in at]
        fits = np.ones(len(at[0]), dtype=np.bool_)
        for one, run in zip(at, self.runs, strict=True):
            fits &= _stands_at(data, one, run.text)
        if not fits.all():
            rows, at = _some(rows, fits), [one[fits] for one in at]
        fits = self._are_plain(seen, data, bounds, rows)
        if not fits.all():
            rows, at = _some(rows, fits), [one[fits] for one in at]
        behind = [one + len(run.text) for one, run in zip(at, self.runs, strict=True)]
        return Spans(rows, behind[:-1], at[1:])

    def _marks(self, quotes: Places, bounds: Places) -> tuple[Places | None, Any]:
        """The records with as many quotes, and where those stand."""
        count = len(bounds) - 1
        if len(quotes) == count * self.quotes:
            marks = quotes.reshape(count, self.quotes)
            if (marks[:, 0] >= bounds[:-1]).all() and (marks[:, -1] < bounds[1:]).all():
                return None, marks
        firsts = np.searchsorted(quotes, bounds)
        rows = np.flatnonzero(np.diff(firsts) == self.quotes)
        return rows, quotes[firsts[rows][:, np.newaxis] + np.arange(self.quotes)]

    def _are_plain(self, seen: _Seen, data: Bytes, bounds: Places, rows: Places | None) -> Any:
        """Which of these rows, all with the layout's runs, have no backslash and no other control characters."""
        count = len(bounds) - 1
        plain = np.ones(count, dtype=np.bool_)
        # All rows have the layout's own: where there are no more of them, none has others.
        if rows is not None or seen.controls != count * self.controls:
            plain = np.bincount(_owners(data < _BLANK, bounds), minlength=count) == self.controls
        if seen.escapes:
            plain[_owners(data == _BACKSLASH, bounds)] = False
        return plain if rows is None else plain[rows]


class _Seen(NamedTuple):
    """What was seen in a look at all bytes."""

    quotes: Places
    controls: int
    escapes: bool


def _seen(data: Bytes) -> _Seen:
    quotes, controls, escapes = list[Places](), 0, False
    for start in range(0, max(1, len(data)), _LOOK):  # values may be empty, all of them
        part = data[start : start + _LOOK]
        quotes.append(np.flatnonzero(part == _QUOTE) + start)
        controls += int(np.count_nonzero(part < _BLANK))
        escapes = escapes or bool((part == _BACKSLASH).any())
    return _Seen(np.concatenate(quotes), controls, escapes)


def _owners(marks: Any, bounds: Places) -> Places:
    """The records that the marked bytes are of."""
    return np.searchsorted(bounds, np.flatnonzero(marks), side="right") - 1


def _values(record: bytes) -> tuple[list[Value], set[Path], list[tuple[int, int]]] | None:
    """The values of an object that is JSON, its inner objects, and where the values stand; None for an array."""
    values, objects, spans, met = list[Value](), set[Path](), list[tuple[int, int]](), set[Path]()
    inside: list[Path] = []
    path: Path = ()
    for piece in _PIECE.finditer(record):
        if (mark := piece["mark"]) is not None:
            if mark == b"[":
                return None
            if mark == b"}":
                inside.pop()
                continue
            inside.append(path)
            objects.add(path)
        elif piece["key"] is not None:
            path = (*inside[-1], piece["text"].decode())
            if path in met:
                return None
            met.add(path)
        else:
            quoted = piece["text"] is not None
            values.append(Value(path, quoted))
            spans.append(piece.span("text" if quoted else "word"))
    return values, objects - {()}, spans


def _stands_at(data: Bytes, at: Places, text: bytes) -> Any:
    """Whether this text stands at each of these places; from each on there are as many bytes."""
    size = len(text)
    # Every byte begins one of these, which overlap.
    every: Any = np.ndarray((max(len(data) - size + 1, 0),), f"S{size}", data, strides=(1,))
    return every[at] == text


def _some(rows: Places | None, fits: Any) -> Places:
    return np.flatnonzero(fits) if rows is None else rows[fits]
