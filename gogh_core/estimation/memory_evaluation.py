"""How many infeasible pairs are found for jobs that were left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gogh_core.estimation.catalog import Catalog
from gogh_core.estimation.episodes import Split
from gogh_core.estimation.evaluation import left_out
from gogh_core.estimation.feasibility import fit_memory
from gogh_core.estimation.jobset import JobSet

__all__ = ["feasibility"]

Array = np.ndarray[Any, Any]


def feasibility(
    catalog: Catalog, *, split: Split, declared: Mapping[str, float] | None = None,
    use_facts: bool = True,
) -> dict[str, float]:  # fmt: skip
    """Share of infeasible pairs found when 5 % of feasible ones are refused, jobs left out."""
    families = JobSet.of(catalog).families
    chance: list[Array] = []
    ran: list[Array] = []
    if declared:
        catalog = _declare(catalog, declared)
    for hidden, targets in left_out(families, split).items():
        rest = catalog.without(hidden)
        jobs = JobSet.of(catalog, use_facts=use_facts)
        model = fit_memory(rest, jobs, catalog.columns)
        for target in targets:
            pairs = _outcomes_of(catalog, target, set(hidden) - {target})
            if len(pairs[0]):
                own = np.full(len(pairs[0]), target)
                chance.append(model.probability(own, pairs[0], pairs[1]))
                ran.append(pairs[2])
    if not chance:
        return {"found": np.nan, "pairs": 0.0}
    p, truth = np.concatenate(chance), np.concatenate(ran)
    if truth.all():
        return {"found": np.nan, "pairs": float(len(p))}
    limit = np.quantile(p[truth], 0.05)
    return {
        "found": float((p[~truth] < limit).mean()),
        "pairs": float(len(p)),
        "limit": float(limit),
    }


def _declare(catalog: Catalog, memory: Mapping[str, float]) -> Catalog:
    jobs = tuple(
        replace(job, memory_bytes=memory.get(name, job.memory_bytes))
        for name, job in zip(catalog.names, catalog.jobs, strict=True)
    )
    return replace(catalog, jobs=jobs)


def _outcomes_of(catalog: Catalog, target: int, left_out: set[int]) -> tuple[Array, Array, Array]:
    """Partners, columns and whether the pair ran, of one job."""
    cells = catalog.cells
    ran = np.flatnonzero((cells.job == target) & (cells.partner >= 0))
    mates = [(int(cells.partner[i]), int(cells.column[i]), True) for i in ran]
    for a, b, column in zip(
        catalog.refused_job, catalog.refused_partner, catalog.refused_column, strict=True
    ):
        if b >= 0 and target in (a, b):
            mates.append((int(b if a == target else a), int(column), False))
    mates = [m for m in mates if m[0] not in left_out]
    table = np.array(mates, int).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2].astype(bool)
