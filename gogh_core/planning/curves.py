"""A price or carbon intensity over time: read from bytes, asked for any moment.

A curve is a list of points (`at`, `value`) as CSV, JSON or Parquet; the content says which. `at` is
a moment (ISO 8601; UTC where it names no zone) or a time of day (`7`, `7.5`, `07:30`), which then
holds every day. A value holds until the next point. Values are per kWh (`cost`) or grams per kWh
(`carbon`); only their ratios matter for a plan. Rules for what is not as it should be:

- a point without a value (empty, null, NaN) is left out, so the value before it holds, and the
  plan says how many there were; text and infinities are refused;
- a curve of moments that ends too early goes on with its last day, or with its mean where it is
  shorter than a day;
- prices may be zero or negative. A ratio to such a price means nothing, so values count as at
  least `LEAST` of the largest one. Carbon below zero is refused.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from gogh_core.errors import InvalidInput

__all__ = ["UNITS", "Curve", "CurveKind", "read_curve", "zone_of"]

CurveKind = Literal["price", "carbon"]
UNITS: Mapping[CurveKind, str] = {"price": "per kWh", "carbon": "g/kWh"}
LEAST = 0.01
"""Values count as at least this share of the largest one, so that ratios stay finite."""
MOST_POINTS = 200_000
_DEEPEST = 8
_DAY_S = 86_400.0
_CLOCK = re.compile(r"\s*(\d{1,2})(?::(\d{2}))?\s*")
_SHAPE = "two columns: at (a moment or an hour of the day), value"
Floats = npt.NDArray[np.float64]
Point = tuple[str, Any, Any]
"""Where it stands, its time, its value, as they were read."""


@dataclass(frozen=True)
class Curve:
    """Values over time; each holds from its point to the next one."""

    kind: CurveKind
    at_s: Floats
    """Seconds since 1970, or since midnight in `zone` where the curve is the same every day."""
    values: Floats
    daily: bool = False
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    source: str = ""
    sha256: str = ""
    notes: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """`per kWh` or `g/kWh`."""
        return UNITS[self.kind]

    @property
    def ends_at(self) -> datetime | None:
        """The end of what the last point says; None for a curve that is the same every day."""
        return None if self.daily else datetime.fromtimestamp(self._end_s, UTC)

    @property
    def _end_s(self) -> float:
        """A last value holds as long as values usually do; a single one for a day."""
        steps = np.diff(self.at_s)
        return float(self.at_s[-1]) + (float(np.median(steps)) if steps.size else _DAY_S)

    def between(self, start: datetime, end: datetime) -> tuple[Floats, Floats]:
        """Edges (seconds since 1970, n + 1 of them) and the n values that count between them."""
        first_s, last_s = start.timestamp(), end.timestamp()
        at_s, values = self._spelt_out(first_s, last_s)
        inside = (at_s > first_s) & (at_s < last_s)
        edges = np.concatenate([[first_s], at_s[inside], [last_s]])
        index = np.searchsorted(at_s, edges[:-1], side="right") - 1
        return edges, np.maximum(values[index], LEAST * float(self.values.max()))

    def _spelt_out(self, first_s: float, last_s: float) -> tuple[Floats, Floats]:
        """Points that cover that time, the first of them not after its beginning."""
        if self.daily:
            return self._days(first_s, last_s)
        at_s, values, end_s = self.at_s, self.values, self._end_s
        mean = float(np.average(values, weights=np.diff(np.append(at_s, end_s))))
        if first_s < at_s[0]:
            at_s, values = np.append(first_s, at_s), np.append(mean, values)
        if last_s <= end_s:
            return at_s, values
        if end_s - self.at_s[0] < _DAY_S:
            return np.append(at_s, end_s), np.append(values, mean)
        since = end_s - _DAY_S
        began = np.searchsorted(at_s, since, side="right") - 1
        day_s = np.append(since, at_s[at_s > since])
        day = np.append(values[began], values[at_s > since])
        # Days that nobody asks for are left out: a curve may have ended years ago.
        days = np.arange(
            max(1, math.floor((first_s - since) / _DAY_S)), math.ceil((last_s - since) / _DAY_S) + 1
        )
        more = (day_s[None, :] + days[:, None] * _DAY_S).ravel()
        return np.append(at_s, more), np.append(values, np.tile(day, len(days)))

    def _days(self, first_s: float, last_s: float) -> tuple[Floats, Floats]:
        day = datetime.fromtimestamp(first_s, self.zone).date() - timedelta(days=1)
        last = datetime.fromtimestamp(last_s, self.zone).date()
        at_s: list[float] = []
        while day <= last:
            for second in self.at_s.tolist():
                whole = int(second)
                clock = time(whole // 3600, whole % 3600 // 60, whole % 60)
                at_s.append(datetime.combine(day, clock, self.zone).timestamp())
            day += timedelta(days=1)
        values = np.tile(self.values, len(at_s) // len(self.values))
        # An hour that a zone leaves out in spring comes at the same moment as the one after it.
        order = np.argsort(np.array(at_s), kind="stable")
        return np.array(at_s)[order], values[order]


def zone_of(name: str, *, where: str = "objective.zone") -> ZoneInfo:
    """The time zone of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(
            f"{name!r} is no time zone", where=where, todo="as in UTC or Europe/Vienna"
        ) from None


