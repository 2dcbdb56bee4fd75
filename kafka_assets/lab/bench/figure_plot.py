"""The figures of a benchmark of runs as a picture: bars beside each other, in SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from kafka_assets.audit.bench import Figure

_OURS = "Spark road"
"""What the names of our own roads begin with: their bars have a colour of their own."""
_WIDTH, _NAMES, _VALUES = 960, 360, 120
"""Of the picture; what is left for the names before the bars; and for the values behind them."""
_ROW, _BAR, _HEAD = 24, 14, 40
_OWN_COLOUR, _COLOUR, _INK = "#1f6feb", "#9aa4b1", "#1b1f24"
_STYLE = f"text{{font:13px sans-serif;fill:{_INK}}}.head{{font-weight:bold}}.small{{font-size:11px}}"


@dataclass(frozen=True)
class Bar:
    """One bar; `spread` is where its rounds lie, where there were several."""

    name: str
    value: float
    spread: tuple[float, float] | None = None


def plot(figures: Sequence[Figure], *, title: str) -> str:
    """The picture as the text of an SVG file: rates with their spread, processor time, and memory."""
    values = {figure.name: figure.value for figure in figures}
    panels = {
        "rows/s: the median, and from the slowest to the fastest round": list(_rates(figures, values)),
        "CPU seconds for a million rows: client, Spark, database and broker": _of_roads(values, ": CPU"),
        "memory of the client at its peak, MB (PSS)": _of_roads(values, ": peak PSS of the client"),
    }
    drawn: list[str] = []
    top = _HEAD + 10
    for head, bars in panels.items():
        if bars:
            drawn += _panel(head, bars, top)
            top += _HEAD + len(bars) * _ROW
    load = values.get("load average before, 1 minute"), values.get("load average after, 1 minute")
    drawn.append(
        f'<text class="small" x="10" y="{top + 12}">load average before and after: {load[0]}, {load[1]}</text>'
    )
    box = f'viewBox="0 0 {_WIDTH} {top + 26}" width="{_WIDTH}" height="{top + 26}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text class="head" x="10" y="26">{escape(title)}</text>',
            *drawn,
            "</svg>",
            "",
        ]
    )


def _rates(figures: Sequence[Figure], values: Mapping[str, float]) -> Iterator[Bar]:
    """Each rate that is a median, once: one that stands beside several others is listed several times."""
    rates = dict.fromkeys(figure.name for figure in figures if figure.unit == "rows/s")
    for name in rates:
        slowest = [values[other] for other in rates if other.startswith(f"{name}, slowest of ")]
        fastest = [values[other] for other in rates if other.startswith(f"{name}, fastest of ")]
        if slowest and fastest:
            yield Bar(name, values[name], (slowest[0], fastest[0]))


def _of_roads(values: Mapping[str, float], ending: str) -> list[Bar]:
    return [Bar(name.removesuffix(ending), value) for name, value in values.items() if name.endswith(ending)]


def _panel(head: str, bars: Sequence[Bar], top: float) -> Iterator[str]:
    most = max(max([bar.value, *(bar.spread or ())]) for bar in bars) or 1.0
    scale = (_WIDTH - _NAMES - _VALUES) / most
    yield f'<text class="head small" x="{_NAMES}" y="{top + 14}">{escape(head)}</text>'
    for number, bar in enumerate(bars):
        y = top + 22 + number * _ROW
        middle, base = y + _BAR / 2, y + _BAR - 2
        colour = _OWN_COLOUR if bar.name.startswith(_OURS) else _COLOUR
        end = _NAMES + bar.value * scale
        yield f'<text x="{_NAMES - 8}" y="{base}" text-anchor="end">{escape(bar.name)}</text>'
        yield f'<rect x="{_NAMES}" y="{y}" width="{end - _NAMES:.1f}" height="{_BAR}" fill="{colour}"/>'
        if bar.spread is not None:
            low, high = (_NAMES + value * scale for value in bar.spread)
            yield f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{_INK}" stroke-width="2"/>'
            end = max(end, high)
        yield f'<text x="{end + 8:.1f}" y="{base}">{_shown(bar.value)}</text>'


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"
