"""Simple methods, each from dense tables to a `Prediction`; the bar is `median_and_siblings`.

All see the same view of the catalog: the target's cells are NaN but for what was revealed, its
hidden relatives are NaN altogether.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gogh_core.estimation.episodes import Prediction, Truth
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.opinions import nan_median

__all__ = ["BASELINES", "Baseline", "median_and_siblings"]

Array = np.ndarray[Any, Any]
Baseline = Callable[[Truth, JobSet, int], Prediction]


def _weights(jobs: JobSet, target: int, usable: Array, *, nearest: bool = False) -> Array | None:
    """Of siblings by nearness in log batch size; None without any."""
    siblings = (jobs.families == jobs.families[target]) & usable
    siblings[target] = False
    if not siblings.any():
        return None
    apart = np.abs(np.nan_to_num(jobs.log_batch - jobs.log_batch[target], nan=1.0))
    weight = np.where(siblings, 1 / np.maximum(apart, 0.05), 0.0)
    if nearest:
        weight = np.where(weight == weight.max(), 1.0, 0.0)
    return np.asarray(weight / weight.sum())


def _mean(values: Array, weight: Array) -> Array:
    """Weighted mean over the first axis, skipping NaN."""
    shape = (len(weight),) + (1,) * (values.ndim - 1)
    w = np.where(np.isnan(values), 0.0, weight.reshape(shape))
    total = w.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(
            np.where(total > 0, (w * np.nan_to_num(values)).sum(axis=0) / total, np.nan)
        )


def _filled(values: Array, fallback: Array | float) -> Array:
    return np.where(np.isnan(values), fallback, values)


def _scaled(shape: Array, known: Array) -> Array:
    """The shape moved so that it meets what is measured, which itself stays."""
    if np.isnan(known).all():
        return shape
    return _filled(known, shape + np.nanmean(known - shape))


def _ratios(truth: Truth, target: int, pick: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Own ratios and effects on partners, [jobs, columns], by `pick` over jobs."""
    ratio = truth.ratio
    usual = nan_median(ratio.reshape(-1, ratio.shape[2]), 0)
    usual = _filled(usual, np.log(0.6))
    own = _filled(pick(ratio), _filled(nan_median(ratio, 0), usual[None]))
    effects = np.swapaxes(ratio, 0, 1)
    other = _filled(pick(effects), _filled(nan_median(effects, 0), usual[None]))
    return own, other


def _with_shift(truth: Truth, target: int, own: Array, other: Array) -> tuple[Array, Array]:
    """What a revealed pair shows beyond the guess is believed by half for the other pairs."""
    seen = truth.ratio[target] - own
    if (~np.isnan(seen)).any():
        own = _filled(truth.ratio[target], own + 0.5 * np.nanmean(seen))
    seen = truth.ratio[:, target] - other
    if (~np.isnan(seen)).any():
        other = _filled(truth.ratio[:, target], other + 0.5 * np.nanmean(seen))
    return own, other


def median_and_siblings(truth: Truth, jobs: JobSet, target: int) -> Prediction:
    """The column's median, or all siblings weighted by distance in log batch size: the bar."""
    return _siblings(truth, jobs, target, nearest=False)


def nearest_sibling(truth: Truth, jobs: JobSet, target: int) -> Prediction:
    """The sibling with the nearest batch size, or the median."""
    return _siblings(truth, jobs, target, nearest=True)


def _siblings(truth: Truth, jobs: JobSet, target: int, *, nearest: bool) -> Prediction:
    usable = np.asarray((~np.isnan(truth.alone)).any(axis=1))
    weight = _weights(jobs, target, usable, nearest=nearest)
    others = truth.alone.copy()
    others[target] = np.nan
    # Medians of shapes, then of the level: better than the plain median of each column.
    level = nan_median(others, 1)
    shape = nan_median(others - level[:, None], 0) + nan_median(level, 0)
    if weight is not None:
        shape = _filled(_mean(truth.alone, weight), shape)

    def pick(ratio: Array) -> Array:
        if weight is None:
            return nan_median(np.delete(ratio, target, axis=0), 0)
        return _mean(ratio, weight)

    own, other = _ratios(truth, target, pick)
    return Prediction(_scaled(shape, truth.alone[target]), own, other)


def scaled_sibling(truth: Truth, jobs: JobSet, target: int) -> Prediction:
    """The nearest sibling, its steps scaled by the batch sizes."""
    said = nearest_sibling(truth, jobs, target)
    usable = np.asarray((~np.isnan(truth.alone)).any(axis=1))
    weight = _weights(jobs, target, usable, nearest=True)
    if weight is None or not np.isnan(truth.alone[target]).all():
        return said
    gap = float(np.nan_to_num(jobs.log_batch[target] - weight @ np.nan_to_num(jobs.log_batch)))
    return Prediction(said.alone - 0.7 * gap, said.own, said.other)


