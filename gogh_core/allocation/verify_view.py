"""Problem and plan side by side: what every rule of the verifier looks at."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from gogh_core.allocation.options import OptionTable
from gogh_core.allocation.problem import Gpu, Problem, ProblemJob
from gogh_core.domain import Placement, Plan

__all__ = ["TOLERANCE", "Finder", "View", "gpus_of", "view_of"]

TOLERANCE = 1e-6
"""Relative: costs are sums of thousands of terms in double precision."""


@dataclass(slots=True)
class View:
    """Problem and plan side by side."""

    problem: Problem
    plan: Plan
    finder: Finder
    of_job: dict[str, list[Placement]] = field(default_factory=dict)
    on_gpu: dict[Gpu, list[Placement]] = field(default_factory=dict)
    option_of: dict[int, int] = field(default_factory=dict)
    """Row of the option by the placement's identity; missing where there is none."""

    def known(self) -> Iterable[tuple[ProblemJob, Placement]]:
        """Placements of jobs that exist."""
        for placement in self.plan.placements:
            job = self.problem.job_of.get(placement.job)
            if job is not None:
                yield job, placement


class Finder:
    """Finds an option's row by what it is."""

    def __init__(self, table: OptionTable) -> None:
        self.table = table
        self.types = {name: i for i, name in enumerate(table.types)}
        self.classes = {name: i for i, name in enumerate(table.classes)}
        self.gpu_factor = int(table.gpus.max(initial=0)) + 1
        self.class_factor = len(table.classes) + 1
        self.keys = self._key(table.type_id, table.gpus, table.class_a, table.class_b)

    def _key(self, kind: object, gpus: object, a: object, b: object) -> np.ndarray:
        head = np.asarray(kind) * self.gpu_factor + np.asarray(gpus)
        tail = np.asarray(a) * self.class_factor + np.asarray(b) + 1
        return np.asarray(head * (self.class_factor * self.class_factor) + tail)

    def row(
        self, gpu_type: str, gpus: int, classes: list[str], limit_w: float | None
    ) -> int | None:
        """The row, or None."""
        kind = self.types.get(gpu_type)
        ids = sorted(self.classes.get(name, -1) for name in classes)
        if kind is None or ids[0] < 0 or gpus >= self.gpu_factor:
            return None
        key = self._key(kind, gpus, ids[0], ids[1] if len(ids) > 1 else -1)
        start = int(np.searchsorted(self.keys, key))
        while start < len(self.keys) and self.keys[start] == key:
            limit = self.table.limit_w[start]
            if (limit_w is None and math.isnan(limit)) or limit == limit_w:
                return start
            start += 1
        return None


def view_of(problem: Problem, plan: Plan) -> View:
    """Who sits where, and as which option."""
    view = View(problem, plan, Finder(problem.table))
    for placement in plan.placements:
        view.of_job.setdefault(placement.job, []).append(placement)
        for slot in placement.slots:
            for gpu in slot.gpus:
                view.on_gpu.setdefault((slot.server, gpu), []).append(placement)
    for job, placement in view.known():
        row = _option_row(view, job, placement)
        if row is not None:
            view.option_of[id(placement)] = row
    return view


def _option_row(view: View, job: ProblemJob, placement: Placement) -> int | None:
    servers = [view.problem.server_of.get(slot.server) for slot in placement.slots]
    if not servers or servers[0] is None:
        return None
    classes = [job.job_class]
    if placement.partner is not None:
        partner = view.problem.job_of.get(placement.partner)
        if partner is None:
            return None
        classes.append(partner.job_class)
    gpus = sum(len(slot.gpus) for slot in placement.slots)
    return view.finder.row(servers[0].gpu_type, gpus, classes, placement.power_limit_w)


def gpus_of(placements: Iterable[Placement]) -> frozenset[Gpu]:
    """All GPUs of these placements."""
    return frozenset(
        (slot.server, gpu) for p in placements for slot in p.slots for gpu in slot.gpus
    )
