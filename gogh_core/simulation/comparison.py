"""The same arrivals on the same cluster under other policies, to compare with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gogh_core.settings import SimulationSettings
from gogh_core.simulation.building import new_world
from gogh_core.simulation.metrics import Metrics, meter_row, metrics_of
from gogh_core.simulation.policies import POLICIES, Policy
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


def run_policy(world: World, policy: Policy, horizon_s: float, *, every_s: float | None) -> None:
    """Run a world to the horizon; the policy acts at each event, or every so often."""
    due_s = 0.0
    while world.now_s < horizon_s:
        world.settle()
        if every_s is None or world.now_s >= due_s - 1e-6:
            policy(world)
            due_s = due_s + every_s if every_s is not None else 0.0
        until = horizon_s if every_s is None else min(horizon_s, due_s)
        world.step(world.next_event_s(until))
        world.events.clear()


def compare(
    settings: SimulationSettings,
    seed: int | None = None,
    horizon_s: float = 3600.0,
    *,
    window_s: float = 300.0,
) -> Comparison:
    """First come first served, and best fit by energy, over the beginning of the clock.

    First come first served acts whenever a job comes or goes; best fit plans each window.
    """
    outcomes = []
    for name, policy in POLICIES.items():
        world = new_world(settings, seed=seed)
        first = meter_row(0.0, world.totals)
        run_policy(world, policy, horizon_s, every_s=None if name == "fcfs" else window_s)
        waits = [job.waited_s for job in world.jobs.values()]
        outcomes.append(
            Outcome(
                name,
                metrics_of(first, meter_row(world.now_s, world.totals)),
                sum(waits) / len(waits) if waits else 0.0,
            )
        )
    return Comparison(horizon_s, tuple(outcomes))