def read_curve(raw: bytes, kind: CurveKind, *, source: str, zone: ZoneInfo | None = None) -> Curve:
    """The curve in a file or an answer; one clear line when it is none."""
    points = _points(raw, source)
    if len(points) > MOST_POINTS:
        raise InvalidInput(
            f"has {len(points)} points, more than {MOST_POINTS}",
            where=source,
            todo="give the days that matter",
        )
    values = [_value(value, f"{source}, {place}", kind) for place, _, value in points]
    known = [(p, v) for p, v in zip(points, values, strict=True) if v is not None]
    if not known:
        raise InvalidInput("has no value", where=source, todo=f"it needs {_SHAPE}")
    daily = _is_daily([point[1] for point, _ in known], source)
    found: dict[float, float] = {}
    for (place, at, _), value in known:
        second = _clock_s(at) if daily else _moment_s(at, f"{source}, {place}")
        if second is None or found.setdefault(second, value) != value:
            raise InvalidInput(
                f"two values for {at}", where=f"{source}, {place}", todo="keep one of them"
            )
    seconds = np.array(sorted(found), dtype=np.float64)
    amounts = np.array([found[second] for second in sorted(found)], dtype=np.float64)
    if amounts.max() <= 0:
        raise InvalidInput("no value is above zero", where=source, todo="see its unit and its days")
    return Curve(
        kind,
        seconds,
        amounts,
        daily,
        zone or ZoneInfo("UTC"),
        source,
        hashlib.sha256(raw).hexdigest(),
        tuple(_notes(kind, amounts, len(points) - len(known))),
    )


def _notes(kind: CurveKind, values: Floats, missing: int) -> Iterable[str]:
    if missing:
        were = "value is" if missing == 1 else "values are"
        yield f"{missing} {were} missing in the {kind} curve: the one before counts"
    if (values < LEAST * values.max()).any():
        least = f"{LEAST:.0%} of its highest value"
        yield f"the {kind} curve is near zero or below in places: that counts as {least}"


def _points(raw: bytes, source: str) -> list[Point]:
    """Rows as they were read, each with the place it was read at."""
    text = raw.lstrip()[:1]
    if not text:
        raise InvalidInput("is empty", where=source, todo=f"it needs {_SHAPE}")
    if raw[:4] == b"PAR1":
        return _parquet(raw, source)
    return _json(raw, source) if text in (b"[", b"{") else _csv(raw, source)


