"""Plots of a run as SVG, for a page that loads nothing: bars of ratios, and curves of times by size. Both axes are logarithmic."""

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = {
    "ours": "#1668b8", "spark": "#d9822b", "delta-spark": "#2a8f5b", "deltalake": "#8a56a8", "ours-postgres": "#5aa2dd",
    "ours-postgres-far": "#9cc7ea",
}  # fmt: skip
_LABEL, _WIDTH, _LINE = 250, 860, 19
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 130, 16, 40
_CURVE_WIDTH, _CURVE_HEIGHT = 520, 270

Ratios = Sequence[tuple[str, Sequence[tuple[str, float]]]]
Curves = Mapping[str, Sequence[tuple[float, float]]]


def ratio_plot(ratios: Ratios) -> str:
    """Horizontal bars by task and engine; the line at 1 is this package, bars to its right are slower."""
    values = [value for _, engines in ratios for _, value in engines if value > 0]
    if not values:
        return ""
    low, high = min(0.5, *values), max(2.0, *values)
    scale = _Scale(low / 1.15, high * 1.15, _LABEL, _WIDTH - 70)
    height = 30 + sum(len(engines) * _LINE + 10 for _, engines in ratios)
    parts = [_grid(scale, tick, height) for tick in _ticks(low, high, most=12)]
    one, y = scale.at(1), 28.0
    for task, engines in ratios:
        parts.append(f'<text x="{_LABEL - 10}" y="{y + 13:.0f}" text-anchor="end" class="task">{escape(task)}</text>')
        for engine, value in engines:
            start, end = sorted((one, scale.at(value)))
            parts.append(
                f'<rect x="{start:.1f}" y="{y + 3:.0f}" width="{max(end - start, 1.5):.1f}" height="{_LINE - 6}" rx="2" '
                f'fill="{COLOURS.get(engine, "#777")}"><title>{escape(task)}: {escape(engine)} {value:.2f}</title></rect>'
                f'<text x="{max(end, one) + 5:.1f}" y="{y + 13:.0f}">{number(value)} {escape(engine)}</text>'
            )
            y += _LINE
        y += 10
    parts.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="20" y2="{height}" class="one"/>')
    return _svg(_WIDTH, height, parts)


def curve_plot(curves: Curves, *, x_label: str, y_label: str = "seconds") -> str:
    """A line for each name."""
    points = [point for line in curves.values() for point in line]
    if not points:
        return ""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    across = _Scale(min(xs) / 1.3, max(xs) * 1.3, _LEFT, _CURVE_WIDTH - _RIGHT)
    up = _Scale(min(ys) / 1.6, max(ys) * 1.6, _CURVE_HEIGHT - _BOTTOM, _TOP)
    parts = []
    for tick in _ticks(min(ys) / 1.6, max(ys) * 1.6, most=7):
        y = up.at(tick)
        parts.append(f'<line x1="{_LEFT}" x2="{_CURVE_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
    for size in sorted(set(xs)):
        parts.append(
            f'<text x="{across.at(size):.1f}" y="{_CURVE_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{size:,.0f}</text>'
        )
    middle = (_LEFT + _CURVE_WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{_CURVE_HEIGHT - 4}" text-anchor="middle" class="axis">{escape(x_label)}</text>'
    )
    parts.append(f'<text x="{_LEFT - 50}" y="{_TOP - 4}" class="axis">{escape(y_label)}</text>')
    ends = _spread([(name, up.at(line[-1][1])) for name, line in curves.items() if line])
    for name, line in curves.items():
        parts.append(_line(name, [(across.at(x), up.at(y)) for x, y in line], ends.get(name, 0.0)))
    return _svg(_CURVE_WIDTH, _CURVE_HEIGHT, parts)


def _line(name: str, points: Sequence[tuple[float, float]], label: float) -> str:
    if not points:
        return ""
    colour = COLOURS.get(name.partition(" (")[0], "#777")
    dashes = ' stroke-dasharray="5 4"' if "(" in name else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>{dots}'
        f'<text x="{points[-1][0] + 8:.1f}" y="{label + 4:.1f}" fill="{colour}">{escape(name)}</text>'
    )


def _spread(ends: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Heights of the labels, moved apart so that they do not overlap."""
    placed: dict[str, float] = {}
    last = -math.inf
    for name, y in sorted(ends, key=lambda end: end[1]):
        last = max(y, last + 14)
        placed[name] = last
    return placed


class _Scale:
    """A logarithmic axis."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._span = math.log(low), math.log(high) - math.log(low)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        return self._start + (math.log(value) - self._low) / self._span * (self._end - self._start)


def _ticks(low: float, high: float, *, most: int) -> list[float]:
    """Round numbers between the two: 1, 2 and 5 of each power of ten, or powers only."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        found = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
        if len(found) <= most:
            break
    return found or [math.sqrt(low * high)]


def _grid(scale: _Scale, tick: float, height: float) -> str:
    x = scale.at(tick)
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="20" y2="{height}" class="grid"/>'
        f'<text x="{x:.1f}" y="14" text-anchor="middle" class="axis">{number(tick)}</text>'
    )


def number(value: float) -> str:
    """Two significant digits or more."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1 else f"{value:.2g}"


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {width} {height:.0f}" width="{width}" role="img">{"".join(parts)}</svg>'
