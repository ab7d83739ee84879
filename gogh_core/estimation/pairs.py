"""Measured pairs: ratios of shared to alone speed, fitted as sums of two manners.

On one column a pair's ratio is nearly the column's mean plus the sensitivity of the one and the
aggressiveness of the other; what two families do to each other beyond that is smoothed over
siblings on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.estimation.catalog import Catalog
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.opinions import MOST_JOBS, nan_median, one_sided

__all__ = ["Effects", "Pairs", "Smoothing", "add_shared_only"]

Array = np.ndarray[Any, Any]

# Mean ratio of a pair and its spread where no pair was ever measured: two equal halves, about.
_BLIND_RATIO, _BLIND_RATIO_SD = 0.6, 0.15
# With more jobs than this the smoothing is not chosen by leaving out.
_MOST_TRIED = 300


@dataclass(frozen=True)
class Effects:
    """Additive fit of the pairs' ratios: means by job and column, and how many pairs each."""

    mean: Array
    residual: Array
    own: tuple[Array, Array]
    on_partner: tuple[Array, Array]


@dataclass(frozen=True)
class Smoothing:
    """How residuals of pairs are smoothed, found on one catalog."""

    both: tuple[float, float]
    """Weight of near batch sizes and shrinkage, siblings on both sides."""
    rows: int | None = None
    mates: int | None = None
    """Kernels of `opinions` for siblings of the job, and of its partner."""


@dataclass(frozen=True)
class Pairs:
    """Measured ratios, directed: `job` next to `partner`."""

    job: Array
    partner: Array
    column: Array
    ratio: Array
    count: int

    @classmethod
    def of(cls, catalog: Catalog, table: Array, columns: int) -> Pairs:
        """Pairs whose job was also seen alone on the column; `table` are log speeds alone."""
        cells = catalog.cells
        rows = np.flatnonzero(cells.partner >= 0)
        alone = table[cells.job[rows], cells.column[rows]]
        rows, alone = rows[~np.isnan(alone)], alone[~np.isnan(alone)]
        ratio = np.clip(np.exp(cells.log[rows] - alone), 0.02, 1.1)
        return cls(cells.job[rows], cells.partner[rows], cells.column[rows], ratio, columns)

    def effects(self, shape: tuple[int, int]) -> Effects:
        """Backfitting with shrinkage: a job seen in few pairs keeps near the mean."""
        size = shape[0] * shape[1]
        own, other = self.job * shape[1] + self.column, self.partner * shape[1] + self.column
        n_own, n_other = np.bincount(own, minlength=size), np.bincount(other, minlength=size)
        n_col = np.bincount(self.column, minlength=shape[1])
        total = np.bincount(self.column, self.ratio, minlength=shape[1])
        overall = total.sum() + 3 * _BLIND_RATIO
        overall = overall / (n_col.sum() + 3)
        mean = (total + 3 * overall) / (n_col + 3)
        s, a = np.zeros(size), np.zeros(size)
        for _ in range(12):
            rest = self.ratio - mean[self.column] - a[other]
            s = np.bincount(own, rest, minlength=size) / (n_own + 0.3)
            rest = self.ratio - mean[self.column] - s[own]
            a = np.bincount(other, rest, minlength=size) / (n_other + 0.3)
        # A job of which nothing is known is like the median one, not like the mean.
        for effect, seen in ((s, n_own), (a, n_other)):
            middle = nan_median(np.where(seen > 0, effect, np.nan).reshape(shape), 0)
            middle = np.nan_to_num(middle)
            np.subtract(effect, np.where(seen > 0, np.tile(middle, shape[0]), 0.0), out=effect)
            mean = mean + middle
        left = self.ratio - mean[self.column] - s[own] - a[other]
        residual = (np.bincount(self.column, left**2, minlength=shape[1]) + 3 * 0.02) / (n_col + 3)
        fitted = (n_own > 0).reshape(shape).sum(0) + (n_other > 0).reshape(shape).sum(0)
        freed = np.maximum(1.0, n_col / np.maximum(1, n_col - 0.5 * fitted))
        residual = residual * np.minimum(freed, 3.0)
        blind = n_col == 0
        residual = np.where(blind, _BLIND_RATIO_SD**2, residual)
        # Shrunken values are handed on unshrunken: the process does its own shrinking.
        s, a = (
            s * (n_own + 0.3) / np.maximum(n_own, 1),
            a * (n_other + 0.3) / np.maximum(n_other, 1),
        )
        return Effects(
            mean, residual,
            (s.reshape(shape), n_own.reshape(shape)), (a.reshape(shape), n_other.reshape(shape)),
        )  # fmt: skip

    def interaction(
        self,
        effects: Effects,
        jobs: JobSet,
        shape: tuple[int, int],
        smoothing: Smoothing | None = None,
    ) -> tuple[Array | None, Smoothing | None]:
        """Residuals of pairs smoothed over siblings, [columns, jobs, jobs]; None: too few pairs.

        The mean of two: siblings on both sides at once, and siblings of the one next to the very
        same other. Without `smoothing` it is chosen by leaving jobs out.
        """
        if len(self.ratio) < 10:
            return None, smoothing
        left = (
            self.ratio - effects.mean[self.column]
            - effects.own[0][self.job, self.column]
            - effects.on_partner[0][self.partner, self.column]
        )  # fmt: skip
        live = np.unique(np.concatenate([self.job, self.partner]))
        number = np.zeros(shape[0], int)
        number[live] = np.arange(len(live))
        values = np.zeros((shape[1], len(live), len(live)), np.float32)
        here = np.zeros_like(values)
        values[self.column, number[self.job], number[self.partner]] = left
        here[self.column, number[self.job], number[self.partner]] = 1.0
        family, near = (kernel[:, live].astype(np.float32) for kernel in jobs.kernels()[:2])
        share, ridge = (0.7, 1.0) if smoothing is None else smoothing.both
        if smoothing is None and len(live) <= _MOST_TRIED:
            share, ridge = _choose_smoothing(family[live], near[live], values, here)
        sibling = (1 - share) * family + share * near
        out = np.empty((shape[1], shape[0], shape[0]), np.float32)
        for column in range(shape[1]):
            top = sibling @ values[column] @ sibling.T
            out[column] = top / (sibling @ here[column] @ sibling.T + ridge)
        if len(live) > MOST_JOBS:
            return out, Smoothing((share, ridge))
        kernels = jobs.kernels()
        left_over = np.where(here > 0, values, np.nan).astype(float)
        rows = one_sided(kernels, live, left_over, smoothing.rows if smoothing else None)
        turned = np.swapaxes(left_over, 1, 2)
        mates = one_sided(kernels, live, turned, smoothing.mates if smoothing else None)
        total = np.zeros(out.shape)
        weight = np.full(out.shape, 1e-6)
        for (mean, sure, _), swap in ((rows, False), (mates, True)):
            into = np.swapaxes(total, 1, 2) if swap else total
            onto = np.swapaxes(weight, 1, 2) if swap else weight
            into[:, :, live] += mean * sure
            onto[:, :, live] += sure
        out = (0.5 * out + 0.5 * total / weight).astype(np.float32)
        return out, Smoothing((share, ridge), rows[2], mates[2])


