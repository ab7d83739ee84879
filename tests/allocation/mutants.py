"""Mutants of a good plan, by the rule that has to catch them; docs/allocation.md lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gogh_core.allocation import Problem
from gogh_core.domain import Move, Placement, Plan, ServerSwitch, Slot, Stop, Waiting
from tests.allocation.plans import at, costed, put, stated

Mutate = Callable[[Problem, Plan], Plan | tuple[Problem, Plan]]
NAN = float("nan")


def placed(**changes) -> Mutate:
    """Other placements, everything else as follows from them."""
    return lambda p, good: stated(p, put(**changes))


def says(**changes) -> Mutate:
    """The good plan says something else."""
    return lambda p, good: replace(good, **changes)


def tightened(**changes) -> Mutate:
    """The same plan for a problem with a tighter limit."""

    def mutate(p: Problem, good: Plan) -> tuple[Problem, Plan]:
        tighter = replace(p, **changes)
        return tighter, costed(tighter, good)

    return mutate


def one(kind: str, index: int, **changes) -> Mutate:
    """One move, stop, switch or placement of the good plan, changed."""

    def mutate(p: Problem, good: Plan) -> Plan:
        parts = list(getattr(good, kind))
        parts[index] = replace(parts[index], **changes)
        return replace(good, **{kind: tuple(parts)})

    return mutate


def more(kind: str, *parts) -> Mutate:
    """More moves, stops, switches, placements or waiting jobs."""
    return lambda p, good: replace(good, **{kind: (*getattr(good, kind), *parts)})


def none(kind: str) -> Mutate:
    return lambda p, good: replace(good, **{kind: ()})


def twice(kind: str) -> Mutate:
    return lambda p, good: replace(good, **{kind: (*getattr(good, kind), getattr(good, kind)[0])})


def third_on_a_gpu(p: Problem, good: Plan) -> Plan:
    return stated(p, put(a3=Placement("a3", at("s1", 0), "a1", 3.0)))


def spread_job_twice_on_a_gpu(p: Problem, good: Plan) -> Plan:
    here = Placement("sp", at("s4", 2), "sp", 3.0)
    return stated(p, put(sp=[here, here]))


def proven(certificate: object) -> Mutate:
    return lambda p, good: replace(good, certificate=certificate)


# rule: {what the mutant does: (mutate, other rules that may speak too)}
MUTANTS: dict[str, dict[str, tuple[Mutate, set[str]]]] = {
    "numbers_are_finite": {
        "cost is NaN": (says(cost_w=NAN), set()),
        "bound is NaN": (says(bound_w=NAN), set()),
        "bound is infinite": (says(bound_w=float("inf")), set()),
        "gap is NaN": (says(gap=NAN), set()),
        "seconds are negative": (says(solve_s=-1.0), set()),
        "a throughput is NaN": (one("placements", 3, throughput=NAN), set()),
        "a throughput is negative": (one("placements", 3, throughput=-4.0), set()),
        "a part of the cost is a text": (says(spent={"base_w": "much"}), set()),
        "a part of the cost is NaN": (says(spent={"base_w": NAN}), set()),
        "a step is negative": (one("moves", 0, step=-1), set()),
    },
    "jobs_are_known": {
        "an unknown job is placed": (
            more("placements", Placement("who", at("s6", 0), None, 4.0)),
            set(),
        ),
        "an unknown job moves": (more("moves", Move(1, "who", at("s1", 0), (), "")), set()),
        "an unknown job stops": (more("stops", Stop(0, "who", at("s1", 0), "")), set()),
        "an unknown job waits": (more("waiting", Waiting("who", "")), set()),
    },
    "gpus_exist": {
        "a server that does not exist": (placed(g2=Placement("g2", at("s0", 0), None, 4.0)), set()),
        "a GPU that does not exist": (placed(g2=Placement("g2", at("s4", 4), None, 4.0)), set()),
        "placed nowhere": (placed(g2=Placement("g2", (), None, 4.0)), set()),
        "a GPU named twice": (
            placed(g2=Placement("g2", (Slot("s4", (0,)), Slot("s4", (0,))), None, 8.0)),
            set(),
        ),
    },
    "every_job_is_decided_once": {
        "a job left out": (lambda p, g: replace(g, waiting=g.waiting[1:]), set()),
        "placed and waits": (more("waiting", Waiting("b1", "")), set()),
        "waits twice": (twice("waiting"), set()),
        "a gang placed twice": (
            more("placements", Placement("b1", at("s6", 0), None, 4.0)),
            set(),
        ),
    },
    "problem_is_the_same": {
        "a plan for another problem": (says(versions={"problem_sha256": "0"}), set()),
    },
    "at_most_two_share": {
        "three jobs on a GPU": (
            third_on_a_gpu,
            {"partners_share_the_same_gpus", "moves_within_limit"},
        ),
        "a spread job shares with itself": (
            spread_job_twice_on_a_gpu,
            {"partners_share_the_same_gpus", "requirements_are_met", "cost_is_right"},
        ),
    },
    "partners_share_the_same_gpus": {
        "shares but says alone": (
            placed(g2=Placement("g2", at("s2", 0), None, 4.0)),
            set(),
        ),
        "names a partner who sits elsewhere": (
            placed(a3=Placement("a3", at("s4", 3), "pin", 3.0)),
            {"moves_within_limit"},
        ),
        "partners at two power limits": (
            placed(a2=Placement("a2", at("s1", 0), "a1", 2.5, 75.0)),
            set(),
        ),
    },
    "sharing_is_consented": {
        "shares though it must not": (
            placed(
                b1=Placement("b1", at("s1", 1), "g2", 3.0),
                g2=Placement("g2", at("s1", 1), "b1", 3.0),
            ),
            {"requirements_are_met"},
        ),
        "shares with another owner's job": (
            placed(
                a1=Placement("a1", at("s1", 0), None, 4.0),
                a2=Placement("a2", at("s2", 1), "pin", 3.0),
                pin=Placement("pin", at("s2", 1), "a2", 3.0),
            ),
            set(),
        ),
    },
    "gangs_hold_together": {
        "a gang on two servers": (
            placed(g2=Placement("g2", (Slot("s4", (0,)), Slot("s6", (0,))), None, 8.0)),
            set(),
        ),
        "a gang on two GPU types": (
            placed(g2=Placement("g2", (Slot("s4", (0,)), Slot("s5", (2,))), None, 8.0)),
            {"options_exist"},
        ),
        "a number of GPUs it cannot use": (
            placed(g4=Placement("g4", at("s7", 0), None, 1.0)),
            {"requirements_are_met"},
        ),
        "a large gang on parts of servers": (
            placed(
                g4=Placement(
                    "g4", (Slot("s7", (0, 1)), Slot("s8", (0,)), Slot("s9", (0,))), None, 5.0
                )
            ),
            set(),
        ),
        "a spread job as a gang": (
            placed(sp=Placement("sp", at("s4", 2, 3), None, 8.0)),
            {"options_exist"},
        ),
    },
    "spread_within_limit": {
        "a spread job on too many GPUs": (
            placed(
                sp=[Placement("sp", at("s4", n), None, 4.0) for n in (2, 3)]
                + [Placement("sp", at("s5", 0), None, 3.5)]
            ),
            set(),
        ),
    },
    "options_exist": {
        "a power limit nobody measured": (
            placed(a1=Placement("a1", at("s1", 0), None, 4.0, 12.0), a2=None),
            set(),
        ),
        "a throughput made up": (
            placed(b1=Placement("b1", at("s1", 1), None, 4.5)),
            set(),
        ),
        "a GPU type it has no option for": (
            placed(g2=Placement("g2", at("s5", 2), None, 4.0)),
            set(),
        ),
    },
    "requirements_are_met": {
        "a gang below its requirement": (
            placed(no=Placement("no", at("s4", 3), None, 4.0)),
            set(),
        ),
        "a spread job below its requirement": (
            placed(sp=Placement("sp", at("s4", 2), None, 4.0)),
            set(),
        ),
    },
    "drained_servers_are_empty": {
        "a job comes to a drained server": (
            placed(g2=Placement("g2", at("s3", 1), None, 4.0)),
            set(),
        ),
        "a job stays on a drained server": (
            placed(m1=Placement("m1", at("s3", 0), None, 4.0)),
            set(),
        ),
    },
    "pinned_jobs_stay": {
        "a pinned job moves": (
            placed(pin=Placement("pin", at("s4", 3), None, 4.0)),
            {"moves_within_limit"},
        ),
        "a pinned job waits": (placed(pin=None), set()),
        "a job that cannot move moves": (
            placed(b1=Placement("b1", at("s4", 3), None, 4.0)),
            {"moves_within_limit"},
        ),
    },
    "quotas_are_kept": {
        "a GPU over the quota": (placed(g2=Placement("g2", at("s4", 0, 1, 3), None, 12.0)), set()),
    },
    "moves_are_all_listed": {
        "a move left out": (none("moves"), {"moves_can_be_carried_out"}),
        "a move of a job that stays": (
            more("moves", Move(2, "pin", at("s2", 1), at("s2", 1), "")),
            set(),
        ),
        "a move listed twice": (twice("moves"), set()),
        "a move from elsewhere": (one("moves", 0, source=at("s1", 0)), set()),
        "a move to elsewhere": (one("moves", 0, target=at("s6", 0)), set()),
    },
    "stops_are_all_listed": {
        "a stop left out": (none("stops"), {"moves_can_be_carried_out"}),
        "a stop of a job that runs on": (more("stops", Stop(0, "b1", at("s1", 1), "")), set()),
        "a stop listed twice": (twice("stops"), set()),
        "a stop elsewhere": (one("stops", 0, source=at("s6", 0)), set()),
    },
    "moves_within_limit": {
        "a move too many": (placed(a3=Placement("a3", at("s4", 3), None, 4.0)), set()),
    },
    "moves_can_be_carried_out": {
        "a move to a GPU that is still taken": (one("stops", 0, step=1), set()),
    },
    "switches_are_all_listed": {
        "a switch left out": (lambda p, g: replace(g, servers=g.servers[1:]), set()),
        "a server with jobs is switched off": (
            more("servers", ServerSwitch("s1", "off")),
            set(),
        ),
        "a server kept on is switched off": (more("servers", ServerSwitch("s5", "off")), set()),
        "a server switched the wrong way": (one("servers", 0, action="on"), set()),
        "a server switched twice": (twice("servers"), set()),
        "an unknown server is switched": (more("servers", ServerSwitch("s0", "on")), set()),
    },
    "power_cap_is_kept": {
        "a watt over the cap": (tightened(power_cap_w=1500.0), set()),
    },
    "cost_is_right": {
        "a cost too low": (lambda p, g: restated(g, cost_w=g.cost_w - 1), set()),
        "a cost too high": (lambda p, g: restated(g, cost_w=g.cost_w + 1), set()),
        "power made up": (
            lambda p, g: replace(g, spent={**g.spent, "power_w": 1.0}),
            set(),
        ),
        "a move not counted": (lambda p, g: replace(g, spent={**g.spent, "moves": 0}), set()),
        "energy per step made up": (
            lambda p, g: replace(g, spent={**g.spent, "energy_per_step_j": 1.0}),
            set(),
        ),
    },
    "bound_is_proven": {
        "a bound too high": (lambda p, g: restated(g, bound_w=g.bound_w + 5), set()),
        "a bound above the cost": (lambda p, g: restated(g, bound_w=g.cost_w + 5), set()),
        "a gap made up": (lambda p, g: replace(g, gap=g.gap + 0.01), set()),
        "a certificate of nonsense": (proven({"root": {"jobs": [1]}}), set()),
        "a certificate with a list for a tree": (proven({"root": [1, 2]}), set()),
        "a certificate with NaN": (proven({"root": {"cap": NAN}}), set()),
        "a certificate with a number beyond all": (proven({"root": {"cap": 10**400}}), set()),
        "a certificate that lacks a branch": (
            proven({"root": {"split": "servers", "kind": 0, "at": 0, "low": {}}}),
            set(),
        ),
        "a split on a kind that does not exist": (
            proven({"root": {"split": "servers", "kind": 99, "at": 0, "low": {}, "high": {}}}),
            set(),
        ),
        "a split on what does not exist": (
            proven({"root": {"split": "luck", "kind": 0, "at": 0, "low": {}, "high": {}}}),
            set(),
        ),
    },
    "infeasible_is_proven": {
        "infeasible, though a plan exists": (
            lambda p, g: Plan("", "infeasible", "", 0, 0, 0, 0, notes=("no",)),
            set(),
        ),
        "infeasible with placements": (says(status="infeasible", notes=("no",)), set()),
    },
}


def restated(good: Plan, **changes) -> Plan:
    """Cost or bound changed, the gap as it follows."""
    from gogh_core.allocation.verify import gap_of

    changed = replace(good, **changes)
    return replace(changed, gap=max(0.0, gap_of(changed.cost_w, changed.bound_w)))
