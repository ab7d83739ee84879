"""The same arrivals on the same cluster under other policies, to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gogh_core.settings import SimulationSettings
from gogh_core.simulation.building import new_world
from gogh_core.simulation.engine import run
from gogh_core.simulation.knowledge import TrueRates
from gogh_core.simulation.metrics import Metrics, meter_row, metrics_of
from gogh_core.simulation.policies import make

__all__ = ["COMPARED", "Comparison", "Outcome", "compare"]

COMPARED = ("fcfs", "best_fit_window", "best_fit", "best_fit_tuned", "lucid")
"""The policies that the demo compares with."""


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


def compare(
    settings: SimulationSettings,
    seed: int | None = None,
    horizon_s: float = 3600.0,
    *,
    window_s: float = 300.0,
    policies: Sequence[str] = COMPARED,
) -> Comparison:
    """Other policies over the beginning of the clock, each told the true mean throughputs."""
    outcomes = []
    for name in policies:
        world = new_world(settings, seed=seed)
        first = meter_row(0.0, world.totals)
        run(world, make(name, TrueRates(world.truth), window_s=window_s), horizon_s)
        waits = [job.waited_s for job in [*world.ended, *world.jobs.values()]]
        outcomes.append(
            Outcome(
                name,
                metrics_of(first, meter_row(world.now_s, world.totals)),
                sum(waits) / len(waits) if waits else 0.0,
            )
        )
    return Comparison(horizon_s, tuple(outcomes))
