"""What a run of a cycle tells: one object for the command line, the flows and the tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from gogh_core.allocation import Problem
from gogh_core.cluster import ExecutionReport
from gogh_core.domain import ClusterState, Cycle, Plan
from gogh_core.planning.diff import PlanDiff
from gogh_core.planning.expected import Expected
from gogh_core.planning.orders import Order
from gogh_core.planning.request import Request
from gogh_core.planning.steps import Ingested, Retrained
from gogh_core.planning.watts import planned_w

__all__ = ["CycleReport", "Outcome", "after_answer"]

Outcome = Literal[
    "emitted", "waiting", "rejected", "interrupted", "dry_run", "done", "busy", "superseded"
]


_DEGRADED_SHOWN = 2
_SHORT = 60


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
    expected: Mapping[str, Expected] = field(default_factory=dict)
    """What each placed job was promised, is expected to get and was planned with."""
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
    given: tuple[Order, ...] = ()
    """Orders that the request gave; they stand until they are lifted."""
    detail: str = ""
    at: datetime | None = None

    @property
    def state(self) -> str:
        """The outcome, as flows show it."""
        return self.outcome

    @property
    def power_w(self) -> float | None:
        """Planned draw of the whole cluster."""
        return None if self.plan is None else planned_w(self.plan)

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
        """`plan 12:05 · 143 jobs · 5,120 W · saves 690 W (12 %) on best fit · gap 0.4 %`."""
        return self.named("plan")

    def named(self, kind: str) -> str:
        """The name of a run of this kind: what the plan draws and saves, and what came of it."""
        when = f"{self.cycle.window_start:%H:%M}"
        if self.cycle.revision:
            when += f" r{self.cycle.revision}"
        parts = [f"{kind} {when}"]
        plan = self.plan
        if plan is None:
            return " · ".join([*parts, "no plan", self.outcome.replace("_", " ")])
        parts.append(f"{self.running} job{'' if self.running == 1 else 's'}")
        if plan.waiting:
            parts.append(f"{len(plan.waiting)} waiting")
        if plan.status == "infeasible":
            parts.append("infeasible")
        else:
            parts.append(f"{planned_w(plan):,.0f} W")
            if self.diff is not None and self.diff.reference is not None:
                parts.append(str(self.diff.reference))
            parts.append(f"gap {plan.gap * 100:.1f} %")
        if plan.status in ("greedy", "time_limit"):
            parts.append(plan.status.replace("_", " "))
        if self.outcome not in ("emitted", "dry_run", "waiting"):  # the question says it waits
            parts.append(self.outcome.replace("_", " "))
        parts += [f"⚠ {_short(what)}" for what in self.degraded[:_DEGRADED_SHOWN]]
        if len(self.degraded) > _DEGRADED_SHOWN:
            parts.append(f"⚠ {len(self.degraded) - _DEGRADED_SHOWN} more")
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
            "expected": {job: asdict(rates) for job, rates in self.expected.items()},
            "execution": None if self.execution is None else self.execution.summary(),
            "running": self.running,
            "degraded": list(self.degraded),
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
            "estimate_error": self.estimate_error,
            "data_age_s": self.ingested.data_age_s if self.ingested is not None else None,
            "orders": [order.to_dict() for order in self.given],
            "replan": self.replan,
            "detail": self.detail,
        }


def after_answer(asked: CycleReport, settled: CycleReport) -> CycleReport:
    """What the run that planned knows, with what became of its plan once a person had answered."""
    return replace(
        asked,
        outcome=settled.outcome,
        execution=settled.execution,
        degraded=tuple(dict.fromkeys((*asked.degraded, *settled.degraded))),
        detail=settled.detail,
        at=settled.at,
    )


def _short(what: str) -> str:
    """Up to where the details begin; the artifact has all of it."""
    head = re.split(r"[:(]", what, maxsplit=1)[0].strip()
    return head if len(head) <= _SHORT else head[: _SHORT - 1] + "…"
