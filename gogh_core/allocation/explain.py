"""Why a job is where it is, in sentences its owner understands.

What an alternative would have cost is its own watts plus the price of its GPUs: the dual values in
the plan's certificate say what a GPU, a quota, a move or a watt under the cap is worth to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.allocation.compiled import Compiled, need_of
from gogh_core.allocation.problem import Problem, ProblemJob
from gogh_core.domain import Placement, Plan
from gogh_core.errors import InvalidInput

__all__ = ["Explanation", "explain"]

_SHOWN = 4


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
        raise InvalidInput(f"job {job_id} is not in the problem", todo="give one of its jobs' ids")
    if plan.status == "infeasible":
        return Explanation(job_id, f"There is no plan: {'; '.join(plan.notes)}.")
    told = _Teller(problem, plan, job)
    placements = [p for p in plan.placements if p.job == job_id]
    if not placements:
        reason = next((w.reason for w in plan.waiting if w.job == job_id), "it was left out")
        return Explanation(
            job_id, f"{job_id} waits: {reason}.", told.ways(None), told.binding(), told.changes()
        )
    return Explanation(
        job_id, told.decision(placements), told.ways(placements[0]), told.binding(), ()
    )


class _Teller:
    """Prices and options of one job."""

    def __init__(self, problem: Problem, plan: Plan, job: ProblemJob) -> None:
        self.problem, self.plan, self.job = problem, plan, job
        self.c = Compiled(problem)
        self.index = next(i for i, other in enumerate(problem.jobs) if other.id == job.id)
        leaf = _first_leaf(plan.certificate)
        kinds = self.c.kinds
        given = leaf.get("capacity")
        if isinstance(given, list) and len(given) == len(kinds):
            self.price = [float(value) for value in given]
        else:
            self.price = [kind.use_w / kind.size for kind in kinds]
        self.leaf = leaf

    def decision(self, placements: list[Placement]) -> str:
        """Where it runs, with whom, how fast, and whether it moves."""
        where = ", ".join(
            f"GPU {' and '.join(map(str, slot.gpus))} of {slot.server}"
            for placement in placements
            for slot in placement.slots
        )
        partners = sorted({p.partner for p in placements if p.partner is not None})
        whom = f" sharing with {', '.join(partners)}" if partners else " alone"
        limits = sorted({p.power_limit_w for p in placements if p.power_limit_w is not None})
        limit = f" at a limit of {', '.join(f'{w:g}' for w in limits)} W" if limits else ""
        total = sum(p.throughput for p in placements)
        need = self.job.required_throughput
        moved = next((m for m in self.plan.moves if m.job == self.job.id), None)
        start = "" if self.job.at else " It starts with this plan."
        if moved is not None:
            start = f" It moves in step {moved.step}: {moved.reason}."
        elif self.job.at:
            start = " It stays where it is."
        return (
            f"{self.job.id} runs{whom} on {where}{limit} and reaches {total:g}, "
            f"{need:g} is required.{start}"
        )

    def ways(self, taken: Placement | None) -> tuple[str, ...]:
        """The next best options and what each would have cost."""
        c, job = self.c, self.job
        here = c.sides(int(c.cls[self.index]))
        rows, got = c.side_row[here], c.side_got[here]
        usable = c.groups[c.group_of[self.index]].usable
        costs = np.array([self._cost(int(row)) for row in rows])
        base = self._taken_cost(taken, rows, costs)
        told: list[str] = []
        order = np.argsort(np.where(usable, costs, np.inf), kind="stable")
        for at in order.tolist():
            if len(told) >= _SHOWN or not usable[at] or not np.isfinite(costs[at]):
                break
            if taken is not None and abs(costs[at] - base) < 1e-9:
                continue
            told.append(f"{self._name(int(rows[at]))}: {got[at]:g}, {_watts(costs[at] - base)}.")
        short = np.flatnonzero(~usable & (got < need_of(job.required_throughput)))
        if len(short) and job.mode == "gang":
            best = int(short[np.argmax(got[short])])
            told.append(
                f"{self._name(int(rows[best]))} gives {got[best]:g}, which is below the "
                f"{job.required_throughput:g} it requires."
            )
        return tuple(told)

    def _cost(self, row: int) -> float:
        """Watts of the option (half of a shared one) and the price of its GPUs."""
        c, table = self.c, self.c.table
        t, m = int(table.type_id[row]), int(table.gpus[row])
        prices = [self.price[k.index] for k in c.kinds if k.gpu_type == t]
        if not prices:
            return float("inf")
        share = 0.5 if c.pair[row] else 1.0
        return share * (float(c.net_w[row]) + m * min(prices))

    def _taken_cost(self, taken: Placement | None, rows: Any, costs: Any) -> float:
        if taken is None:
            return self.job.priority * self.problem.waiting_penalty_w
        c, table = self.c, self.c.table
        t = c.type_index[self.problem.server_of[taken.slots[0].server].gpu_type]
        m = sum(len(slot.gpus) for slot in taken.slots)
        partner = None
        if taken.partner is not None:
            partner = self.problem.job_of[taken.partner].job_class
        for at, row in enumerate(rows):
            other = {table.classes[table.class_a[row]], table.classes[max(0, table.class_b[row])]}
            shared = bool(c.pair[row])
            if int(table.type_id[row]) == t and int(table.gpus[row]) == m:
                if not shared and partner is None:
                    return float(costs[at])
                if shared and partner is not None and {partner, self.job.job_class} == other:
                    return float(costs[at])
        return 0.0

    def _name(self, row: int) -> str:
        table, c = self.c.table, self.c
        gpus = f"{table.gpus[row]} {table.types[table.type_id[row]]}"
        if not c.pair[row]:
            return f"Alone on {gpus}"
        a, b = int(table.class_a[row]), int(table.class_b[row])
        other = b if a == c.cls[self.index] else a
        return f"Sharing {gpus} with {table.classes[other]}"

    def binding(self) -> tuple[str, ...]:
        """What is scarce, by its price."""
        told = []
        c = self.c
        by_type: dict[str, float] = {}
        for kind in c.kinds:
            extra = self.price[kind.index] - max(0.0, kind.use_w / kind.size)
            name = c.table.types[kind.gpu_type]
            by_type[name] = max(by_type.get(name, 0.0), extra)
        for name, extra in sorted(by_type.items()):
            if extra > 1:
                told.append(f"GPUs of type {name} are scarce: one more would save {extra:.0f} W.")
        quota = (self.leaf.get("quotas") or {}).get(self.job.owner, 0.0)
        if quota > 1e-6:
            told.append(f"The quota of {self.job.owner!r} binds: a GPU more saves {quota:.0f} W.")
        if float(self.leaf.get("moves", 0.0)) > 1e-6:
            told.append(f"The limit on moves binds: one more saves {self.leaf['moves']:.0f} W.")
        if float(self.leaf.get("cap", 0.0)) > 1e-6:
            told.append("The power cap binds: jobs are placed where they draw less.")
        return tuple(told)

    def changes(self) -> tuple[str, ...]:
        """What would have to change for a waiting job."""
        c, job = self.c, self.job
        here = c.sides(int(c.cls[self.index]))
        rows, got = c.side_row[here], c.side_got[here]
        costs = np.array([self._cost(int(row)) for row in rows])
        fits = np.isfinite(costs)
        if job.mode == "gang":
            fits &= np.isin(c.table.gpus[rows], job.gpu_counts)
        usable = c.groups[c.group_of[self.index]].usable & np.isfinite(costs)
        told = []
        if not usable.any() and fits.any():
            told.append(f"It could run if it required at most {got[fits].max():g}.")
        elif usable.any():
            least = float(costs[usable].min()) / max(self.problem.waiting_penalty_w, 1e-9)
            told.append(
                f"It would run if its priority were above about {max(least, job.priority):.2g}, "
                "or if a GPU it can use became free."
            )
        return tuple(told)


def _watts(more: float) -> str:
    if abs(more) < 0.5:
        return "it would cost about the same"
    return f"it would cost about {abs(more):.0f} W {'more' if more > 0 else 'less for itself'}"


def _first_leaf(certificate: Mapping[str, Any]) -> Mapping[str, Any]:
    node: Any = certificate.get("root", {})
    while isinstance(node, Mapping) and "split" in node:
        node = node["low"]
    return node if isinstance(node, Mapping) else {}
