"""From progress reports to a throughput that a pause or an outlier does not bend.

Reports become steps over time; pauses for checkpoints and the warm-up are cut; the rest is put into
bins of at least ten seconds and about ten steps. The throughput is that of the bins within half and
twice their median, the spread is the robust standard deviation of the bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Rate", "Reports", "robust_rate"]

_BIN_S = 10.0
_BIN_STEPS = 10.0
_MAX_GAP_S = 120.0
_MAD_TO_SIGMA = 1.4826

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of one rank of a job in order of time."""

    ts: Floats
    steps: Floats
    attempt: Floats
    checkpoint: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def between(self, start: float, end: float) -> Reports:
        """Those from start to end."""
        lo, hi = np.searchsorted(self.ts, [start, end])
        hi = min(hi + 1, len(self.ts)) if hi < len(self.ts) and self.ts[hi] == end else hi
        return Reports(
            self.ts[lo:hi], self.steps[lo:hi], self.attempt[lo:hi], self.checkpoint[lo:hi]
        )


@dataclass(frozen=True, slots=True)
class Rate:
    """A throughput, its spread, the reports it stands on and the seconds they cover."""

    throughput: float
    spread: float
    samples: int
    seconds: float


def robust_rate(
    parts: Sequence[Reports], pauses: Sequence[tuple[float, float]] = ()
) -> Rate | None:
    """The throughput over several stretches; None when there is too little to say."""
    spans, gains = [], []
    for part in parts:
        dt, gained = np.diff(part.ts), np.diff(part.steps)
        good = (dt > 0) & (dt <= _MAX_GAP_S) & (np.diff(part.attempt) == 0) & (gained >= 0)
        # Both ends of a pause are marked: nothing between two marks counts.
        good &= ~(part.checkpoint[:-1] & part.checkpoint[1:])
        for start, end in pauses:
            good &= ~((part.ts[:-1] < end) & (part.ts[1:] > start))
        spans.append(dt[good])
        gains.append(gained[good])
    if not spans:
        return None
    dt, gained = np.concatenate(spans), np.concatenate(gains)
    total_s, total = float(dt.sum()), float(gained.sum())
    if len(dt) < 3 or total_s <= 0 or total <= 0:
        return None
    width = max(_BIN_S, _BIN_STEPS * total_s / total)
    width = min(width, total_s / 3)
    bins = np.minimum(((np.cumsum(dt) - dt / 2) / width).astype(np.int64), len(dt))
    seconds = np.bincount(bins, dt)
    steps = np.bincount(bins, gained)
    full = seconds >= 0.5 * np.median(seconds[seconds > 0])
    seconds, steps = seconds[full], steps[full]
    rates = steps / seconds
    middle = float(np.median(rates))
    if middle <= 0:
        return None
    used = (rates >= 0.5 * middle) & (rates <= 2.0 * middle)
    throughput = float(steps[used].sum() / seconds[used].sum())
    spread = _MAD_TO_SIGMA * float(np.median(np.abs(rates[used] - np.median(rates[used]))))
    return Rate(throughput, spread, len(dt), total_s)
