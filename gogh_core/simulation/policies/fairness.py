"""The linear program of Gavel's max-min fairness, over groups of equal jobs.

Jobs of a group share its time equally: the program is the same as one over jobs, and small. A
job's throughput is normalised by what it would reach if its time were spread over all GPUs of the
cluster, and counts times its number of GPUs, as in the paper. Above the smallest one, the sum of
normalised throughputs decides a little, so that nobody is left idle for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from gogh_core.errors import SolverFailed
from gogh_core.simulation.board import Entry
from gogh_core.simulation.policies.ways import Beliefs

__all__ = ["Group", "Share", "fair_shares"]

_SUM_WEIGHT = 1e-3
_TINY = 1e-6
_WORTH = 1.1
"""Two packed jobs must do this much more together than one alone, or they are not paired."""
_MOST_PARTNERS = 12
"""Pairs of a group on a GPU type that the program sees, the most worthwhile first."""


@dataclass(slots=True)
class Group:
    """Jobs that the program need not tell apart."""

    job_class: str
    gpus: int
    rates: Mapping[str, float]
    """By GPU type, the throughput alone; types that are too slow are left out."""
    packs: bool = False
    """Whether its jobs may share a GPU with other jobs."""
    need: float = 0.0
    """The highest promise among its jobs."""
    jobs: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Share:
    """Time that a group, or a pair of groups, gets on a GPU type."""

    groups: tuple[Group, ...]
    gpu_type: str
    rates: tuple[float, ...]
    time: float = 0.0
    """In GPU slots: how many such placements run at once, on average."""

    def of(self, side: int) -> float:
        """The share of each job's time on that side."""
        twice = 2 if len(self.groups) == 2 and self.groups[0] is self.groups[1] else 1
        return self.time * twice / len(self.groups[side].jobs)


def fair_shares(
    beliefs: Beliefs, groups: Sequence[Group], capacity: Mapping[str, int], *, packed: bool
) -> list[Share]:
    """Max-min fair shares of time; those that are zero are left out."""
    columns = [
        Share((group,), kind, (rate,))
        for group in groups
        for kind, rate in group.rates.items()
        if capacity.get(kind, 0) >= group.gpus
    ]
    if packed:
        columns += _pairs(beliefs, groups, capacity)
    if not columns:
        return []
    times = _solve(columns, groups, capacity)
    return [
        Share(column.groups, column.gpu_type, column.rates, float(time))
        for column, time in zip(columns, times, strict=True)
        if time > _TINY
    ]


def _pairs(beliefs: Beliefs, groups: Sequence[Group], capacity: Mapping[str, int]) -> list[Share]:
    packing = [group for group in groups if group.packs]
    found: dict[tuple[int, str], list[tuple[float, int, int, Share]]] = {}
    for first, one in enumerate(packing):
        for second, two in enumerate(packing[first:], start=first):
            if one is two and len(one.jobs) < 2:
                continue
            for kind in one.rates:
                if kind in two.rates and capacity.get(kind, 0) > 0:
                    pair = _pair(beliefs, one, two, kind)
                    if pair is not None:
                        found.setdefault((first, kind), []).append(
                            (-pair[0], first, second, pair[1])
                        )
    return [
        share
        for pairs in found.values()
        for *_, share in sorted(pairs, key=lambda pair: pair[:3])[:_MOST_PARTNERS]
    ]


def _pair(beliefs: Beliefs, one: Group, two: Group, kind: str) -> tuple[float, Share] | None:
    guess = beliefs.run(kind, 1, (one.job_class, two.job_class))
    if guess is None:
        return None
    mine, theirs = guess.throughput
    worth = mine / one.rates[kind] + theirs / two.rates[kind]
    if worth < _WORTH or mine < one.need or theirs < two.need:
        return None
    return worth, Share((one, two), kind, (mine, theirs))


def _equal_rate(group: Group, capacity: Mapping[str, int]) -> float:
    """Throughput of a job whose time is spread over all GPUs."""
    total = sum(capacity.values())
    return sum(rate * capacity.get(kind, 0) for kind, rate in group.rates.items()) / total


def _solve(
    columns: Sequence[Share], groups: Sequence[Group], capacity: Mapping[str, int]
) -> np.ndarray:
    """Time of each column. Rows: fairness and time of each group, then GPUs of each type."""
    number = {id(group): row for row, group in enumerate(groups)}
    kinds = {kind: row for row, kind in enumerate(capacity)}
    scale = [group.gpus / max(_equal_rate(group, capacity), 1e-12) for group in groups]
    least = len(columns)
    cells: list[tuple[int, int, float]] = []
    cost = np.zeros(len(columns) + 1)
    for index, column in enumerate(columns):
        for group, rate in zip(column.groups, column.rates, strict=True):
            row = number[id(group)]
            gain = rate * scale[row] / len(group.jobs)
            cells += [(row, index, -gain), (len(groups) + row, index, 1.0)]
            cost[index] -= _SUM_WEIGHT * gain / len(groups)
        gpus = float(column.groups[0].gpus)
        cells.append((2 * len(groups) + kinds[column.gpu_type], index, gpus))
    served = {id(group) for column in columns for group in column.groups}
    cells += [(row, least, 1.0) for row, group in enumerate(groups) if id(group) in served]
    cost[least] = -1.0
    limits = [0.0] * len(groups) + [float(len(group.jobs)) for group in groups]
    limits += [float(gpus) for gpus in capacity.values()]
    rows, cols, values = zip(*cells, strict=True)
    matrix = coo_matrix((values, (rows, cols)), shape=(len(limits), len(cost))).tocsr()
    answer = linprog(cost, A_ub=matrix, b_ub=limits, bounds=(0, None), method="highs")
    if answer.x is None:
        raise SolverFailed(f"max-min fairness has no solution: {answer.message}")
    return np.asarray(answer.x[:least])
