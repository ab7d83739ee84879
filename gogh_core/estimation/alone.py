"""Speed alone: the process over log throughputs, centred on hardware facts and measured levels.

`process_alone` is run with what is known of the architectures, and once more as if nothing were: an
opinion that facts cannot mislead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.estimation.catalog import Column
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.opinions import nan_median
from gogh_core.estimation.process import (
    Conditioned,
    JobKernels,
    Kernel,
    Observed,
    fit_variances,
    settle,
)
from gogh_core.estimation.roofline import column_likeness, column_speed, step_seconds

__all__ = ["Alone", "process_alone", "siblings"]

Array = np.ndarray[Any, Any]

# Centres of the priors on variances: job kernels for all columns, by column, and tilted.
_START = np.array([
    0.3, 0.1, 0.2, 0.2, 0.02, 0.005, 0.2, 0.02, 0.1, 0.1,
    0.01, 0.005, 0.01, 0.01, 0.1, 0.02, 0.3, 0.01,
])  # fmt: skip
_NOISE = 0.003
# An unseen column's effect, an unseen unit's offset: standard deviations in logs.
_UNSEEN_COLUMN_SD, _UNSEEN_SCALE_SD, _BLIND_SCALE_SD = 0.35, 0.9, 2.5


@dataclass(frozen=True)
class Alone:
    """Mean and variance of log throughputs [jobs, columns], and what they rest on."""

    mean: Array
    variance: Array
    kernel: Kernel
    seconds: Array
    """Of one step by part, from facts alone, [jobs, columns, parts]; NaN without facts."""
    simple: Array
    """What siblings say, or the centre."""
    evidence: Array
    """Log density of each job's own cells, told from the others, [jobs]; 0 if none or not asked."""


def process_alone(
    jobs: JobSet,
    columns: Sequence[Column],
    table: Array,
    noise: Array,
    asked: tuple[Array, Array],
    kernel: Kernel | None = None,
) -> Alone:
    """From log throughputs `table` [jobs, columns] with variances `noise`; NaN: not measured.

    `asked` are the jobs whose speed, and those whose evidence, is wanted.
    """
    who, doubted = asked
    shape = (len(jobs.names), len(columns))
    likeness, speed = column_likeness(columns), column_speed(columns)
    kernels = JobKernels(jobs.kernels(), likeness, speed - speed.mean())
    seconds = step_seconds(jobs.jobs, jobs.facts, columns)
    roofline = -np.log(seconds.sum(axis=-1))
    prior = np.where(np.isnan(roofline), speed[None], roofline)
    level = _Level.of(table - prior, jobs.unit_code, likeness)
    base = prior + level.of_cells(jobs.unit_code)
    at = np.nonzero(~np.isnan(table))
    seen = Observed(at[0], at[1], table[at] - base[at], noise[at])
    if kernel is None:
        kernel = fit_variances(kernels, seen, _START, _NOISE)
    process = Conditioned(kernels, kernel, seen)
    mean, variance = settle(process, who, shape)
    variance = variance + level.variance(jobs.unit_code, jobs.has_facts)
    simple = siblings(jobs, table - base, table) + base
    return Alone(
        mean + base, variance, kernel, seconds, simple, process.evidence(doubted, shape[0])
    )


def siblings(jobs: JobSet, values: Array, own: Array | None) -> Array:
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
                before = column
                job = nan_median(residual - column, 1)
                step = nan_median(residual - job[:, None], 0)
                column = np.where(seen, np.nan_to_num(step), 0.0)
                if np.abs(column - before).max() < 1e-3:
                    break
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
