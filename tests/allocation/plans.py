"""A problem in which every rule matters, a plan for it by hand, and plans that differ from it.

`stated` writes down what follows from placements (moves, stops, switches, cost), so that a mutant
breaks the one rule it is about and is honest in all else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from gogh_core.allocation import Option, Problem, ProblemJob, ProblemServer
from gogh_core.allocation.verify import gap_of, spent_of
from gogh_core.allocation.verify_bound import bound_of
from gogh_core.domain import Move, Placement, Plan, ServerSwitch, Slot, Stop, Waiting


def at(server: str, *gpus: int) -> tuple[Slot, ...]:
    return (Slot(server, gpus),)


def problem() -> Problem:
    options = [
        Option("t", 1, ("A",), (4.0,), 100.0),
        Option("t", 1, ("A",), (3.5,), 80.0, 75.0),
        Option("t", 1, ("B",), (4.0,), 110.0),
        Option("t", 1, ("A", "A"), (3.0, 3.0), 120.0),
        Option("t", 1, ("A", "A"), (2.5, 2.5), 90.0, 75.0),
        Option("t", 1, ("A", "B"), (3.0, 3.0), 130.0),
        Option("t", 1, ("B", "B"), (3.0, 3.0), 140.0),
        *(Option("t", m, ("B",), (4.0 * m,), 100.0 * m) for m in (2, 3)),
        Option("u", 1, ("A",), (3.5,), 90.0),
        Option("w", 1, ("C",), (1.0,), 50.0),
        Option("w", 4, ("C",), (5.0,), 300.0),
    ]
    servers = [
        ProblemServer("s1", "t", 2, 50.0),
        ProblemServer("s2", "t", 2, 60.0, switch_cost_j=300.0),
        ProblemServer("s3", "t", 2, 70.0, drain=True, off_w=5.0, switch_cost_j=600.0),
        ProblemServer("s4", "t", 4, 80.0, on=False, switch_cost_j=900.0),
        ProblemServer("s5", "u", 3, 90.0, keep_on=True),
        ProblemServer("s6", "t", 2, 40.0, on=False, off_w=7.0),
        ProblemServer("s7", "w", 2, 10.0),
        ProblemServer("s8", "w", 2, 10.0),
        ProblemServer("s9", "w", 2, 10.0, on=False),
    ]
    jobs = [
        ProblemJob("a1", "A", required_throughput=2.5, owner="x", at=at("s1", 0)),
        ProblemJob("a2", "A", required_throughput=2.5, owner="x", shareable="owner"),
        ProblemJob("a3", "A", at=at("s5", 1), move_cost_j=300.0),
        ProblemJob("b1", "B", shareable=False, at=at("s1", 1), movable=False),
        ProblemJob("g2", "B", gpu_counts=(1, 2, 3), required_throughput=4.0, owner="q"),
        ProblemJob("g4", "C", gpu_counts=(4,), required_throughput=5.0),
        ProblemJob("m1", "B", at=at("s3", 0), move_cost_j=600.0),
        ProblemJob("no", "A", required_throughput=99.0),
        ProblemJob("pin", "A", at=at("s2", 1), pinned=True, surplus_j_per_step=1.0),
        ProblemJob("sp", "A", "spread", max_gpus=2, required_throughput=7.0),
        ProblemJob("st", "B", priority=0.5, at=at("s2", 0), move_cost_j=300.0),
    ]
    idle = {"t": 10.0, "u": 20.0, "w": 5.0}
    return Problem(300.0, 1000.0, idle, servers, jobs, options, 5000.0, 1, {"q": 2})


PLACEMENTS = (
    Placement("a1", at("s1", 0), "a2", 3.0),
    Placement("a2", at("s1", 0), "a1", 3.0),
    Placement("a3", at("s5", 1), None, 3.5),
    Placement("b1", at("s1", 1), None, 4.0),
    Placement("g2", at("s4", 0, 1), None, 8.0),
    Placement("g4", (Slot("s7", (0, 1)), Slot("s8", (0, 1))), None, 5.0),
    Placement("m1", at("s2", 0), None, 4.0),
    Placement("pin", at("s2", 1), None, 4.0),
    Placement("sp", at("s4", 2), None, 4.0),
    Placement("sp", at("s5", 0), None, 3.5),
)
Changed = dict[str, Placement | Sequence[Placement] | None]


def put(**changes) -> tuple[Placement, ...]:
    """The placements by hand, with those of some jobs exchanged (None: it waits)."""
    left = [placement for placement in PLACEMENTS if placement.job not in changes]
    for placement in changes.values():
        if placement is not None:
            left.extend([placement] if isinstance(placement, Placement) else placement)
    return tuple(left)


def stated(p: Problem, placements: Sequence[Placement] = PLACEMENTS) -> Plan:
    """The plan of these placements: everything else follows from them."""
    there: dict[str, set[tuple[str, int]]] = {}
    for placement in placements:
        gpus = {(slot.server, gpu) for slot in placement.slots for gpu in slot.gpus}
        there.setdefault(placement.job, set()).update(gpus)
    moves, stops = [], []
    for job in p.jobs:
        if job.at and job.id not in there:
            stops.append(Stop(0, job.id, job.at, "by hand"))
        elif job.at and there[job.id] != job.place:
            slots = [slot for q in placements if q.job == job.id for slot in q.slots]
            moves.append(Move(1, job.id, job.at, tuple(slots), "by hand"))
    used = {server for gpus in there.values() for server, _ in gpus}
    switches = []
    for server in p.servers:
        on = server.keep_on or server.id in used
        if on != server.on:
            switches.append(ServerSwitch(server.id, "on" if on else "off"))
    waiting = tuple(Waiting(job.id, "by hand") for job in p.jobs if job.id not in there)
    bare = Plan("by hand", "feasible", "nobody", 0.0, 0.0, 0.0, 0.0, tuple(placements))
    bare = replace(
        bare, moves=tuple(moves), stops=tuple(stops), servers=tuple(switches), waiting=waiting
    )
    return costed(p, bare)


def costed(p: Problem, plan: Plan) -> Plan:
    """The plan with the cost, bound and gap that are its own."""
    spent = spent_of(p, plan)
    bound_w = min(bound_of(p, {}), spent.cost_w)
    return replace(
        plan,
        cost_w=spent.cost_w,
        bound_w=bound_w,
        gap=gap_of(spent.cost_w, bound_w),
        spent=asdict(spent),
        versions={"problem_sha256": p.sha256},
    )


Mutant = Callable[[Problem], tuple[Problem, Plan]]
