"""What a catalog lets us believe of each job on each column: three quantities with spreads.

Alone: the log throughput. Sensitivity: how much a partner takes from the job. Aggressiveness: how
much the job takes from its partner. A pair's ratio (pair over alone) is the column's mean plus the
sensitivity of the one, the aggressiveness of the other, and what their families do to each other
beyond that; so a job is looked at once and millions of pairs are sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.estimation.catalog import Catalog, Column
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.pairs import Pairs, add_shared_only, nan_median
from gogh_core.estimation.process import (
    JobKernels,
    Kernel,
    Observed,
    fit_variances,
    posterior,
)
from gogh_core.estimation.roofline import column_likeness, column_speed, step_seconds

__all__ = ["AGGRESSIVE", "ALONE", "SENSITIVE", "Beliefs", "Hyper", "believe", "nan_median"]

Array = np.ndarray[Any, Any]

ALONE, SENSITIVE, AGGRESSIVE = 0, 1, 2
# A job next to another keeps at least this share of its speed, and never gains.
RATIO_LOW, RATIO_HIGH = 0.05, 1.0
# Centres of the priors on variances: job kernels for all columns, then by column, as in COMMON.
_MANNERS = [0.024, 0.012, 0.009, 0.006, 0.015, 0.006, 0.003, 0.003, 0.003, 0.0015, 0.024, 0.012]
_START = {
    ALONE: [
        0.3,
        0.1,
        0.2,
        0.2,
        0.02,
        0.005,
        0.2,
        0.02,
        0.1,
        0.1,
        0.01,
        0.005,
        0.01,
        0.01,
        0.1,
        0.02,
        0.3,
        0.01,
    ],
    SENSITIVE: _MANNERS,
    AGGRESSIVE: _MANNERS,
}
_CELL_START = [0.01, 0.004]
_NOISE = {ALONE: 0.003, SENSITIVE: 0.001, AGGRESSIVE: 0.001}
_REFERENCE_CELLS = 1500
# An unseen column's effect, an unseen unit's offset: standard deviations in logs.
_UNSEEN_COLUMN_SD, _UNSEEN_SCALE_SD, _BLIND_SCALE_SD = 0.35, 0.9, 2.5


@dataclass(frozen=True)
class Hyper:
    """Variances of the three processes, found on one catalog."""

    kernels: tuple[Kernel, Kernel, Kernel]


@dataclass(frozen=True)
class Beliefs:
    """Means and variances [3 quantities, jobs, columns], and how pairs combine."""

    columns: tuple[Column, ...]
    mean: Array
    variance: Array
    observed: Array
    """How many cells of the job and quantity were measured, [3, jobs, columns]."""
    ratio: Array
    """Mean ratio of a pair, [columns]."""
    ratio_variance: Array
    """Of a pair's ratio around the sum, [columns]."""
    interaction: Array | None
    """What two jobs do to each other beyond the sum, [columns, jobs, jobs]; None: nothing known."""
    hyper: Hyper
    centre: Array
    """Column medians (log throughput) of the catalog, [columns]; NaN for unseen columns."""
    roofline: Array
    """Log throughput from facts alone, [jobs, columns]; NaN without facts."""
    simple: Array
    """What siblings or medians say of the three quantities, [3, jobs, columns]."""
    cell: Array
    """Step time and use of the GPU as features, [jobs, columns, 2]."""
    ratio_width: Array
    """Factor on the spread of a job's ratios, [jobs]."""
    lean: Array
    """How many variances below the centre the estimate of a job lies, [jobs]."""

    def ratio_of(
        self, job: Array, partner: Array, column: Array, *, clip: bool = True
    ) -> tuple[Array, Array]:
        """Throughput of `job` next to `partner` over alone, and its standard deviation."""
        said = self.ratio[column] + self.mean[SENSITIVE][job, column]
        said = said + self.mean[AGGRESSIVE][partner, column]
        if self.interaction is not None:
            said = said + self.interaction[column, job, partner]
        own = self.variance[SENSITIVE][job, column]
        theirs = self.variance[AGGRESSIVE][partner, column]
        # The width that counts is that of whom we know less.
        total = own + theirs
        width = (own * self.ratio_width[job] + theirs * self.ratio_width[partner]) / total
        sd = width * np.sqrt(total + self.ratio_variance[column])
        if clip:
            said = np.clip(said, RATIO_LOW, RATIO_HIGH)
        return np.asarray(said), np.asarray(sd)