def _choose_smoothing(
    family: Array, near: Array, values: Array, here: Array
) -> tuple[float, float]:
    """Weight of near batch sizes and shrinkage that tell a left-out job's residuals best."""
    best, chosen = np.inf, (0.7, 1.0)
    for share in (0.3, 0.7, 1.0):
        sibling = (1 - share) * family + share * near
        others = sibling - np.diag(np.diag(sibling))
        top, total = _smooth(others, values, sibling), _smooth(others, here, sibling)
        for ridge in (0.1, 0.3, 1.0, 3.0, 30.0):
            missed = float(((values - top / (total + ridge)) ** 2 * here).sum())
            if missed < best:
                best, chosen = missed, (share, ridge)
    return chosen


def _smooth(left: Array, middle: Array, right: Array) -> Array:
    """Sums over siblings on both sides, [columns, jobs, jobs]."""
    return np.stack([left @ one @ right.T for one in middle])


def add_shared_only(
    catalog: Catalog, table: Array, noise: Array, effects: Effects, pairs: Pairs
) -> None:
    """A job that was only seen sharing tells of its speed alone too, more vaguely."""
    cells = catalog.cells
    rows = np.flatnonzero((cells.partner >= 0) & np.isnan(table[cells.job, cells.column]))
    if not len(rows):
        return
    column, partner = cells.column[rows], cells.partner[rows]
    share = effects.mean[column] + effects.on_partner[0][partner, column]
    implied = cells.log[rows] - np.log(np.clip(share, 0.1, 1.0))
    spread = (effects.residual[column] + 0.02) / np.clip(share, 0.1, 1.0) ** 2
    spread = spread + cells.variance[rows]
    key = cells.job[rows] * table.shape[1] + column
    total = np.bincount(key, 1 / spread, minlength=table.size)
    value = np.bincount(key, implied / spread, minlength=table.size)
    at = np.flatnonzero(total > 0)
    table.ravel()[at] = value[at] / total[at]
    noise.ravel()[at] = 1 / total[at]
