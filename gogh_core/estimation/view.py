"""One catalog and the asked jobs, ready to answer cell by cell; a measured cell stays measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gogh_core.estimation.beliefs import ALONE, Beliefs
from gogh_core.estimation.catalog import Catalog
from gogh_core.estimation.episodes import lean_of
from gogh_core.estimation.feasibility import MemoryModel
from gogh_core.estimation.jobset import JobSet

__all__ = ["NETWORKS", "Answer", "View", "chances"]

Array = np.ndarray[Any, Any]

NETWORKS = ("measured", "P2", "P1")


@dataclass(frozen=True)
class View:
    """One catalog and the asked jobs, ready to answer cell by cell."""

    catalog: Catalog
    jobs: JobSet
    beliefs: Beliefs
    memory: MemoryModel

    @cached_property
    def points(self) -> Array:
        """Log estimates alone, [jobs, columns]."""
        b = self.beliefs
        return lean_of(b.mean[ALONE], b.variance[ALONE], b.lean)

    def known(self) -> Array:
        """Whether any cell of the job was measured."""
        out = np.zeros(len(self.jobs.names), bool)
        out[np.unique(self.catalog.cells.job)] = True
        return out

    def measured(self, job: Array, partner: Array, column: Array) -> Array:
        """Number of the measured cell, or -1; partner -1 is alone."""
        size = len(self.catalog.names)
        inside = np.where(job < size, job, -1)
        other = np.where(partner >= size, -2, partner)
        own = np.where(column < len(self.catalog.columns), column, -1)
        return self.catalog.find(inside, other, own)

    def alone(self, job: Array, column: Array) -> Answer:
        """Log throughput alone."""
        b = self.beliefs
        mean, variance = b.mean[ALONE][job, column], b.variance[ALONE][job, column]
        point = self.points[job, column]
        return _overruled(self, (job, np.full(len(job), -1), column), point, mean, variance)

    def shared(self, job: Array, partner: Array, column: Array) -> Answer:
        """Log throughput next to a partner."""
        b = self.beliefs
        at = self.measured(job, np.full(len(job), -1), column)
        cells = self.catalog.cells
        known = at >= 0
        alone = np.where(known, cells.log[at] if len(cells) else 0.0, b.mean[ALONE][job, column])
        spread = b.variance[ALONE][job, column]
        lean = np.where(known, 0.0, b.mean[ALONE][job, column] - self.points[job, column])
        spread = np.where(known, cells.variance[at] if len(cells) else 0.0, spread)
        ratio, ratio_sd = b.ratio_of(job, partner, column)
        mean = alone + np.log(ratio)
        variance = spread + (ratio_sd / ratio) ** 2
        return _overruled(self, (job, partner, column), mean - lean, mean, variance)


@dataclass(frozen=True)
class Answer:
    """Logs: the estimate, the centre and the standard deviation of each asked cell."""

    point: Array
    mean: Array
    sd: Array

    def quantile(self, z: float) -> Array:
        """Throughput that many standard deviations from the centre, never past the estimate."""
        at = np.exp(self.mean + z * self.sd)
        point = np.exp(self.point)
        return np.asarray(np.minimum(at, point) if z < 0 else np.maximum(at, point))

    @property
    def estimate(self) -> Array:
        """Throughput."""
        return np.asarray(np.exp(self.point))


def _overruled(
    view: View, cell: tuple[Array, Array, Array], point: Array, mean: Array, variance: Array
) -> Answer:
    """A measured cell stays what was measured."""
    sd = np.sqrt(variance)
    at = view.measured(*cell)
    hit = at >= 0
    if hit.any():
        point, mean, sd = point.copy(), mean.copy(), sd.copy()
        point[hit] = mean[hit] = view.catalog.cells.log[at[hit]]
        sd[hit] = np.sqrt(view.catalog.cells.variance[at[hit]])
    return Answer(point, mean, sd)


def chances(
    view: View, job: Array, partner: Array, place: Array, hit: Array, known: Array
) -> tuple[Array, Array]:
    """Probability that it runs, and which network says so."""
    chance = np.where(hit, 1.0, view.memory.probability(job, partner, place))
    chance = _refused_before(view, job, partner, place, chance)
    return chance, np.where(hit, 0, np.where(known, 1, 2)).astype(np.int8)


def _refused_before(
    view: View, job: Array, partner: Array, column: Array, probability: Array
) -> Array:
    """A cell that was tried and did not run is not likely to."""
    catalog = view.catalog
    if not len(catalog.refused_job):
        return probability
    low = np.where(partner < 0, job, np.minimum(job, partner))
    high = np.where(partner < 0, -1, np.maximum(job, partner))
    size, width = len(view.jobs.names) + 1, len(view.beliefs.columns)
    mine = (catalog.refused_job * size + catalog.refused_partner + 1) * width
    asked = (low * size + high + 1) * width + column
    return np.where(np.isin(asked, mine + catalog.refused_column), 0.01, probability)