def believe(
    catalog: Catalog,
    jobs: JobSet,
    columns: Sequence[Column],
    *,
    ask: Array | None = None,
    hyper: Hyper | None = None,
) -> Beliefs:
    """Everything the catalog says of all jobs (or only of `ask`) on the columns.

    `columns` begins with the catalog's own. Without `hyper` the variances are fitted here.
    """
    columns = tuple(columns)
    who = np.arange(len(jobs.names)) if ask is None else np.asarray(ask)
    shape = (len(jobs.names), len(columns))
    kernel_jobs = jobs.kernels()
    likeness = column_likeness(columns)
    speed = column_speed(columns)
    plain = JobKernels(kernel_jobs, likeness, speed - speed.mean())

    seconds = step_seconds(jobs.jobs, jobs.facts, columns)
    with np.errstate(divide="ignore"):
        roofline = -np.log(seconds.sum(axis=-1))
    prior = np.where(np.isnan(roofline), column_speed(columns)[None], roofline)

    cells = catalog.cells
    alone = np.flatnonzero(cells.partner < 0)
    table = np.full(shape, np.nan)
    table[cells.job[alone], cells.column[alone]] = cells.log[alone]
    noise = np.full(shape, np.nan)
    noise[cells.job[alone], cells.column[alone]] = cells.variance[alone]

    pairs = Pairs.of(catalog, table, len(columns))
    effects = pairs.effects(shape)
    add_shared_only(catalog, table, noise, effects, pairs)

    level = _Level.of(table - prior, jobs.unit_code, likeness)
    base = prior + level.of_cells(jobs.unit_code)
    at = np.nonzero(~np.isnan(table))
    seen = Observed(at[0], at[1], table[at] - base[at], noise[at])
    first = hyper.kernels[0] if hyper else fit_variances(
        plain, seen, np.array(_START[ALONE]), _NOISE[ALONE]
    )  # fmt: skip
    mean = np.zeros((3, *shape))
    variance = np.zeros((3, *shape))
    mean[0], variance[0] = _settle(plain, first, seen, who, shape)
    mean[0] += base
    variance[0] += level.variance(jobs.unit_code, jobs.has_facts)

    cell = _cell_features(mean[0], table, seconds, jobs.has_facts)
    spread = max(float(np.nanvar(table)), 0.1) if (~np.isnan(table)).any() else 1.0
    trust = np.where(np.isnan(table), np.clip(1 - 2 * variance[0] / spread, 0.0, 1.0), 1.0)
    featured = JobKernels(kernel_jobs, likeness, None, cell, trust)
    found = [first]
    simple = [_simple(jobs, table - base, table) + base]
    observed = np.zeros((3, *shape))
    observed[0] = ~np.isnan(table)
    for quantity, (values, counts) in ((SENSITIVE, effects.own), (AGGRESSIVE, effects.on_partner)):
        at = np.nonzero(counts > 0)
        seen = Observed(at[0], at[1], values[at], effects.residual[at[1]] / counts[at])
        start = np.array(_START[quantity] + _CELL_START)
        kernel = hyper.kernels[quantity] if hyper else fit_variances(
            featured, seen, start, _NOISE[quantity]
        )  # fmt: skip
        found.append(kernel)
        mean[quantity], variance[quantity] = _settle(featured, kernel, seen, who, shape)
        observed[quantity] = counts
        simple.append(_simple(jobs, np.where(counts > 0, values, np.nan), None))
    centre = nan_median(table, 0)
    return Beliefs(
        columns, mean, np.maximum(variance, 1e-8), observed, effects.mean, effects.residual,
        pairs.interaction(effects, jobs, shape), Hyper((found[0], found[1], found[2])), centre,
        roofline, np.stack(simple), cell, np.ones(shape[0]), np.zeros(shape[0]),
    )  # fmt: skip


def _simple(jobs: JobSet, values: Array, own: Array | None) -> Array:
    """All siblings by nearness in log batch size, zero without any; moved to meet own cells."""
    kernel = jobs.kernels()[0] - np.eye(len(jobs.names))
    batch = np.nan_to_num(jobs.log_batch)
    kernel = kernel / np.maximum(np.abs(batch[:, None] - batch[None]), 0.05)
    mask = ~np.isnan(values)
    weight = kernel @ mask
    said = kernel @ np.nan_to_num(values) / np.where(weight > 0, weight, 1.0)
    if own is not None:
        gap = np.where(mask, values - said, 0.0).sum(1) / np.maximum(mask.sum(1), 1)
        said = said + gap[:, None]
    return np.asarray(said)


