"""Whether a job, or two together, fit into a GPU's memory.

Memory is not in the throughputs, so it is a latent quantity: a job holds a + b * batch size, with a
and b of its family; a pair does not run when the sum exceeds what the GPU type has. a and b are
found from the pairs that ran and those that did not, starting from public facts; a declared memory
is taken as it is. What is not known stays wide, and the probability says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from gogh_core.estimation.catalog import Catalog, Column
from gogh_core.estimation.jobset import JobSet
from gogh_core.hardware import find

__all__ = ["MemoryModel", "fit_memory"]

Array = np.ndarray[Any, Any]

# Prior standard deviations of log memory: from public facts, from nothing, declared.
_SD_FACTS, _SD_BLIND, _SD_DECLARED = 0.6, 1.0, 0.02
# How sharp the limit is in log memory, and how often a cell did not run for other reasons.
_SHARP, _OTHER = 0.07, 0.02
_BLIND_FIXED, _BLIND_BATCH = 1.5e9, 1.5e9
_GANG_SLACK = 0.97
_MOST_CELLS = 20_000


@dataclass(frozen=True)
class MemoryModel:
    """Log memory of each job, its spread, and log capacity of each column."""

    log_memory: Array
    spread: Array
    log_capacity: Array
    alone_rate: float
    """How often a job alone did not run for other reasons than memory."""

    def probability(self, job: Array, partner: Array, column: Array) -> Array:
        """That the cell runs; `partner` is -1 when alone."""
        paired = partner >= 0
        own = np.exp(self.log_memory[job])
        other = np.where(paired, np.exp(self.log_memory[partner]), 0.0)
        total = own + other
        share = own / total
        variance = (share * self.spread[job]) ** 2
        variance = variance + np.where(paired, ((1 - share) * self.spread[partner]) ** 2, 0.0)
        room = self.log_capacity[column] - np.log(total)
        scale = np.sqrt(_SHARP**2 + variance)
        rate = np.where(paired, _OTHER, self.alone_rate)
        return np.asarray((1 - rate) * expit(1.7 * room / scale))


def fit_memory(catalog: Catalog, jobs: JobSet, columns: tuple[Column, ...]) -> MemoryModel:
    """Memory of every job from the catalog's pairs that ran and did not, facts and declarations."""
    families, family = np.unique(jobs.families, return_inverse=True)
    count = len(families)
    batch = np.exp(np.nan_to_num(jobs.log_batch))
    usual = np.array([np.exp(np.mean(np.log(batch[family == f]))) for f in range(count)])
    relative = batch / usual[family]
    fixed, growing, sd = _prior(jobs, family, count, usual)
    declared = np.array([job.memory_bytes or np.nan for job in jobs.jobs])
    capacity = np.log([_capacity(column) for column in columns])

    job, partner, column, ran = _outcomes(catalog)
    start = np.concatenate([np.log(fixed), np.log(growing)])
    width = np.concatenate([sd, sd])
    paired = partner >= 0
    other = np.where(paired, partner, 0)

    def memory(theta: Array) -> tuple[Array, Array, Array]:
        a, b = np.exp(theta[:count])[family], np.exp(theta[count:])[family] * relative
        total = np.where(np.isnan(declared), a + b, declared)
        free = np.isnan(declared)
        return total, np.where(free, a, 0.0), np.where(free, b, 0.0)

    def loss(theta: Array) -> tuple[float, Array]:
        total, a, b = memory(theta)
        held = total[job] + np.where(paired, total[other], 0.0)
        logit = (capacity[column] - np.log(held)) / _SHARP
        fits = expit(logit)
        likely = _OTHER / 2 + (1 - _OTHER) * fits
        sign = np.where(ran, 1.0, -1.0)
        chance = np.where(ran, likely, 1 - likely)
        slope = sign * (1 - _OTHER) * fits * (1 - fits) / np.maximum(chance, 1e-12)
        by_held = slope / _SHARP / held
        gradient = np.zeros(2 * count)
        for who, live in ((job, np.ones(len(job), bool)), (other, paired)):
            push = np.where(live, by_held, 0.0)
            gradient[:count] += np.bincount(family[who], push * a[who], minlength=count)
            gradient[count:] += np.bincount(family[who], push * b[who], minlength=count)
        pull = (theta - start) / width**2
        value = -np.log(np.maximum(chance, 1e-12)).sum() + 0.5 * (pull * (theta - start)).sum()
        return float(value), gradient + pull

    theta = start
    if len(job):
        bounds = [(s - 5, s + 5) for s in start]
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
        theta = found.x
    total, a, b = memory(theta)
    spread = _spread(theta, width, (job, partner, column, ran), (total, a, b), capacity, family)
    spread = np.where(np.isnan(declared), spread, _SD_DECLARED)
    alone = partner < 0
    fails = float((~ran[alone]).sum()) if len(job) else 0.0
    rate = (0.2 + 0.1 * fails) / (20.0 + float(alone.sum()))
    return MemoryModel(np.log(total), spread, capacity, min(rate, 0.1))


