"""A Gaussian process over cells whose kernel is a sum of parts, each with a variance of its own.

A cell is (job, column). Job kernels (same family, alike in batch size, alike in architecture, the
same job) stand once for all columns together and once for what is peculiar to a column. Variances
are found by the marginal likelihood with a weak prior; with few data the prior speaks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

__all__ = [
    "COMMON",
    "Conditioned",
    "JobKernels",
    "Kernel",
    "Observed",
    "fit_variances",
    "settle",
]

Array = np.ndarray[Any, Any]
Worth = tuple[list[Array], Array]

# Job kernels, in the order of the variances; each is used for all columns and by column.
COMMON = ("family", "batch near", "batch far", "job", "slope", "facts", "cell")
# Kernels that also come tilted: a job's level and what it gains from faster columns go together.
TILTED, TILT = (0, 2, 3), 0.7
_PRIOR_SD = 1.5
_FIT_CELLS = 420
# Beyond this many measured cells the process rests on a part of the jobs and each job's own cells.
_REFERENCE_CELLS = 1500
_JITTER = 1e-6


@dataclass(frozen=True)
class JobKernels:
    """Kernels between jobs, each [jobs, jobs], and the likeness of columns [columns, columns]."""

    jobs: tuple[Array, ...]
    columns: Array
    speed: Array | None = None
    """Log speed of columns, centred: jobs may gain more or less from faster columns than others."""
    cell: Array | None = None
    """A feature of each cell [jobs, columns, d], for the last kernel; None: it is left out."""
    trust: Array | None = None
    """How far the feature is known, [jobs, columns], 0 to 1."""

    def between(self, job_a: Array, col_a: Array, job_b: Array, col_b: Array) -> list[Array]:
        """All parts between two lists of cells."""
        column = self.columns[np.ix_(col_a, col_b)]
        parts = []
        for i, kernel in enumerate(self.jobs):
            part = kernel[np.ix_(job_a, job_b)]
            parts += [part, part * column]
            if self.speed is not None and i in TILTED:
                up, down = 1 + TILT * self.speed, 1 - TILT * self.speed
                parts += [part * np.outer(up[col_a], up[col_b])]
                parts += [part * np.outer(down[col_a], down[col_b])]
        if self.cell is not None:
            a, b = self.cell[job_a, col_a], self.cell[job_b, col_b]
            near = np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 2)
            if self.trust is not None:
                near *= self.trust[job_a, col_a][:, None] * self.trust[job_b, col_b][None]
            parts += [near, near * column]
        return parts

    def by_column(self, variances: Array) -> Worth:
        """What each job kernel, and the feature, are worth between columns, [columns, columns].

        The same sum as over `between`, with the small factors added up first.
        """
        shapes = [np.ones_like(self.columns), self.columns]
        tilted = list(shapes)
        if self.speed is not None:
            up, down = 1 + TILT * self.speed, 1 - TILT * self.speed
            tilted += [np.outer(up, up), np.outer(down, down)]
        out, at = [], 0
        for i in range(len(self.jobs)):
            mine = tilted if i in TILTED else shapes
            out.append(np.tensordot(variances[at : at + len(mine)], np.stack(mine), axes=1))
            at += len(mine)
        feature = 0 * shapes[0]
        if self.cell is not None:
            feature = variances[at] + variances[at + 1] * self.columns
        return out, feature

    def total(
        self, of_columns: Worth, job_a: Array, col_a: Array, job_b: Array, col_b: Array
    ) -> Array:
        """The kernel between two lists of cells, by what its parts are worth between columns."""
        worth, feature = of_columns
        # Places in the flat tables: `take` is several times as fast as indexing rows and columns.
        jobs = job_a[:, None] * len(self.jobs[0]) + job_b[None]
        columns = col_a[:, None] * len(feature) + col_b[None]
        found = np.zeros(jobs.shape)
        for kernel, factor in zip(self.jobs, worth, strict=True):
            found += kernel.take(jobs) * factor.take(columns)
        if self.cell is not None:
            a, b = self.cell[job_a, col_a], self.cell[job_b, col_b]
            near = np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 2) * feature.take(columns)
            if self.trust is not None:
                near *= self.trust[job_a, col_a][:, None] * self.trust[job_b, col_b][None]
            found += near
        return found


@dataclass(frozen=True)
class Observed:
    """Measured values of one quantity, centred; one row for each cell."""

    job: Array
    column: Array
    value: Array
    noise: Array

    def take(self, which: Array) -> Observed:
        """Some of them."""
        return Observed(self.job[which], self.column[which], self.value[which], self.noise[which])


@dataclass(frozen=True)
class Kernel:
    """Variances of the parts, in the order `JobKernels.between` gives them, and of extra noise."""

    variances: Array
    noise: float


def fit_variances(kernels: JobKernels, seen: Observed, start: Array, noise: float) -> Kernel:
    """Variances of highest posterior probability; `start` is also the centre of the prior."""
    if len(seen.value) < 4:
        return Kernel(start.copy(), noise)
    if len(seen.value) > _FIT_CELLS:
        jobs = np.unique(seen.job)
        step = max(1, int(np.ceil(len(seen.value) / _FIT_CELLS)))
        seen = seen.take(np.flatnonzero(np.isin(seen.job, jobs[::step])))
    parts = np.stack(kernels.between(seen.job, seen.column, seen.job, seen.column))
    centre = np.log(np.append(np.maximum(start, 1e-9), noise))
    eye = np.eye(len(seen.value))
    flat = parts.reshape(len(parts), -1)

    def objective(logs: Array) -> tuple[float, Array]:
        theta = np.exp(logs)
        matrix = (theta[:-1] @ flat).reshape(eye.shape)
        matrix[np.diag_indices_from(matrix)] += seen.noise + theta[-1] + _JITTER
        factor = cho_factor(matrix, lower=True, check_finite=False)
        alpha = cho_solve(factor, seen.value, check_finite=False)
        inverse = cho_solve(factor, eye, check_finite=False)
        loss = 0.5 * seen.value @ alpha + np.log(np.diag(factor[0])).sum()
        outer = np.outer(alpha, alpha) - inverse
        slope = np.append(-0.5 * flat @ outer.ravel(), -0.5 * np.trace(outer)) * theta
        pull = (logs - centre) / _PRIOR_SD**2
        return float(loss + 0.5 * (pull @ (logs - centre))), slope + pull

    bounds = [(c - 6, c + 4) for c in centre]
    found = minimize(
        objective, centre, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40}
    )
    theta = np.exp(found.x)
    return Kernel(theta[:-1], float(theta[-1]))


@dataclass(frozen=True)
class Conditioned:
    """A process that has seen its cells: what all answers begin with."""

    kernels: JobKernels
    kernel: Kernel
    seen: Observed

    @cached_property
    def worth(self) -> Worth:
        """What the parts of the kernel are worth between columns."""
        return self.kernels.by_column(self.kernel.variances)

    @cached_property
    def factor(self) -> Array:
        """Lower triangle of the covariance of what was seen."""
        seen = self.seen
        matrix = self.kernels.total(self.worth, seen.job, seen.column, seen.job, seen.column)
        matrix[np.diag_indices_from(matrix)] += seen.noise + self.kernel.noise + _JITTER
        return np.asarray(cho_factor(matrix, lower=True, check_finite=False)[0])

    @cached_property
    def alpha(self) -> Array:
        """The seen values, whitened twice."""
        return np.asarray(cho_solve((self.factor, True), self.seen.value, check_finite=False))

    def posterior(self, jobs: Array, columns: int) -> tuple[Array, Array]:
        """Mean [jobs, columns] and covariance [jobs, columns, columns] of each job's cells."""
        count, seen = len(jobs), self.seen
        col = np.tile(np.arange(columns), count)
        job = np.repeat(jobs, columns)
        covariance = _own_prior(self.kernels, self.worth, jobs, columns)
        if not len(seen.value):
            return np.zeros((count, columns)), covariance
        mean = np.empty(count * columns)
        step = max(1, 4000 // max(columns, 1))
        for start in range(0, count, step):
            rows = slice(start * columns, min(count, start + step) * columns)
            cross = self.kernels.total(self.worth, job[rows], col[rows], seen.job, seen.column)
            mean[rows] = cross @ self.alpha
            white = solve_triangular(self.factor, cross.T, lower=True, check_finite=False)
            blocks = white.T.reshape(-1, columns, len(seen.value))
            covariance[start : start + len(blocks)] -= np.einsum("iak,ibk->iab", blocks, blocks)
        return mean.reshape(count, columns), covariance

    def evidence(self, asked: Array, jobs: int) -> Array:
        """Log density of the asked jobs' own cells, as those of all others foretell them, [jobs].

        Zero where a job has none, and in catalogs so large that the process rests on a part.
        """
        found = np.zeros(jobs)
        seen = self.seen
        if not 0 < len(seen.value) <= _REFERENCE_CELLS:
            return found
        inverse = cho_solve((self.factor, True), np.eye(len(seen.value)), check_finite=False)
        for job in np.intersect1d(asked, seen.job):
            own = np.flatnonzero(seen.job == job)
            block = inverse[np.ix_(own, own)]
            gap = np.linalg.solve(block, self.alpha[own])
            found[job] = 0.5 * (np.linalg.slogdet(block)[1] - self.alpha[own] @ gap)
        return found


def _own_prior(kernels: JobKernels, of_columns: Worth, jobs: Array, columns: int) -> Array:
    """Prior covariance of each job's own cells, [jobs, columns, columns]."""
    worth, feature = of_columns
    out = np.zeros((len(jobs), columns, columns))
    for job_kernel, factor in zip(kernels.jobs, worth, strict=True):
        out += np.diag(job_kernel)[jobs][:, None, None] * factor
    if kernels.cell is not None:
        cell = kernels.cell[jobs]
        near = np.exp(-((cell[:, :, None] - cell[:, None]) ** 2).sum(-1) / 2)
        if kernels.trust is not None:
            near *= kernels.trust[jobs][:, :, None] * kernels.trust[jobs][:, None]
        out += near * feature
    return out


def settle(process: Conditioned, who: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Posterior of the asked jobs; large catalogs: from a part of it and the job's own cells."""
    mean, variance = np.zeros(shape), np.zeros(shape)
    seen, noise = process.seen, process.kernel.noise
    reference = process
    left_out = np.zeros(shape[0], bool)
    if len(seen.value) > _REFERENCE_CELLS:
        jobs = np.unique(seen.job)
        keep = jobs[:: int(np.ceil(len(seen.value) / _REFERENCE_CELLS))]
        left_out[jobs] = True
        left_out[keep] = False
        reference = replace(process, seen=seen.take(np.flatnonzero(~left_out[seen.job])))
    centre, covariance = reference.posterior(who, shape[1])
    rows = {int(job): i for i, job in enumerate(who)}
    own = np.flatnonzero(left_out[seen.job] & np.isin(seen.job, who))
    order = own[np.argsort(seen.job[own], kind="stable")]
    for cells in np.split(order, np.flatnonzero(np.diff(seen.job[order])) + 1):
        if not len(cells):
            continue
        i, at = rows[int(seen.job[cells[0]])], seen.column[cells]
        block = covariance[i][np.ix_(at, at)].copy()
        block[np.diag_indices_from(block)] += seen.noise[cells] + noise
        gain = np.linalg.solve(block, covariance[i][at]).T
        centre[i] = centre[i] + gain @ (seen.value[cells] - centre[i][at])
        covariance[i] = covariance[i] - gain @ covariance[i][at]
    mean[who] = centre
    variance[who] = np.diagonal(covariance, axis1=1, axis2=2) + noise
    return mean, variance