def _settle(
    kernels: JobKernels, kernel: Kernel, seen: Observed, who: Array, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Posterior of the asked jobs; large catalogs: from a part of it and the job's own cells."""
    mean, variance = np.zeros(shape), np.zeros(shape)
    reference = seen
    left_out = np.zeros(shape[0], bool)
    if len(seen.value) > _REFERENCE_CELLS:
        jobs = np.unique(seen.job)
        keep = jobs[:: int(np.ceil(len(seen.value) / _REFERENCE_CELLS))]
        left_out[jobs] = True
        left_out[keep] = False
        reference = seen.take(np.flatnonzero(~left_out[seen.job]))
    centre, covariance = posterior(kernels, kernel, reference, who, shape[1])
    rows = {int(job): i for i, job in enumerate(who)}
    own = np.flatnonzero(left_out[seen.job] & np.isin(seen.job, who))
    order = own[np.argsort(seen.job[own], kind="stable")]
    for cells in np.split(order, np.flatnonzero(np.diff(seen.job[order])) + 1):
        if not len(cells):
            continue
        i, at = rows[int(seen.job[cells[0]])], seen.column[cells]
        block = covariance[i][np.ix_(at, at)].copy()
        block[np.diag_indices_from(block)] += seen.noise[cells] + kernel.noise
        gain = np.linalg.solve(block, covariance[i][at]).T
        centre[i] = centre[i] + gain @ (seen.value[cells] - centre[i][at])
        covariance[i] = covariance[i] - gain @ covariance[i][at]
    mean[who] = centre
    variance[who] = np.diagonal(covariance, axis1=1, axis2=2) + kernel.noise
    return mean, variance


@dataclass(frozen=True)
class _Level:
    """Column effects and the offset of each unit, by medians; what was not seen is wide."""

    column: Array
    column_sd: Array
    offset: dict[int, float]

    @classmethod
    def of(cls, residual: Array, units: Array, likeness: Array) -> _Level:
        count = residual.shape[1]
        column = np.zeros(count)
        seen = (~np.isnan(residual)).any(axis=0)
        offset: dict[int, float] = {}
        if seen.any():
            job = np.zeros(len(residual))
            for _ in range(8):
                job = nan_median(residual - column, 1)
                step = nan_median(residual - job[:, None], 0)
                column = np.where(seen, np.nan_to_num(step), 0.0)
            column = np.where(seen, column - column[seen].mean(), 0.0)
            job = nan_median(residual - column, 1)
            for unit in np.unique(units[~np.isnan(job)]):
                offset[int(unit)] = float(np.median(job[(units == unit) & ~np.isnan(job)]))
        weight = likeness[:, seen] if seen.any() else np.zeros((count, 0))
        borrowed = (weight @ column[seen]) / (weight.sum(axis=1) + 0.2) if seen.any() else column
        nearest = weight.max(axis=1) if seen.any() else np.zeros(count)
        return cls(
            np.where(seen, column, borrowed),
            np.where(seen, 0.0, _UNSEEN_COLUMN_SD * np.sqrt(1.2 - np.minimum(nearest, 1.0))),
            offset,
        )

    def of_cells(self, units: Array) -> Array:
        usual = float(np.mean(list(self.offset.values()))) if self.offset else 0.0
        offsets = np.array([self.offset.get(int(unit), usual) for unit in units])
        return offsets[:, None] + self.column[None]

    def variance(self, units: Array, has_facts: Array) -> Array:
        blind = np.where(has_facts, _UNSEEN_SCALE_SD, _BLIND_SCALE_SD)
        new = np.array([0.0 if int(u) in self.offset else 1.0 for u in units]) * blind
        return np.asarray(new[:, None] ** 2 + self.column_sd[None] ** 2)


def _cell_features(mean: Array, table: Array, seconds: Array, has_facts: Array) -> Array:
    """What a cell's speed alone says of its manners: log step time and log use of the GPU.

    Clipped to the range of measured cells: nothing is extrapolated to longer or lighter steps.
    """
    busy = np.log(np.maximum(seconds[..., :2].sum(-1), 1e-9)) + mean
    busy = np.where(has_facts[:, None], np.clip(busy, -4, 0.5), -1.0)
    seen = ~np.isnan(table)
    out = np.empty((*mean.shape, 2))
    for i, feature in enumerate((mean, busy)):
        values = feature[seen]
        low, high = np.percentile(values, [2, 98]) if len(values) else (0.0, 1.0)
        spread = max(float(values.std()) if len(values) else 1.0, 0.3)
        out[..., i] = (np.clip(feature, low, high) - low) / spread
    return out
