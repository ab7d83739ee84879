"""Jobs as estimation sees them: the catalog's and the asked ones in one numbering, with kernels.

How alike two jobs are is a sum of kernels (`process.COMMON`) whose weights are learned from the
catalog: that sum is the learned distance between descriptors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gogh_core.domain import Descriptors
from gogh_core.estimation.catalog import Catalog, Column
from gogh_core.estimation.facts import StepFacts, step_facts
from gogh_core.estimation.roofline import step_seconds

__all__ = ["JobSet", "family_of"]

Array = np.ndarray[Any, Any]

_REFERENCE = (Column("p100"), Column("v100"))


def family_of(job: Descriptors) -> str:
    """The declared family, or the model's name without case and marks."""
    name = job.family or job.model
    return re.sub(r"[^a-z0-9/]", "", name.lower()) or name


@dataclass(frozen=True)
class JobSet:
    """All jobs of one question; the catalog's come first, with the catalog's numbers."""

    names: tuple[str, ...]
    jobs: tuple[Descriptors, ...]
    units: tuple[str, ...]
    use_facts: bool = True

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        more: Sequence[tuple[str, Descriptors, str | None]] = (),
        *,
        use_facts: bool = True,
    ) -> JobSet:
        """The catalog's jobs and those not in it; a missing unit is the catalog's commonest."""
        known = set(catalog.names)
        usual = max(set(catalog.units), key=catalog.units.count) if catalog.units else "steps/s"
        fresh: dict[str, tuple[Descriptors, str]] = {}
        for name, job, unit in more:
            if name not in known and name not in fresh:
                fresh[name] = (job, unit or usual)
        return cls(
            catalog.names + tuple(fresh),
            catalog.jobs + tuple(job for job, _ in fresh.values()),
            catalog.units + tuple(unit for _, unit in fresh.values()),
            use_facts,
        )

    @cached_property
    def families(self) -> Array:
        """A number for each job's family."""
        _, codes = np.unique([family_of(job) for job in self.jobs], return_inverse=True)
        return np.asarray(codes)

    @cached_property
    def log_batch(self) -> Array:
        """Natural logarithm of the batch size, NaN when not declared."""
        sizes = [float(job.batch_size) if job.batch_size else np.nan for job in self.jobs]
        return np.asarray(np.log(np.array(sizes, float)))

    @cached_property
    def facts(self) -> tuple[StepFacts | None, ...]:
        """What is known of a step, declared or public."""
        return tuple(step_facts(job, use_public=self.use_facts) for job in self.jobs)

    @cached_property
    def has_facts(self) -> Array:
        """Whether anything is known of a step."""
        return np.array([fact is not None for fact in self.facts], bool)

    @cached_property
    def unit_code(self) -> Array:
        """A number for each unit, told apart by whether facts are known."""
        _, codes = np.unique(list(self.units), return_inverse=True)
        return np.asarray(np.asarray(codes) * 2 + self.has_facts)

    @cached_property
    def shares(self) -> Array:
        """Parts of a step's time on mid-range hardware, and its log time, [jobs, parts + 1]."""
        seconds = step_seconds(self.jobs, self.facts, _REFERENCE).mean(axis=1)
        total = seconds.sum(axis=1, keepdims=True)
        return np.concatenate([seconds / total, np.log(total)], axis=1)

    def kernels(self) -> tuple[Array, ...]:
        """Likeness of jobs, one matrix for each kernel of `process.COMMON` but the last."""
        return self._kernels

    @cached_property
    def blind(self) -> JobSet:
        """The same jobs as if only names and batch sizes were known."""
        plain = tuple(Descriptors(j.model, j.batch_size, family=j.family) for j in self.jobs)
        return JobSet(self.names, plain, self.units, use_facts=False)

    @cached_property
    def _kernels(self) -> tuple[Array, ...]:
        family = (self.families[:, None] == self.families[None]).astype(float)
        known = ~np.isnan(self.log_batch)
        batch = np.where(known, self.log_batch, 0.0)
        both = known[:, None] & known[None]
        apart = np.where(both, batch[:, None] - batch[None], 0.0)
        either = known[:, None] != known[None]
        damp = np.where(either, 0.5, 1.0)
        near = family * np.exp(-(apart**2) / (2 * 0.8**2)) * damp
        far = family * np.exp(-(apart**2) / (2 * 3.0**2)) * damp
        same = np.eye(len(self.jobs))
        # Batch sizes compare within a family only: its own mean is the origin of the slope.
        total = np.bincount(self.families, np.where(known, batch, 0.0))
        count = np.maximum(np.bincount(self.families, known), 1)
        offset = np.where(known, batch - (total / count)[self.families], 0.0)
        slope = offset[:, None] * offset[None]
        has = self.has_facts
        shape = np.nan_to_num(self.shares)[:, :-1]
        distance = ((shape[:, None] - shape[None]) ** 2).sum(-1)
        length = np.nan_to_num(self.shares)[:, -1] / 3.0
        distance = distance / 0.35**2 + (length[:, None] - length[None]) ** 2
        facts = np.exp(-distance / 2) * (has[:, None] & has[None])
        return family, near, far, same, slope, facts
