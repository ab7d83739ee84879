"""Small charts as SVG, for the UI: no plotting library, no script, readable on dark and light.

`bars_and_line` shows amounts by window with a share on top (energy and SLO); `lines` shows several
series with a logarithmic or a plain axis (error of the networks); `parts` shows one whole divided
(seconds by step). `data_uri` makes any of them an image address that Prefect's UI shows.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["bars_and_line", "data_uri", "lines", "parts"]

_W, _H, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 320, 70, 60, 46, 46
_COLOURS = ("#3b6ea5", "#d9822b", "#3c9d6b", "#b5485d", "#7a5ea8", "#8a8a8a", "#c9b037", "#5fb7c6")
_WIDEST = 60.0  # of a bar: a single window is not a wall
_INK, _GRID = "#222", "#ddd"


def data_uri(svg: str) -> str:
    """The picture as an address of its own."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def bars_and_line(
    title: str,
    labels: Sequence[str],
    bars: Mapping[str, Sequence[float | None]],
    line: tuple[str, Sequence[float | None]],
    *,
    unit: str,
) -> str:
    """Bars by label (left axis, `unit`) and a share from 0 to 1 as a line (right axis)."""
    values = [v for series in bars.values() for v in series if v is not None]
    top = _nice(max(values, default=1.0))
    out = _frame(title, labels, top, unit)
    width = _step(labels)
    each = min(0.8 * width / max(1, len(bars)), _WIDEST)
    for number, series in enumerate(bars.values()):
        for index, value in enumerate(series):
            if value is not None:
                x = _LEFT + (index + 0.5) * width + (number - len(bars) / 2) * each
                y = _y(value, top)
                out.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{each:.1f}" '
                    f'height="{_y(0, top) - y:.1f}" fill="{_COLOURS[number]}"/>'
                )
    colour = _COLOURS[len(bars)]
    points = [
        (_LEFT + (index + 0.5) * width, _y(value, 1.0))
        for index, value in enumerate(line[1])
        if value is not None
    ]
    out += _path(points, colour)
    for share in (0.0, 0.5, 1.0):
        out.append(_text(_W - _RIGHT + 8, _y(share, 1.0) + 4, f"{share:.0%}", colour))
    out += _legend([*bars, line[0]])
    return _svg(out)


def lines(
    title: str,
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    *,
    unit: str,
) -> str:
    """One line for each series over the labels."""
    values = [v for found in series.values() for v in found if v is not None]
    top = _nice(max(values, default=1.0))
    out = _frame(title, labels, top, unit)
    width = _step(labels)
    for number, found in enumerate(series.values()):
        points = [
            (_LEFT + (index + 0.5) * width, _y(value, top))
            for index, value in enumerate(found)
            if value is not None
        ]
        out += _path(points, _COLOURS[number % len(_COLOURS)])
    out += _legend(list(series))
    return _svg(out)


def parts(title: str, shares: Mapping[str, float], *, unit: str) -> str:
    """One horizontal bar divided by share, with the amounts beneath."""
    total = sum(shares.values()) or 1.0
    out = [_text(20, 28, f"{title}: {sum(shares.values()):.1f} {unit}", _INK, size=17)]
    x, width = 20.0, _W - 40
    for number, (name, amount) in enumerate(shares.items()):
        part = width * amount / total
        colour = _COLOURS[number % len(_COLOURS)]
        out.append(f'<rect x="{x:.1f}" y="46" width="{part:.1f}" height="34" fill="{colour}"/>')
        column, row = number % 3, number // 3
        at_x, at_y = 20 + column * 275, 112 + row * 26
        out.append(f'<rect x="{at_x}" y="{at_y - 12}" width="12" height="12" fill="{colour}"/>')
        share = f"{name}: {amount:.2f} {unit} ({amount / total:.0%})"
        out.append(_text(at_x + 18, at_y, share, _INK))
        x += part
    return _svg(out, height=112 + 26 * math.ceil(len(shares) / 3))


def _step(labels: Sequence[str]) -> float:
    return (_W - _LEFT - _RIGHT) / max(1, len(labels))


def _y(value: float, top: float) -> float:
    return _TOP + (_H - _TOP - _BOTTOM) * (1 - min(value / top, 1.0))


def _nice(value: float) -> float:
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= value * 0.999)


def _frame(title: str, labels: Sequence[str], top: float, unit: str) -> list[str]:
    out = [_text(20, 24, title, _INK, size=17)]
    for quarter in range(5):
        value = top * quarter / 4
        y = _y(value, top)
        out.append(f'<path d="M{_LEFT} {y:.1f}H{_W - _RIGHT}" stroke="{_GRID}"/>')
        shown = f"{value:,.0f}" if top >= 10 else f"{value:.2g}"
        out.append(_text(_LEFT - 8, y + 4, shown, _INK, anchor="end"))
    out.append(_text(_LEFT - 8, _TOP - 8, unit, _INK, anchor="end"))
    width, every = _step(labels), max(1, math.ceil(len(labels) / 12))
    for index, label in enumerate(labels):
        if index % every == 0:
            x = _LEFT + (index + 0.5) * width
            out.append(_text(x, _H - _BOTTOM + 18, label, _INK, anchor="middle"))
    return out


def _path(points: Sequence[tuple[float, float]], colour: str) -> list[str]:
    if not points:
        return []
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return [f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _legend(names: Sequence[str]) -> list[str]:
    out = []
    for number, name in enumerate(names):
        x, colour = _LEFT + number * 190, _COLOURS[number % len(_COLOURS)]
        out.append(f'<rect x="{x}" y="{_H - 17}" width="12" height="12" fill="{colour}"/>')
        out.append(_text(x + 18, _H - 7, name, _INK))
    return out


def _text(
    x: float, y: float, text: str, colour: str, *, size: int = 12, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(parts_: Sequence[str], *, height: int = _H) -> str:
    body = "".join(parts_)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_W}" height="{height}" '
        f'viewBox="0 0 {_W} {height}" font-family="sans-serif">'
        f'<rect width="{_W}" height="{height}" rx="6" fill="#fff"/>{body}</svg>'
    )
