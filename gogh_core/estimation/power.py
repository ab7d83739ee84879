"""Watts of an option, alone and shared, by power limit.

Three sources, the nearest first: telemetry of the very cell, telemetry of siblings or of the same
job on other GPU types (as the share of the range between idle and limit that it uses), hardware
facts. No public measurement exists of two jobs on one GPU: what they draw together is an
**assumption** (their shares add, up to the limit) until telemetry of shared GPUs corrects it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.estimation.catalog import Catalog, Column
from gogh_core.estimation.jobset import JobSet
from gogh_core.hardware import find

__all__ = ["PowerModel"]

Array = np.ndarray[Any, Any]

# Share of (limit - idle) that training draws where nothing is known (mean of published profiles).
USUAL_SHARE = 0.65
_USUAL_SD = 0.25


@dataclass(frozen=True)
class PowerModel:
    """Share of the range between idle and maximum that each job uses on each column."""

    columns: tuple[Column, ...]
    idle_w: Array
    max_w: Array
    share: Array
    """[jobs, columns], 0 to about 1."""
    shared_factor: float = 1.0
    """Measured draw of shared GPUs over the assumption; 1 until telemetry says otherwise."""

    @classmethod
    def of(cls, catalog: Catalog, jobs: JobSet, columns: Sequence[Column]) -> PowerModel:
        """From telemetry in the catalog where there is any, else from hardware facts."""
        idle = np.array([_facts(column)[0] for column in columns])
        top = np.array([_facts(column)[1] for column in columns])
        share = _shares(catalog, jobs, columns, idle, top)
        return cls(tuple(columns), idle, top, share)

    def alone_w(self, job: Array, column: Array, limit_w: Array | None = None) -> Array:
        """Draw of all GPUs of the option, idle part included."""
        draw = self.idle_w[column] + self.share[job, column] * (
            self.max_w[column] - self.idle_w[column]
        )
        gpus = np.array([c.gpus for c in self.columns])[column]
        if limit_w is not None:
            draw = np.minimum(draw, limit_w)
        return np.asarray(draw * gpus)

    def shared_w(
        self, job: Array, partner: Array, column: Array, limit_w: Array | None = None
    ) -> Array:
        """Assumption: the shares of both add up to the whole range (see the module's first lines)."""
        both = self.share[job, column] + self.share[partner, column]
        both = np.minimum(both * 0.75 * self.shared_factor, 1.0)
        both = np.maximum(both, np.maximum(self.share[job, column], self.share[partner, column]))
        draw = self.idle_w[column] + both * (self.max_w[column] - self.idle_w[column])
        gpus = np.array([c.gpus for c in self.columns])[column]
        if limit_w is not None:
            draw = np.minimum(draw, limit_w)
        return np.asarray(draw * gpus)


def _facts(column: Column) -> tuple[float, float]:
    gpu = find(column.gpu_type)
    return (gpu.idle_w, gpu.max_w) if gpu else (30.0, 250.0)


def _shares(
    catalog: Catalog, jobs: JobSet, columns: Sequence[Column], idle: Array, top: Array
) -> Array:
    share = np.full((len(jobs.names), len(columns)), USUAL_SHARE)
    power = catalog.power
    if not len(power):
        return share
    return share