def completion(rank: int) -> Baseline:
    """Matrix completion in logs: jobs by (column, alone or partner), ridge, alternating."""

    def method(truth: Truth, jobs: JobSet, target: int) -> Prediction:
        count, columns = truth.alone.shape
        own_side = truth.ratio.reshape(count, -1)
        other_side = np.swapaxes(truth.ratio, 0, 1).reshape(count, -1)
        return Prediction(
            _complete(truth.alone, jobs, target, rank, scale=True),
            _complete(own_side, jobs, target, rank, scale=False).reshape(count, columns),
            _complete(other_side, jobs, target, rank, scale=False).reshape(count, columns),
        )

    return method


def _complete(table: Array, jobs: JobSet, target: int, rank: int, *, scale: bool) -> Array:
    mask = ~np.isnan(table)
    centre = _filled(nan_median(table, 0), float(nan_median(table.ravel(), 0)))
    level = nan_median(table - centre, 1) if scale else np.zeros(len(table))
    level = np.nan_to_num(level)
    rest = np.where(mask, table - centre - level[:, None], 0.0)
    rng = np.random.default_rng(0)
    right = rng.normal(0, 0.1, (table.shape[1], rank))
    left = np.zeros((len(table), rank))
    ridge = 0.3 * np.eye(rank)
    for _ in range(15):
        left = _ridge(mask, rest, right, ridge)
        right = _ridge(mask.T, rest.T, left, ridge)
    if not mask[target].any():
        weight = _weights(jobs, target, np.asarray(mask.any(axis=1)))
        if weight is not None:
            left[target] = weight @ left
            level[target] = weight @ level
    return np.asarray(
        np.where(mask[target], table[target], centre + level[target] + right @ left[target])
    )


def _ridge(mask: Array, rest: Array, factors: Array, ridge: Array) -> Array:
    """Each row of `rest` (zero where not measured) as a sum of factors, [rows, rank]."""
    squares = (factors[:, :, None] * factors[:, None]).reshape(len(factors), -1)
    normal = (mask @ squares).reshape(-1, *ridge.shape) + ridge
    return np.asarray(np.linalg.solve(normal, (rest @ factors)[..., None])[..., 0])


def additive(truth: Truth, jobs: JobSet, target: int) -> Prediction:
    """Sensitivity of the one plus aggressiveness of the other, by GPU type; alone as the bar."""
    ratio = truth.ratio
    count, _, columns = ratio.shape
    mean = np.nan_to_num(np.nanmean(ratio.reshape(-1, columns), axis=0), nan=np.log(0.6))
    mask = ~np.isnan(ratio)
    s, a = np.zeros((count, columns)), np.zeros((count, columns))
    for _ in range(10):
        rest = np.where(mask, ratio - mean - a[None], 0.0)
        s = rest.sum(axis=1) / (mask.sum(axis=1) + 0.5)
        rest = np.where(mask, ratio - mean - s[:, None], 0.0)
        a = rest.sum(axis=0) / (mask.sum(axis=0) + 0.5)
    weight = _weights(jobs, target, np.asarray(mask.any(axis=(1, 2))))
    if not mask[target].any() and weight is not None:
        s[target], a[target] = weight @ s, weight @ a
    bar = median_and_siblings(truth, jobs, target)
    own = _filled(ratio[target], mean + s[target] + a)
    other = _filled(ratio[:, target], mean + s + a[target])
    return Prediction(bar.alone, own, other)


def nearest_by_descriptors(truth: Truth, jobs: JobSet, target: int) -> Prediction:
    """The three jobs most alike in facts (or batch size), whatever their family."""
    usable = np.asarray((~np.isnan(truth.alone)).any(axis=1))
    usable[target] = False
    features = np.nan_to_num(jobs.shares.copy())
    features[:, -1] /= 3
    batch = np.nan_to_num(jobs.log_batch) / 4
    distance = ((features - features[target]) ** 2).sum(axis=1) + (batch - batch[target]) ** 2
    distance = np.where(usable, distance, np.inf)
    near = np.argsort(distance)[:3]
    weight = np.zeros(len(distance))
    weight[near] = 1 / (0.05 + np.sqrt(distance[near]))
    weight /= weight.sum()
    shape = _filled(_mean(truth.alone, weight), nan_median(truth.alone, 0))
    if jobs.has_facts[target]:
        gap = jobs.shares[target, -1] - weight @ np.nan_to_num(jobs.shares[:, -1])
        shape = shape - gap
    own, other = _ratios(truth, target, lambda ratio: _mean(ratio, weight))
    return Prediction(_scaled(shape, truth.alone[target]), own, other)


def _corrected(method: Baseline) -> Baseline:
    def corrected(truth: Truth, jobs: JobSet, target: int) -> Prediction:
        said = method(truth, jobs, target)
        own, other = _with_shift(truth, target, said.own, said.other)
        return Prediction(said.alone, own, other)

    return corrected


BASELINES: dict[str, Baseline] = {
    "median and all siblings": median_and_siblings,
    "nearest sibling": nearest_sibling,
    "scaled sibling": scaled_sibling,
    "completion, rank 1": completion(1),
    "completion, rank 2": completion(2),
    "completion, rank 3": completion(3),
    "sensitivity + aggressiveness": _corrected(additive),
    "nearest by descriptors": _corrected(nearest_by_descriptors),
}
