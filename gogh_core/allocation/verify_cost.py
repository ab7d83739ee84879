"""What a plan costs, added up again from problem and plan, and what its certificate proves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gogh_core.allocation.verify_bound import bound_of
from gogh_core.allocation.verify_moves import moved
from gogh_core.allocation.verify_view import TOLERANCE, View

__all__ = ["MONEY", "Spent", "gap_of", "spent_in"]

_UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


@dataclass(slots=True)
class Spent:
    """What a plan costs, in watts by kind."""

    base_w: float = 0.0
    idle_w: float = 0.0
    off_w: float = 0.0
    options_w: float = 0.0
    moves_w: float = 0.0
    stops_w: float = 0.0
    switches_w: float = 0.0
    waiting_w: float = 0.0
    surplus_w: float = 0.0

    @property
    def power_w(self) -> float:
        """What the cluster draws: this is what the power cap is about."""
        return self.base_w + self.idle_w + self.off_w + self.options_w

    @property
    def cost_w(self) -> float:
        """The objective."""
        spent = self.power_w + self.moves_w + self.stops_w + self.switches_w + self.waiting_w
        return spent - self.surplus_w


_PARTS = (*Spent.__dataclass_fields__, "power_w", "cost_w")


def spent_in(view: View) -> Spent:
    """The objective of the problem, term by term."""
    problem, plan, table = view.problem, view.plan, view.problem.table
    spent = Spent()
    taken = Counter(server for server, _ in view.on_gpu)
    for server in problem.servers:
        on = server.keep_on or server.id in taken
        if on:
            spent.base_w += server.base_w
            idle = server.gpus - taken[server.id]
            spent.idle_w += idle * problem.gpu_types[server.gpu_type]
        else:
            spent.off_w += server.off_w
        if on != server.on:
            spent.switches_w += server.switch_cost_j / problem.window_s
    for placement in plan.placements:
        row = view.option_of.get(id(placement))
        if row is not None and (placement.partner is None or placement.job < placement.partner):
            spent.options_w += float(table.power_w[row])
    changed = moved(view)
    for job in problem.jobs:
        placements = view.of_job.get(job.id)
        if not placements:
            spent.waiting_w += job.priority * problem.waiting_penalty_w
            if job.at:
                spent.stops_w += job.move_cost_j / problem.window_s
            continue
        if job.id in changed:
            spent.moves_w += job.move_cost_j / problem.window_s
        surplus = sum(p.throughput for p in placements) - job.required_throughput
        spent.surplus_w += job.surplus_j_per_step * surplus
    return spent


def power_cap_is_kept(view: View) -> Iterable[str]:
    """The cluster draws no more than the power cap."""
    cap = view.problem.power_cap_w
    power_w = spent_in(view).power_w
    if cap is not None and power_w > cap + TOLERANCE * (1 + cap):
        yield f"the plan draws {power_w:.1f} W, the cap is {cap:g} W"


def cost_is_right(view: View) -> Iterable[str]:
    """The stated cost and each of its parts are what the problem's formula gives."""
    spent, plan = spent_in(view), view.plan
    if not close(spent.cost_w, plan.cost_w):
        yield f"cost_w is {plan.cost_w}, the problem's formula gives {spent.cost_w}"
    real: dict[str, float] = {name: getattr(spent, name) for name in _PARTS}
    real |= {"moves": len(plan.moves), "stops": len(plan.stops), "waiting": len(plan.waiting)}
    steps = sum(placement.throughput for placement in plan.placements)
    if steps > 0:
        real["energy_per_step_j"] = spent.power_w / steps
    for name, stated in plan.spent.items():
        if stated is None or name not in real:
            continue
        scale = abs(spent.cost_w) if name.endswith("_w") else 0.0
        if not close(real[name], stated, scale):
            yield f"spent on {name} is {stated}, the problem's formula gives {real[name]}"


def bound_is_proven(view: View) -> Iterable[str]:
    """The bound follows from the certificate, is not above the cost, and the gap is theirs."""
    plan = view.plan
    try:
        proven = bound_of(view.problem, plan.certificate, plan.bound_w)
    except _UNREADABLE as error:
        yield f"the certificate cannot be read: {type(error).__name__}: {error}"
        return
    scale = 1 + abs(plan.cost_w)
    if not plan.bound_w <= proven + TOLERANCE * scale:
        yield f"bound_w is {plan.bound_w}, the certificate proves only {proven}"
    if not plan.bound_w <= plan.cost_w + TOLERANCE * scale:
        yield f"bound_w {plan.bound_w} is above cost_w {plan.cost_w}"
    expected = gap_of(plan.cost_w, plan.bound_w)
    if not abs(expected - plan.gap) <= TOLERANCE * (1 + abs(expected)):
        yield f"gap is {plan.gap}, cost and bound give {expected}"


def gap_of(cost_w: float, bound_w: float) -> float:
    """(cost - bound) / bound; a bound that is not positive is measured by its size."""
    if abs(cost_w - bound_w) <= 1e-9 * (1 + abs(cost_w)):
        return 0.0
    return (cost_w - bound_w) / (abs(bound_w) or 1.0)


def close(a: float, b: float, scale: float = 0.0) -> bool:
    """Equal but for rounding; never where one of them is no number."""
    return abs(a - b) <= TOLERANCE * (1 + max(abs(a), abs(b), scale))


MONEY = (power_cap_is_kept, cost_is_right, bound_is_proven)