def _capacity(column: Column) -> float:
    gpu = find(column.gpu_type)
    return (gpu.memory_gb if gpu else 16.0) * 1.0e9 * _GANG_SLACK


def _prior(jobs: JobSet, family: Array, count: int, usual: Array) -> tuple[Array, Array, Array]:
    """Fixed part, part at the usual batch size, and their spread, for each family."""
    from gogh_core.estimation.facts import BYTES_PER_PARAMETER, CONTEXT_BYTES

    fixed = np.full(count, _BLIND_FIXED)
    growing = np.full(count, _BLIND_BATCH)
    sd = np.full(count, _SD_BLIND)
    for i, fact in enumerate(jobs.facts):
        f = family[i]
        if fact is None or fact.memory_bytes is None or fact.memory_declared:
            continue
        parameters = jobs.jobs[i].parameters
        if parameters is None:
            from gogh_core.estimation.facts import resolve

            public = resolve(jobs.jobs[i].model)
            parameters = public.parameters if public else 0.0
        base = CONTEXT_BYTES + BYTES_PER_PARAMETER * parameters
        size = float(jobs.jobs[i].batch_size or 1)
        fixed[f] = base
        growing[f] = max(fact.memory_bytes - base, 1e7) * usual[f] / size
        sd[f] = _SD_FACTS
    return fixed, growing, sd


def _outcomes(catalog: Catalog) -> tuple[Array, Array, Array, Array]:
    """What ran and what did not, each unordered pair once: job, partner, column, ran."""
    cells = catalog.cells
    once = np.flatnonzero((cells.partner < 0) | (cells.job <= cells.partner))
    if len(once) > _MOST_CELLS:
        once = once[:: int(np.ceil(len(once) / _MOST_CELLS))]
    job = np.concatenate([cells.job[once], catalog.refused_job]).astype(int)
    partner = np.concatenate([cells.partner[once], catalog.refused_partner]).astype(int)
    column = np.concatenate([cells.column[once], catalog.refused_column]).astype(int)
    ran = np.concatenate([np.ones(len(once), bool), np.zeros(len(catalog.refused_job), bool)])
    return job, partner, column, ran


def _spread(
    theta: Array,
    width: Array,
    outcomes: tuple[Array, Array, Array, Array],
    parts: tuple[Array, Array, Array],
    capacity: Array,
    family: Array,
) -> Array:
    """Spread of each job's log memory by the Laplace approximation, families on their own."""
    job, partner, column, _ = outcomes
    total, a, b = parts
    count = len(theta) // 2
    known = np.zeros((count, 2, 2))
    known[:, 0, 0], known[:, 1, 1] = 1 / width[:count] ** 2, 1 / width[count:] ** 2
    if len(job):
        paired = partner >= 0
        other = np.where(paired, partner, 0)
        held = total[job] + np.where(paired, total[other], 0.0)
        fits = expit((capacity[column] - np.log(held)) / (_SHARP * 2))
        weight = fits * (1 - fits) / (_SHARP * 2) ** 2
        for who, live in ((job, np.ones(len(job), bool)), (other, paired)):
            by = np.stack([a[who] / held, b[who] / held], axis=1)
            push = np.where(live, weight, 0.0)
            for i in range(2):
                for k in range(2):
                    known[:, i, k] += np.bincount(
                        family[who], push * by[:, i] * by[:, k], minlength=count
                    )
    covariance = np.linalg.inv(known)
    share = np.stack([a / total, b / total], axis=1)
    variance = np.einsum("ji,jik,jk->j", share, covariance[family], share)
    return np.asarray(np.sqrt(variance))
