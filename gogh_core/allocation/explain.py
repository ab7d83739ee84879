"""Why a job is where it is, in sentences its owner understands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gogh_core.allocation.problem import Problem
from gogh_core.domain import Plan
from gogh_core.errors import InvalidInput

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was decided for a job, the alternatives and what each would have cost."""

    job: str
    decision: str
    alternatives: tuple[str, ...] = ()
    binding: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Plain sentences."""
        return [self.decision, *self.alternatives, *self.binding, *self.changes]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "job": self.job,
            "decision": self.decision,
            "alternatives": list(self.alternatives),
            "binding": list(self.binding),
            "changes": list(self.changes),
        }


def explain(problem: Problem, plan: Plan, job_id: str) -> Explanation:
    """Why the job is where it is in the plan."""
    job = problem.job_of.get(job_id)
    if job is None:
        raise InvalidInput(f"job {job_id} is not in the problem", todo="see its jobs' ids")
    placements = [p for p in plan.placements if p.job == job_id]
    if not placements:
        reason = next((w.reason for w in plan.waiting if w.job == job_id), "no plan was made")
        return Explanation(job_id, f"{job_id} waits: {reason}.")
    where = ", ".join(
        f"GPU {' and '.join(map(str, slot.gpus))} of {slot.server}"
        for placement in placements
        for slot in placement.slots
    )
    total = sum(p.throughput for p in placements)
    return Explanation(job_id, f"{job_id} runs on {where} and reaches {total:g}.")
