"""What a run of a cycle tells: one object for the command line, the flows and the tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from gogh_core.allocation import Problem
from gogh_core.cluster import ExecutionReport
from gogh_core.domain import ClusterState, Cycle, Plan
from gogh_core.planning.diff import PlanDiff, watts_of, why_of
from gogh_core.planning.request import Request
from gogh_core.planning.steps import Ingested, Retrained

__all__ = ["CycleReport", "Outcome"]

Outcome = Literal[
    "emitted", "waiting", "rejected", "interrupted", "dry_run", "done", "busy", "superseded"
]


@dataclass(frozen=True)
class CycleReport:
    """How a run of a cycle ended.

    `emitted`: the plan was handed over. `waiting`: it waits for a person. `rejected`: by a person,
    because no plan keeps the wishes, or because the cluster had changed too much (`replan`).
    `interrupted`: the cluster fell silent half-way; running the cycle again goes on. `dry_run`:
    nothing was stored or sent. `done`, `busy`, `superseded`: another run has it; nothing was done.
    """

    cycle: Cycle
    outcome: Outcome
    request: Request
    plan: Plan | None = None
    problem: Problem | None = None
    diff: PlanDiff | None = None
    basis: ClusterState | None = None
    """The cluster's state that the plan was made for."""
    before: Plan | None = None
    """The plan that ran before."""
    execution: ExecutionReport | None = None
    ingested: Ingested | None = None
    retrained: Retrained | None = None
    degraded: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    """Seconds and seconds of CPU, by step."""
    estimate_error: float | None = None
    """Median relative error of the last cycle's means against what was then measured."""
    detail: str = ""
    at: datetime | None = None

    @property
    def state(self) -> str:
        """The outcome, as flows show it."""
        return self.outcome

    @property
    def power_w(self) -> float | None:
        """Planned draw of the whole cluster."""
        return None if self.plan is None else self.plan.spent.get("power_w")

    @property
    def before_w(self) -> float | None:
        """Draw of what runs now, by the same estimates."""
        return None if self.diff is None else self.diff.now_w

    @property
    def watts(self) -> dict[str, float]:
        """Watts of each placed job's GPUs; two that share count half each."""
        return (
            {} if self.plan is None or self.problem is None else watts_of(self.problem, self.plan)
        )

    @property
    def why(self) -> dict[str, str]:
        """For each placed job one line."""
        return {} if self.plan is None or self.problem is None else why_of(self.problem, self.plan)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the plan has to say beside its figures."""
        return () if self.plan is None else self.plan.notes

    @property
    def running(self) -> int:
        """Jobs that run by the plan."""
        return len({p.job for p in self.plan.placements}) if self.plan else 0

    @property
    def replan(self) -> bool:
        """Whether the plan did not fit any more and a new one should be made now."""
        return self.execution is not None and self.execution.replan

    @property
    def name(self) -> str:
        """Such as `plan 12:05 · 143 jobs · −18 % W · gap 0.4 %`."""
        when = f"{self.cycle.window_start:%H:%M}"
        if self.cycle.revision:
            when += f" r{self.cycle.revision}"
        if self.plan is None:
            return f"plan {when} · {self.outcome}"
        parts = [f"plan {when}", f"{self.running} jobs"]
        change = self.diff.change if self.diff is not None else None
        if change is not None:
            parts.append(f"{change * 100:+.0f} % W".replace("-", "−"))
        parts.append(f"gap {self.plan.gap * 100:.1f} %")
        if self.outcome != "emitted":
            parts.append(self.outcome.replace("_", " "))
        if self.degraded:
            parts.append("degraded")
        return " · ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "cycle": self.cycle.id,
            "name": self.name,
            "outcome": self.outcome,
            "reason": self.request.reason,
            "plan": None if self.plan is None else self.plan.to_dict(),
            "diff": None if self.diff is None else self.diff.to_dict(),
            "execution": None if self.execution is None else self.execution.summary(),
            "running": self.running,
            "degraded": list(self.degraded),
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
            "estimate_error": self.estimate_error,
            "data_age_s": self.ingested.data_age_s if self.ingested is not None else None,
            "replan": self.replan,
            "detail": self.detail,
        }
