"""The same arrivals on the same cluster under other policies, to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gogh_core.settings import SimulationSettings
from gogh_core.simulation.building import new_world
from gogh_core.simulation.metrics import Metrics, meter_row, metrics_of
from gogh_core.simulation.policies import POLICIES, Policy
from gogh_core.simulation.rates import EPSILON
from gogh_core.simulation.world import World

__all__ = ["Comparison", "Outcome", "compare", "run_policy"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one policy made of it."""

    policy: str
    metrics: Metrics
    mean_wait_s: float
    """Seconds without a place, on average over all jobs that came."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Outcomes over the same stretch, for the same jobs."""

    horizon_s: float
    outcomes: tuple[Outcome, ...]

    def __getitem__(self, policy: str) -> Outcome:
        return next(outcome for outcome in self.outcomes if outcome.policy == policy)

    def to_dict(self) -> dict[str, Any]:
        """For reports and `--json`."""
        return asdict(self)


def run_policy(
    world: World,
    policy: Policy,
    horizon_s: float,
    *,
    every_s: float | None,
    to_the_end: bool = False,
    report: Callable[[float, int], None] | None = None,
) -> None:
    """Run a world to the horizon; the policy acts at each event, or every so often.

    With `to_the_end` it stops when the last job has gone. `report` is told the hours gone by and
    the jobs that are through.
    """
    told_s = 0.0
    seen: object = None
    while world.now_s < horizon_s - EPSILON:
        world.settle()
        if to_the_end and world.coming is None and not world.jobs:
            break
        until_s = horizon_s
        if _situation(world) != seen:
            due_s = world.now_s
            if every_s is not None:
                due_s = math.ceil((world.now_s - EPSILON) / every_s) * every_s
            if due_s <= world.now_s + EPSILON:
                policy(world)
                seen = _situation(world)
            else:
                until_s = min(horizon_s, due_s)
        world.step(world.next_event_s(until_s))
        world.events.clear()
        for job in world.ended[-len(world.jobs) :]:
            world.jobs.pop(job.id, None)
        if report is not None and world.now_s - told_s >= 3600:
            told_s = world.now_s
            report(world.now_s / 3600, len(world.ended))


def _situation(world: World) -> object:
    """Everything a policy looks at; where it is the same, there is nothing to decide."""
    return (
        [(job.id, [place.slot for place in job.places]) for job in world.jobs.values()],
        [world.required(job) for job in world.jobs.values() if job.demand.base_rate is not None],
    )


def compare(
    settings: SimulationSettings,
    seed: int | None = None,
    horizon_s: float = 3600.0,
    *,
    window_s: float = 300.0,
) -> Comparison:
    """First come first served, and best fit by energy, over the beginning of the clock.

    First come first served acts whenever a job comes or goes. Best fit is run twice: once each
    window, and once on events as well (`best_fit_events`), which is the stronger form.
    """
    outcomes = []
    for name, policy, every_s in (
        ("fcfs", POLICIES["fcfs"], None),
        ("best_fit", POLICIES["best_fit"], window_s),
        ("best_fit_events", POLICIES["best_fit"], None),
    ):
        world = new_world(settings, seed=seed)
        first = meter_row(0.0, world.totals)
        run_policy(world, policy, horizon_s, every_s=every_s)
        waits = [job.waited_s for job in [*world.ended, *world.jobs.values()]]
        outcomes.append(
            Outcome(
                name,
                metrics_of(first, meter_row(world.now_s, world.totals)),
                sum(waits) / len(waits) if waits else 0.0,
            )
        )
    return Comparison(horizon_s, tuple(outcomes))
