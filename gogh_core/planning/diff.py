"""What a plan would change: who starts, moves and stops, what it draws, what the change costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gogh_core import hardware
from gogh_core.allocation import Problem
from gogh_core.domain import Move, Plan, ServerSwitch, Slot, Stop, Waiting
from gogh_core.planning.alone import FOREIGN

__all__ = ["PlanDiff", "draw_now", "plan_diff", "watts_of", "why_of"]


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

    @property
    def saved_w(self) -> float:
        """Watts less than now; negative when the plan draws more (it may run more jobs)."""
        return self.now_w - self.planned_w

    @property
    def change(self) -> float | None:
        """Planned draw over the draw now, minus one; None when nothing is drawn now."""
        return self.planned_w / self.now_w - 1.0 if self.now_w > 0 else None

    @property
    def payback_s(self) -> float | None:
        """After how long the saving has paid for moves and switches; None when it saves nothing."""
        cost_j = self.move_cost_j + self.switch_cost_j
        return cost_j / self.saved_w if self.saved_w > 0 else None

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
            "saved_w": self.saved_w,
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


def plan_diff(problem: Problem, plan: Plan) -> PlanDiff:
    """What the plan changes against what the problem says is running."""
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
        now_w=draw_now(problem),
        planned_w=float(plan.spent.get("power_w", plan.cost_w)),
        running_now=len(now),
        running_planned=len(planned),
        move_cost_j=sum(problem.job_of[name].move_cost_j for name in leaving),
        switch_cost_j=sum(s.switch_cost_j for s in problem.servers if s.id in switched),
    )


Power = dict[tuple[str, int, tuple[str, ...]], float]


def _power_of(problem: Problem) -> Power:
    """Watts of each option by GPU type, GPUs and classes; of several limits the highest."""
    table = problem.table
    power: Power = {}
    for kind, count, a, b, watts in zip(
        table.type_id.tolist(),
        table.gpus.tolist(),
        table.class_a.tolist(),
        table.class_b.tolist(),
        table.power_w.tolist(),
        strict=True,
    ):
        names = (table.classes[a],) if b < 0 else (table.classes[a], table.classes[b])
        key = (table.types[kind], count, tuple(sorted(names)))
        power[key] = max(power.get(key, 0.0), watts)
    return power


def _watts(problem: Problem, power: Power, slot: Slot, classes: Sequence[str]) -> float:
    kind = problem.server_of[slot.server].gpu_type
    usual = len(slot.gpus) * hardware.get(kind).max_w
    return power.get((kind, len(slot.gpus), tuple(sorted(classes))), usual)


def draw_now(problem: Problem) -> float:
    """What the present arrangement draws, by the problem's own options."""
    power = _power_of(problem)
    used: dict[Slot, list[str]] = {}
    for job in problem.jobs:
        for slot in job.at:
            used.setdefault(slot, []).append(job.job_class)
    total = sum(s.base_w if s.on else s.off_w for s in problem.servers)
    busy: dict[str, set[int]] = {}
    for slot, classes in used.items():
        total += _watts(problem, power, slot, classes)
        busy.setdefault(slot.server, set()).update(slot.gpus)
    for server in problem.servers:
        if server.on:
            idle = server.gpus - len(busy.get(server.id, ()))
            total += idle * problem.gpu_types[server.gpu_type]
    return float(total)


def watts_of(problem: Problem, plan: Plan) -> dict[str, float]:
    """Watts of each placed job's GPUs; two that share count half each."""
    power = _power_of(problem)
    watts: dict[str, float] = {}
    for placement in plan.placements:
        names = [problem.job_of[placement.job].job_class]
        if placement.partner is not None:
            names.append(problem.job_of[placement.partner].job_class)
        for slot in placement.slots:
            part = _watts(problem, power, slot, names) / len(names)
            watts[placement.job] = watts.get(placement.job, 0.0) + part
    return watts


def why_of(problem: Problem, plan: Plan) -> dict[str, str]:
    """For each placed job one line: what it gets there for what it is promised."""
    got: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for placement in plan.placements:
        got[placement.job] = got.get(placement.job, 0.0) + placement.throughput
        kinds[placement.job] = problem.server_of[placement.slots[0].server].gpu_type
    watts = watts_of(problem, plan)
    lines = {}
    for name, rate in got.items():
        job = problem.job_of[name]
        owed = f"needs {job.required_throughput:.3g}" if job.required_throughput else "best effort"
        lines[name] = f"{owed}; surely {rate:.3g}/s on {kinds[name]} for {watts[name]:.0f} W"
    return lines


def _ours(job: str) -> bool:
    return not job.startswith(FOREIGN)


def _shown(slots: Sequence[Slot]) -> str:
    return ", ".join(f"{s.server}:{'+'.join(str(g) for g in s.gpus)}" for s in slots)