def _parquet(raw: bytes, source: str) -> list[Point]:
    todo = f"it needs {_SHAPE}"
    try:
        file = pq.ParquetFile(pa.BufferReader(raw))
        names, rows = set(file.schema_arrow.names), file.metadata.num_rows
        if not {"at", "value"} <= names:
            raise InvalidInput("lacks at or value", where=source, todo=todo)
        if rows > MOST_POINTS:
            raise InvalidInput(f"has {rows} rows, more than {MOST_POINTS}", where=source)
        table = file.read(columns=["at", "value"])
        return [(f"row {i}", r["at"], r["value"]) for i, r in enumerate(table.to_pylist(), 1)]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInput("cannot be read as Parquet", where=source, todo=todo) from error


def _json(raw: bytes, source: str) -> list[Point]:
    """A list of {at, value}, or an object with such a list as `points`."""
    try:
        if _deepest(raw) > _DEEPEST:
            raise ValueError("too deep")
        found = json.loads(raw.decode())
        rows = found["points"] if isinstance(found, Mapping) else found
        return [(f"point {i}", row["at"], row["value"]) for i, row in enumerate(rows, 1)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput(
            "is no JSON list of points", where=source, todo='as in [{"at": "07:00", "value": 0.31}]'
        ) from error


def _deepest(raw: bytes) -> int:
    """Nesting at most: brackets inside texts count too, which a curve has none of."""
    depth = deepest = 0
    for sign in re.findall(rb"[\[{\]}]", raw):
        depth += 1 if sign in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _csv(raw: bytes, source: str) -> list[Point]:
    try:
        reader = csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline=""))
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        rows = [(f"line {reader.line_num}", row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput("is no CSV, JSON or Parquet", where=source) from error
    if not {"at", "value"} <= set(names):
        raise InvalidInput(
            "lacks at or value in its first line", where=source, todo=f"it needs {_SHAPE}"
        )
    return [(place, row["at"], row["value"]) for place, row in rows]


def _value(raw: Any, where: str, kind: CurveKind) -> float | None:
    """A number, or None where there is none."""
    text = raw.strip() if isinstance(raw, str) else raw
    if text is None or text == "":
        return None
    try:
        if isinstance(text, bool):
            raise ValueError("true and false are no numbers")
        value = float(text)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"value {str(raw)[:40]!r} is no number", where=where, todo="correct or empty it"
        ) from None
    if math.isnan(value):
        return None
    if math.isinf(value) or (kind == "carbon" and value < 0):
        raise InvalidInput(
            f"value {value:g} is no {kind}", where=where, todo="correct or remove it"
        )
    return value


def _is_daily(times: Sequence[Any], source: str) -> bool:
    clocks = sum(_clock_s(at) is not None for at in times)
    if 0 < clocks < len(times):
        raise InvalidInput(
            "has moments and hours of the day", where=source, todo="use one of the two for at"
        )
    return clocks > 0


def _clock_s(at: Any) -> float | None:
    """Seconds since midnight of `7`, `7.5`, `07:30` or a time; None where it is no hour."""
    if isinstance(at, time):
        return float(at.hour * 3600 + at.minute * 60 + at.second)
    if isinstance(at, str) and (match := _CLOCK.fullmatch(at)):
        hours, minutes = int(match[1]), int(match[2] or 0)
        return hours * 3600.0 + minutes * 60.0 if hours < 24 and minutes < 60 else None
    if isinstance(at, bool) or not isinstance(at, int | float | str):
        return None
    try:
        hour = float(at)
    except ValueError:
        return None
    return float(round(hour * 3600)) if 0 <= hour < 24 and round(hour * 3600) < _DAY_S else None


def _moment_s(at: Any, where: str) -> float:
    try:
        moment = at if isinstance(at, datetime) else datetime.fromisoformat(str(at).strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"at {str(at)[:40]!r} is neither a moment nor an hour of the day",
            where=where,
            todo="as in 2026-01-05T14:00Z or 14:00",
        ) from None
