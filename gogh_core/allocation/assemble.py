"""From seats to a plan: placements, moves in an order that works, stops, switches, reasons, cost.

The cost is added up here from the seats; the verifier adds it up again from the plan.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gogh_core.allocation.compiled import Compiled, Seats
from gogh_core.allocation.moves import order_of_moves
from gogh_core.allocation.problem import Gpu
from gogh_core.allocation.reasons import waiting_reasons
from gogh_core.domain import Placement, Plan, PlanStatus, ServerSwitch, Slot, Stop, Waiting

__all__ = ["allowed", "assemble", "cost_of", "infeasible_plan", "stated_versions"]


def cost_of(compiled: Compiled, seats: Seats) -> dict[str, float]:
    """The objective by kind, in watts; the sum without `surplus_w`, less it, is the cost."""
    c, problem = compiled, compiled.problem
    taken: dict[str, set[int]] = {}
    spent = dict.fromkeys(
        (
            "base_w",
            "idle_w",
            "off_w",
            "options_w",
            "moves_w",
            "stops_w",
            "switches_w",
            "waiting_w",
            "surplus_w",
        ),
        0.0,
    )
    for j, job in enumerate(problem.jobs):
        got = 0.0
        here: set[Gpu] = set()
        for seat in seats.get(j, ()):
            for name, gpus in seat.slots:
                taken.setdefault(name, set()).update(gpus)
            here |= seat.gpus
            if seat.partner < 0 or j < seat.partner:
                spent["options_w"] += float(c.table.power_w[seat.row])
            got += throughput(c, j, seat.row)
        if not here:
            spent["waiting_w"] += job.priority * problem.waiting_penalty_w
            spent["stops_w"] += float(c.stated_move_w[j])
            continue
        if job.at and here != job.place:
            spent["moves_w"] += float(c.stated_move_w[j])
        spent["surplus_w"] += job.surplus_j_per_step * (got - job.required_throughput)
    for server in problem.servers:
        used = len(taken.get(server.id, ()))
        on = server.keep_on or used > 0
        if on:
            spent["base_w"] += server.base_w
            spent["idle_w"] += (server.gpus - used) * problem.gpu_types[server.gpu_type]
        else:
            spent["off_w"] += server.off_w
        if on != server.on:
            spent["switches_w"] += server.switch_cost_j / problem.window_s
    return spent


def guarded_w(compiled: Compiled, seats: Seats) -> float:
    """What moving or stopping jobs that should be left alone adds, for comparing plans only."""
    c = compiled
    if not c.guard_w.any():
        return 0.0
    touched = 0.0
    for j in np.flatnonzero(c.guard_w).tolist():
        here = frozenset().union(*(seat.gpus for seat in seats.get(j, ())))
        if here != c.problem.jobs[j].place:
            touched += float(c.guard_w[j])
    return touched


def allowed(compiled: Compiled, seats: Seats) -> bool:
    """Whether seats keep pins, who may not move, moves, quotas and the cap; rounding may not."""
    c, problem = compiled, compiled.problem
    moved = 0
    held = dict.fromkeys(problem.quotas, 0)
    for j, job in enumerate(problem.jobs):
        here = frozenset().union(*(seat.gpus for seat in seats.get(j, ())))
        changed = bool(job.at and here and here != job.place)
        if (job.pinned and here != job.place) or (changed and not c.free[j]):
            return False
        moved += changed
        if job.owner in held:
            held[job.owner] += len(here)
    if problem.max_moves is not None and moved > problem.max_moves:
        return False
    if any(held[owner] > most for owner, most in problem.quotas.items()):
        return False
    if problem.power_cap_w is None:
        return True
    spent = cost_of(c, seats)
    power_w = spent["base_w"] + spent["idle_w"] + spent["off_w"] + spent["options_w"]
    return power_w <= problem.power_cap_w * (1 + 1e-9)


def total(spent: Mapping[str, float]) -> float:
    """The cost from its parts."""
    return sum(spent.values()) - 2 * spent["surplus_w"]


def throughput(compiled: Compiled, job: int, row: int) -> float:
    """What the job gets from an option."""
    table = compiled.table
    first = table.class_a[row] == compiled.cls[job]
    return float(table.throughput_a[row] if first else table.throughput_b[row])


def assemble(
    compiled: Compiled,
    seats: Seats,
    *,
    status: PlanStatus,
    solver: str,
    solve_s: float,
    bound_w: float,
    certificate: Mapping[str, Any],
    versions: Mapping[str, Any],
    notes: tuple[str, ...],
) -> Plan:
    """The plan that these seats are."""
    c, problem = compiled, compiled.problem
    spent = cost_of(c, seats)
    cost_w = total(spent)
    bound_w = min(bound_w, cost_w)
    placements = _placements(c, seats)
    power_w = spent["base_w"] + spent["idle_w"] + spent["off_w"] + spent["options_w"]
    moves, held = order_of_moves(c, seats)
    reasons = waiting_reasons(c, seats, power_w=power_w, moves=len(moves))
    stops = tuple(
        Stop(0, job.id, job.at, reasons[j])
        for j, job in enumerate(problem.jobs)
        if job.at and j not in seats
    )
    waiting = tuple(Waiting(problem.jobs[j].id, reason) for j, reason in reasons.items())
    used = {server for entries in seats.values() for seat in entries for server, _ in seat.slots}
    switches = []
    for server in problem.servers:
        on = server.keep_on or server.id in used
        if on != server.on:
            switches.append(ServerSwitch(server.id, "on" if on else "off"))
    if held:
        notes += (
            "moves form a cycle: "
            + ", ".join(held)
            + (" is" if len(held) == 1 else " are")
            + " held in step 0 until the place is free",
        )
    plan_id = _identity(problem.sha256, placements)
    gap = _gap(cost_w, bound_w)
    steps = sum(p.throughput for p in placements)
    report: dict[str, Any] = {
        **spent,
        "moves": len(moves),
        "stops": len(stops),
        "waiting": len(waiting),
    }
    report["power_w"] = power_w
    report["energy_per_step_j"] = power_w / steps if steps > 0 else None
    return Plan(
        plan_id,
        status,
        solver,
        solve_s,
        cost_w,
        bound_w,
        gap,
        placements,
        moves,
        stops,
        tuple(switches),
        waiting,
        {**versions, "problem_sha256": problem.sha256},
        certificate,
        report,
        notes,
    )


def _gap(cost_w: float, bound_w: float) -> float:
    if abs(cost_w - bound_w) <= 1e-9 * (1 + abs(cost_w)):
        return 0.0
    return (cost_w - bound_w) / (abs(bound_w) or 1.0)


def _placements(c: Compiled, seats: Seats) -> tuple[Placement, ...]:
    jobs = c.problem.jobs
    found = []
    for j in sorted(seats):
        for seat in sorted(seats[j], key=lambda s: s.slots):
            limit = float(c.table.limit_w[seat.row])
            found.append(
                Placement(
                    jobs[j].id,
                    tuple(Slot(server, tuple(gpus)) for server, gpus in sorted(seat.slots)),
                    None if seat.partner < 0 else jobs[seat.partner].id,
                    throughput(c, j, seat.row),
                    None if math.isnan(limit) else limit,
                )
            )
    return tuple(found)


def _identity(problem_sha256: str, placements: tuple[Placement, ...]) -> str:
    """The same decision for the same problem has the same id, whatever the clock said."""
    text = json.dumps([placement.to_dict() for placement in placements], sort_keys=True)
    return hashlib.sha256((problem_sha256 + text).encode()).hexdigest()[:16]


def infeasible_plan(
    compiled: Compiled,
    reasons: list[str],
    *,
    solver: str,
    solve_s: float,
    versions: Mapping[str, Any],
) -> Plan:
    """The answer when pins, drains or the cap cannot be kept: the reasons, and nothing else."""
    sha = compiled.problem.sha256
    return Plan(
        _identity(sha, ()),
        "infeasible",
        solver,
        solve_s,
        0.0,
        0.0,
        0.0,
        versions={**versions, "problem_sha256": sha},
        notes=tuple(reasons),
    )


def stated_versions(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The versions a plan names: ours, and what the caller gave."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("gogh")
    except PackageNotFoundError:
        own = "unknown"
    return {"gogh": own, **(given or {})}
