"""What a plan would change: starts, moves and stops, what it draws and saves, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gogh_core.allocation import Problem
from gogh_core.domain import ClusterState, Move, Plan, ServerSwitch, Slot, Stop, Waiting
from gogh_core.planning.alone import FOREIGN
from gogh_core.planning.watts import (
    Limits,
    Reference,
    draw_now,
    planned_w,
    reference,
)

__all__ = ["PlanDiff", "limits_now", "plan_diff"]


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """The difference between a plan and what runs now."""

    starts: tuple[tuple[str, tuple[Slot, ...]], ...]
    moves: tuple[Move, ...]
    stops: tuple[Stop, ...]
    stays: int
    waiting: tuple[Waiting, ...]
    switches: tuple[ServerSwitch, ...]
    now_w: float
    """What the cluster draws now, by the same estimates the plan was made with."""
    planned_w: float
    running_now: int
    running_planned: int
    move_cost_j: float
    switch_cost_j: float
    reference: Reference | None = None
    """What the same jobs would draw under best fit; None when there is nothing to compare."""

    @property
    def change_w(self) -> float:
        """Watts more than now, of whatever runs now and then; no saving: the jobs differ."""
        return self.planned_w - self.now_w

    @property
    def saved_w(self) -> float | None:
        """Watts less than the reference for the same jobs; None where that cannot be told."""
        known = self.reference is not None and not self.reference.left_out
        return self.reference.saved_w if known and self.reference is not None else None

    @property
    def payback_s(self) -> float | None:
        """After how long a lower draw has paid for moves and switches.

        None when the draw is not lower, or when other jobs run than before: then the difference is
        not what the moves gained.
        """
        cost_j = self.move_cost_j + self.switch_cost_j
        same_jobs = not self.starts and not self.stops
        return cost_j / -self.change_w if same_jobs and self.change_w < 0 else None

    @property
    def empty(self) -> bool:
        """Whether nothing would change."""
        return not (self.starts or self.moves or self.stops or self.switches)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "starts": [{"job": j, "to": [s.to_dict() for s in to]} for j, to in self.starts],
            "moves": [move.to_dict() for move in self.moves],
            "stops": [stop.to_dict() for stop in self.stops],
            "stays": self.stays,
            "waiting": [{"job": w.job, "reason": w.reason} for w in self.waiting],
            "switches": [{"server": s.id, "action": s.action} for s in self.switches],
            "now_w": self.now_w,
            "planned_w": self.planned_w,
            "change_w": self.change_w,
            "saved_w": self.saved_w,
            "reference": None if self.reference is None else self.reference.to_dict(),
            "running_now": self.running_now,
            "running_planned": self.running_planned,
            "move_cost_j": self.move_cost_j,
            "switch_cost_j": self.switch_cost_j,
            "payback_s": self.payback_s,
        }

    def lines(self) -> list[str]:
        """For people, the most important first."""
        out = [
            f"draw {self.now_w:,.0f} W now with {self.running_now} jobs, "
            f"{self.planned_w:,.0f} W planned with {self.running_planned}"
        ]
        if self.reference is not None:
            out.append(f"at the same service: {self.reference}")
        cost_j = self.move_cost_j + self.switch_cost_j
        if cost_j > 0:
            pays = self.payback_s
            after = f", paid back after {pays:,.0f} s" if pays is not None else ""
            out.append(f"the change itself costs {cost_j / 3600:,.1f} Wh{after}")
        out += [f"start {job} on {_shown(to)}" for job, to in self.starts]
        out += [
            f"move {m.job} from {_shown(m.source)} to {_shown(m.target)}: {m.reason}"
            for m in self.moves
        ]
        out += [f"stop {s.job} on {_shown(s.source)}: {s.reason}" for s in self.stops]
        out += [f"switch {s.action} {s.id}" for s in self.switches]
        if self.empty:
            out.append("nothing would change")
        return out


def limits_now(state: ClusterState) -> dict[tuple[str, int], float | None]:
    """The power limits of the GPUs that jobs run on."""
    return {
        (slot.server, gpu): status.power_limit_w
        for status in state.jobs
        for slot in status.slots
        for gpu in slot.gpus
    }


def plan_diff(problem: Problem, plan: Plan, limits: Limits | None = None) -> PlanDiff:
    """What the plan changes against what the problem says is running, under these limits."""
    now = {job.id for job in problem.jobs if job.at and _ours(job.id)}
    planned: dict[str, list[Slot]] = {}
    for placement in plan.placements:
        if _ours(placement.job):
            planned.setdefault(placement.job, []).extend(placement.slots)
    touched = {move.job for move in plan.moves}
    leaving = [*touched, *(stop.job for stop in plan.stops)]
    switched = {switch.id for switch in plan.servers}
    return PlanDiff(
        starts=tuple((name, tuple(to)) for name, to in sorted(planned.items()) if name not in now),
        moves=plan.moves,
        stops=plan.stops,
        stays=len(now & set(planned) - touched),
        waiting=plan.waiting,
        switches=plan.servers,
        now_w=draw_now(problem, limits),
        planned_w=planned_w(plan),
        running_now=len(now),
        running_planned=len(planned),
        move_cost_j=sum(problem.job_of[name].move_cost_j for name in leaving),
        switch_cost_j=sum(s.switch_cost_j for s in problem.servers if s.id in switched),
        reference=reference(problem, plan),
    )


def _ours(job: str) -> bool:
    return not job.startswith(FOREIGN)


def _shown(slots: Sequence[Slot]) -> str:
    return ", ".join(f"{s.server}:{'+'.join(str(g) for g in s.gpus)}" for s in slots)
