"""Second opinions: simple processes over siblings that stand beside the main one.

Each column (and, for pairs, each partner on it) is looked at on its own with one kernel over
siblings' batch sizes. They share nothing between columns, so they err otherwise than the main
process does, and their mean is better than either. Which kernel is chosen by leaving each job out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["MOST_JOBS", "beside", "nan_median", "one_sided"]

Array = np.ndarray[Any, Any]

# With more jobs than this no second opinion is asked.
MOST_JOBS = 120
# How sure the median over all jobs is, where there are no siblings.
_MEDIAN_SURE = 0.05
# Shares of (family, batch near, batch far) in the kernel, and noise over the kernel's variance.
_TRIED = (
    ((0.0, 0.4, 0.6), 0.05),
    ((0.6, 0.3, 0.1), 0.05),
    ((0.0, 0.4, 0.6), 0.3),
    ((0.6, 0.3, 0.1), 0.3),
)


def _inverses(kernel: Array, seen: Array, noise: float) -> Array:
    """Inverse of (kernel + noise) among the seen jobs of each column, [columns, jobs, jobs]."""
    both = seen[:, :, None] & seen[:, None, :]
    matrix = np.where(both, kernel[None], 0.0)
    place = np.arange(len(kernel))
    matrix[:, place, place] = np.where(seen, kernel[place, place] + noise, 1.0)
    inverse = np.linalg.inv(matrix)
    return np.where(both, inverse, 0.0)


@dataclass(frozen=True)
class _Said:
    """Means and confidences (0 to 1) of all jobs, [columns, all jobs]."""

    mean: Array
    sure: Array
    missed: float
    """Mean error of the jobs left out one by one."""
    choice: int


def _smoothed(kernels: tuple[Array, ...], live: Array, values: Array, choice: int | None) -> _Said:
    """With one of the kernels tried; without a choice, with the one that misses least.

    `values` [columns, live jobs] are centred; NaN where nothing was measured.
    """
    seen = ~np.isnan(values)
    known = np.where(seen, values, 0.0)
    found = []
    for i in range(len(_TRIED)) if choice is None else (choice,):
        shares, noise = _TRIED[i]
        parts = [share * k[:, live] for share, k in zip(shares, kernels[:3], strict=True)]
        kernel = parts[0] + parts[1] + parts[2]
        inverse = _inverses(kernel[live], seen, noise)
        alpha = np.matmul(inverse, known[..., None])[..., 0]
        diagonal = np.where(seen, np.einsum("cii->ci", inverse), 1.0)
        missed = float((np.abs(alpha / diagonal) * seen).sum() / max(seen.sum(), 1))
        found.append((missed, i, kernel, inverse, alpha))
    missed, i, kernel, inverse, alpha = min(found, key=lambda one: one[:2])
    explained = (np.matmul(kernel[None], inverse) * kernel[None]).sum(-1)
    return _Said(alpha @ kernel.T, np.clip(explained, 0.0, 1.0), missed, i)


def beside(
    kernels: tuple[Array, ...],
    values: Array,
    mean: Array,
    variance: Array,
    choice: int | None = None,
) -> tuple[Array, int | None]:
    """The main process's mean [jobs, columns] drawn to what siblings say, by how sure both are.

    `values` [jobs, columns] are centred, NaN where nothing was measured. Also the kernel's number.
    """
    live = np.flatnonzero((~np.isnan(values)).any(axis=1))
    if not 3 <= len(live) <= MOST_JOBS:
        return mean, choice
    said = _smoothed(kernels, live, values[live].T, choice)
    # A mean absolute error is 0.8 standard deviations.
    spread = (1.25 * said.missed) ** 2 / np.maximum(said.sure.T, 1e-6)
    return np.asarray(mean + (said.mean.T - mean) * variance / (variance + spread)), said.choice


def one_sided(
    kernels: tuple[Array, ...], live: Array, left: Array, choice: int | None = None
) -> tuple[Array, Array, int]:
    """What siblings of a job met next to the same partner, [columns, all jobs, live partners].

    `left` [columns, live jobs, live partners] is what sums of manners leave over, NaN where nothing
    was measured; a job without siblings meets the median. Also how sure, and the kernel's number.
    """
    count, size, partners = left.shape
    flat = np.moveaxis(left, 1, 2).reshape(-1, size)
    middle = nan_median(flat, 1)[:, None]
    said = _smoothed(kernels, live, flat - middle, choice)
    shape = (count, partners, said.mean.shape[1])
    sure = np.where(np.isnan(middle), 0.0, said.sure + _MEDIAN_SURE)
    mean = said.mean + np.nan_to_num(middle)
    turned = [np.moveaxis(x.reshape(shape), 1, 2) for x in (mean, sure)]
    return turned[0], turned[1], said.choice


def nan_median(values: Array, axis: int) -> Array:
    """Median that skips NaN, and is NaN where there is nothing; several times numpy's speed."""
    if not values.shape[axis]:
        return np.full(np.delete(values.shape, axis), np.nan)
    ordered = np.moveaxis(np.sort(values, axis=axis), axis, -1)
    count = (~np.isnan(ordered)).sum(axis=-1)
    rows = np.arange(count.size)
    flat = ordered.reshape(count.size, -1)
    place = count.ravel()
    middle = (flat[rows, np.maximum(place - 1, 0) // 2] + flat[rows, place // 2 - (place == 0)]) / 2
    return np.where(count > 0, middle.reshape(count.shape), np.nan)
