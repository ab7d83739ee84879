"""What each placed job was promised, is expected to get, and was planned with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from gogh_core.allocation import Problem
from gogh_core.domain import Plan
from gogh_core.planning.ways import Rate, Way, rates_of

__all__ = ["Expected", "expected_rates", "placement_rates"]


@dataclass(frozen=True, slots=True)
class Expected:
    """Throughputs of one placed job, in its own unit per second."""

    promised: float
    """What the job was promised, or its deadline needs; 0: best effort."""
    mean: float
    low: float
    high: float
    """The estimate, and the interval between the lower quantile planned with and its mirror."""
    counted: float
    """What the plan counted on."""
    required: float
    """What the plan asked of a place; less than the promise where no place surely keeps that."""


def placement_rates(options: pa.Table, problem: Problem, plan: Plan) -> list[Rate]:
    """The estimate of each placement, in the plan's order."""
    ways: list[Way] = []
    for placement in plan.placements:
        kind = problem.server_of[placement.slots[0].server].gpu_type
        gpus = sum(len(slot.gpus) for slot in placement.slots)
        mine = problem.job_of[placement.job].job_class
        other = problem.job_of[placement.partner].job_class if placement.partner else None
        ways.append((kind, gpus, mine, other, placement.power_limit_w))
    rates = rates_of(options, set(ways))
    # A way that has no estimate (work that is not ours) is taken at what was planned.
    return [
        rates.get(way, Rate(way[0], placement.throughput, placement.throughput))
        for way, placement in zip(ways, plan.placements, strict=True)
    ]


def expected_rates(
    options: pa.Table, problem: Problem, plan: Plan, promised: Mapping[str, float]
) -> dict[str, Expected]:
    """By job; the slots of a spread job are added up."""
    rates = placement_rates(options, problem, plan)
    found: dict[str, Expected] = {}
    for placement, rate in zip(plan.placements, rates, strict=True):
        job = placement.job
        before = found.get(job, Expected(0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
        found[job] = Expected(
            promised.get(job, 0.0),
            before.mean + rate.mean,
            before.low + rate.low,
            before.high + rate.high,
            before.counted + placement.throughput,
            problem.job_of[job].required_throughput,
        )
    return found
