"""The independent check of a plan: every rule and every watt, from problem and plan alone.

Nothing of the solver's path is used here: where jobs sit, what they run as, what it costs and
what the duals prove is worked out again. `verify` lists every violation; none means good.
One function is one rule, and its first line is the rule.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from gogh_core.allocation.options import OptionTable
from gogh_core.allocation.problem import Gpu, Problem, ProblemJob
from gogh_core.allocation.verify_bound import bound_of
from gogh_core.domain import Placement, Plan

__all__ = ["Spent", "spent_of", "verify"]

TOLERANCE = 1e-6
"""Relative: costs are sums of thousands of terms in double precision."""


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


@dataclass(slots=True)
class _View:
    """Problem and plan side by side."""

    problem: Problem
    plan: Plan
    finder: _Finder
    of_job: dict[str, list[Placement]] = field(default_factory=dict)
    on_gpu: dict[Gpu, list[Placement]] = field(default_factory=dict)
    option_of: dict[int, int] = field(default_factory=dict)
    """Row of the option by the placement's identity; missing where there is none."""

    def known(self) -> Iterable[tuple[ProblemJob, Placement]]:
        """Placements of jobs that exist."""
        for placement in self.plan.placements:
            job = self.problem.job_of.get(placement.job)
            if job is not None:
                yield job, placement


class _Finder:
    """Finds an option's row by what it is."""

    def __init__(self, table: OptionTable) -> None:
        self.table = table
        self.types = {name: i for i, name in enumerate(table.types)}
        self.classes = {name: i for i, name in enumerate(table.classes)}
        self.gpu_factor = int(table.gpus.max(initial=0)) + 1
        self.class_factor = len(table.classes) + 1
        self.keys = self._key(table.type_id, table.gpus, table.class_a, table.class_b)

    def _key(self, kind: object, gpus: object, a: object, b: object) -> np.ndarray:
        head = np.asarray(kind) * self.gpu_factor + np.asarray(gpus)
        tail = np.asarray(a) * self.class_factor + np.asarray(b) + 1
        return np.asarray(head * (self.class_factor * self.class_factor) + tail)

    def row(
        self, gpu_type: str, gpus: int, classes: list[str], limit_w: float | None
    ) -> int | None:
        """The row, or None."""
        kind = self.types.get(gpu_type)
        ids = sorted(self.classes.get(name, -1) for name in classes)
        if kind is None or ids[0] < 0 or gpus >= self.gpu_factor:
            return None
        key = self._key(kind, gpus, ids[0], ids[1] if len(ids) > 1 else -1)
        start = int(np.searchsorted(self.keys, key))
        while start < len(self.keys) and self.keys[start] == key:
            limit = self.table.limit_w[start]
            if (limit_w is None and math.isnan(limit)) or limit == limit_w:
                return start
            start += 1
        return None


def verify(problem: Problem, plan: Plan) -> list[str]:
    """Every violation of the plan; an empty list means that it is good."""
    if plan.status == "infeasible":
        if plan.placements or plan.moves or plan.stops or plan.servers:
            return ["an infeasible plan must not place, move, stop or switch anything"]
        return [] if plan.notes else ["an infeasible plan must give its reasons"]
    view = _view(problem, plan)
    found = [text for rule in SHAPE for text in rule(view)]
    if found:
        return found
    found = [text for rule in RULES for text in rule(view)]
    return found


def spent_of(problem: Problem, plan: Plan) -> Spent:
    """What the plan costs by kind; the plan's shape must be good."""
    return _spent(_view(problem, plan))


def _view(problem: Problem, plan: Plan) -> _View:
    view = _View(problem, plan, _Finder(problem.table))
    for placement in plan.placements:
        view.of_job.setdefault(placement.job, []).append(placement)
        for slot in placement.slots:
            for gpu in slot.gpus:
                view.on_gpu.setdefault((slot.server, gpu), []).append(placement)
    for job, placement in view.known():
        row = _option_row(view, job, placement)
        if row is not None:
            view.option_of[id(placement)] = row
    return view


def _option_row(view: _View, job: ProblemJob, placement: Placement) -> int | None:
    servers = [view.problem.server_of.get(slot.server) for slot in placement.slots]
    if not servers or servers[0] is None:
        return None
    classes = [job.job_class]
    if placement.partner is not None:
        partner = view.problem.job_of.get(placement.partner)
        if partner is None:
            return None
        classes.append(partner.job_class)
    gpus = sum(len(slot.gpus) for slot in placement.slots)
    return view.finder.row(servers[0].gpu_type, gpus, classes, placement.power_limit_w)


def _gpus(placements: Iterable[Placement]) -> frozenset[Gpu]:
    return frozenset(
        (slot.server, gpu) for p in placements for slot in p.slots for gpu in slot.gpus
    )


# --- shape: what has to hold before anything can be added up -----------------------------------


def jobs_are_known(view: _View) -> Iterable[str]:
    """Only jobs of the problem are placed, moved, stopped or left waiting."""
    plan = view.plan
    for noun, parts in (
        ("placed", plan.placements),
        ("moved", plan.moves),
        ("stopped", plan.stops),
        ("left waiting", plan.waiting),
    ):
        for part in parts:
            if part.job not in view.problem.job_of:
                yield f"job {part.job} is {noun} but is not in the problem"


def gpus_exist(view: _View) -> Iterable[str]:
    """Every GPU that is used exists, and no placement names one twice."""
    for placement in view.plan.placements:
        if not placement.slots:
            yield f"job {placement.job} is placed nowhere"
        listed = [(slot.server, gpu) for slot in placement.slots for gpu in slot.gpus]
        if len(listed) != len(set(listed)):
            yield f"job {placement.job} names a GPU twice"
        for server_id, gpu in listed:
            server = view.problem.server_of.get(server_id)
            if server is None:
                yield f"job {placement.job} is placed on server {server_id}, which does not exist"
            elif gpu >= server.gpus:
                where = f"GPU {gpu} of {server_id}, which has {server.gpus}"
                yield f"job {placement.job} is placed on {where}"


def every_job_is_decided_once(view: _View) -> Iterable[str]:
    """Every job either runs or waits; a gang has one placement."""
    waiting = Counter(entry.job for entry in view.plan.waiting)
    for job in view.problem.jobs:
        placed = len(view.of_job.get(job.id, ()))
        if waiting[job.id] > 1:
            yield f"job {job.id} waits {waiting[job.id]} times"
        if placed and waiting[job.id]:
            yield f"job {job.id} is placed and waits"
        if not placed and not waiting[job.id]:
            yield f"job {job.id} is neither placed nor waits"
        if job.mode == "gang" and placed > 1:
            yield f"gang {job.id} has {placed} placements"


SHAPE: tuple[Callable[[_View], Iterable[str]], ...] = (
    jobs_are_known,
    gpus_exist,
    every_job_is_decided_once,
)


# --- rules --------------------------------------------------------------------------------------


def at_most_two_share(view: _View) -> Iterable[str]:
    """A GPU has at most two jobs, and never the same job twice."""
    for (server, gpu), placements in sorted(view.on_gpu.items()):
        if len(placements) > 2:
            names = ", ".join(sorted(p.job for p in placements))
            yield f"GPU {gpu} of {server} has {len(placements)} jobs: {names}"
        elif len(placements) == 2 and placements[0].job == placements[1].job:
            yield f"GPU {gpu} of {server} has job {placements[0].job} twice"


def partners_share_the_same_gpus(view: _View) -> Iterable[str]:
    """Who shares names the partner, and both sit on exactly the same GPUs at one limit."""
    for placement in view.plan.placements:
        here = _gpus([placement])
        others = {id(p): p for gpu in here for p in view.on_gpu[gpu] if p is not placement}
        names = {p.job for p in others.values()}
        if placement.partner is None:
            if others:
                yield f"job {placement.job} runs alone but shares with {', '.join(sorted(names))}"
            continue
        if names != {placement.partner}:
            whom = ", ".join(sorted(names)) or "nobody"
            said = placement.partner
            yield f"job {placement.job} says it shares with {said} but sits with {whom}"
            continue
        for other in others.values():
            if _gpus([other]) != here:
                yield f"jobs {placement.job} and {other.job} share only some of their GPUs"
            if other.power_limit_w != placement.power_limit_w:
                yield f"jobs {placement.job} and {other.job} share at different power limits"


def sharing_is_consented(view: _View) -> Iterable[str]:
    """A job shares only if it may: with anybody, or with jobs of its owner."""
    for job, placement in view.known():
        if placement.partner is None:
            continue
        partner = view.problem.job_of.get(placement.partner)
        if job.shareable is False:
            yield f"job {job.id} must not share but shares with {placement.partner}"
        elif job.shareable == "owner" and partner is not None and partner.owner != job.owner:
            yield (
                f"job {job.id} shares only with jobs of {job.owner!r} but sits with "
                f"{partner.id} of {partner.owner!r}"
            )


def gangs_hold_together(view: _View) -> Iterable[str]:
    """A gang uses an allowed number of GPUs of one type: on one server, or filling whole ones."""
    for job, placement in view.known():
        servers = [view.problem.server_of[slot.server] for slot in placement.slots]
        count = sum(len(slot.gpus) for slot in placement.slots)
        types = {server.gpu_type for server in servers}
        if len(types) > 1:
            yield f"job {job.id} is placed on several GPU types at once: {', '.join(sorted(types))}"
            continue
        if job.mode == "spread":
            if count != 1:
                yield f"spread job {job.id} has a placement of {count} GPUs"
            continue
        if count not in job.gpu_counts:
            yield f"gang {job.id} got {count} GPUs, not one of {list(job.gpu_counts)}"
        names = {server.id for server in servers}
        if count <= view.problem.largest[servers[0].gpu_type]:
            if len(names) > 1:
                yield f"gang {job.id} of {count} fits one server but is on {len(names)}"
        elif sum(view.problem.server_of[name].gpus for name in names) != count:
            yield f"gang {job.id} of {count} does not fill whole servers"


def spread_within_limit(view: _View) -> Iterable[str]:
    """A spread job takes at most its maximum number of GPUs."""
    for job in view.problem.jobs:
        count = len(view.of_job.get(job.id, ()))
        if job.mode == "spread" and count > job.max_gpus:
            yield f"spread job {job.id} has {count} GPUs, at most {job.max_gpus} are allowed"


def options_exist(view: _View) -> Iterable[str]:
    """Every placement is an option of the problem, with that option's throughput."""
    table = view.problem.table
    for job, placement in view.known():
        row = view.option_of.get(id(placement))
        if row is None:
            whom = "alone" if placement.partner is None else f"with {placement.partner}"
            limit = placement.power_limit_w
            at = "" if limit is None else f" at {limit:g} W"
            yield f"job {job.id} {whom}{at}: no such option"
            continue
        first = table.classes[table.class_a[row]] == job.job_class
        stated = float(table.throughput_a[row] if first else table.throughput_b[row])
        if abs(stated - placement.throughput) > TOLERANCE * (1 + stated):
            said = placement.throughput
            yield f"job {job.id} is said to reach {said:g}, its option says {stated:g}"


def requirements_are_met(view: _View) -> Iterable[str]:
    """Every running job reaches the throughput it requires."""
    for job in view.problem.jobs:
        placements = view.of_job.get(job.id)
        if not placements:
            continue
        total = sum(p.throughput for p in placements)
        if total < job.required_throughput - 1e-9 * (1 + job.required_throughput):
            yield f"job {job.id} needs {job.required_throughput:g} but gets {total:g}"


def drained_servers_are_empty(view: _View) -> Iterable[str]:
    """No job is on a server that is to be drained."""
    for server, gpu in sorted(view.on_gpu):
        if view.problem.server_of[server].drain:
            names = ", ".join(p.job for p in view.on_gpu[server, gpu])
            yield f"server {server} is to be drained but GPU {gpu} has {names}"


def pinned_jobs_stay(view: _View) -> Iterable[str]:
    """A pinned job stays where it is; one that cannot move stays or stops."""
    for job in view.problem.jobs:
        there = _gpus(view.of_job.get(job.id, ()))
        if job.pinned and there != job.place:
            yield f"job {job.id} is pinned but does not stay where it is"
        elif job.at and not job.movable and there and there != job.place:
            yield f"job {job.id} cannot move but is moved"


def quotas_are_kept(view: _View) -> Iterable[str]:
    """The jobs of an owner hold no more GPUs than the owner's quota; sharing halves nothing."""
    used: Counter[str] = Counter()
    for job, placement in view.known():
        used[job.owner] += sum(len(slot.gpus) for slot in placement.slots)
    for owner, quota in view.problem.quotas.items():
        if used[owner] > quota:
            yield f"owner {owner!r} holds {used[owner]} GPUs, the quota is {quota}"


def _moved(view: _View) -> set[str]:
    moved = set()
    for job in view.problem.jobs:
        there = _gpus(view.of_job.get(job.id, ()))
        if job.at and there and there != job.place:
            moved.add(job.id)
    return moved


def moves_are_all_listed(view: _View) -> Iterable[str]:
    """The moves are exactly the running jobs that change GPUs, from here to there."""
    listed = Counter(move.job for move in view.plan.moves)
    moved = _moved(view)
    for name in sorted(moved - set(listed)):
        yield f"job {name} changes its GPUs but is not listed as a move"
    for name in sorted(set(listed) - moved):
        yield f"job {name} is listed as a move but does not change its GPUs"
    for name, count in sorted(listed.items()):
        if count > 1:
            yield f"job {name} is moved {count} times"
    for move in view.plan.moves:
        job = view.problem.job_of[move.job]
        source = {(slot.server, gpu) for slot in move.source for gpu in slot.gpus}
        target = {(slot.server, gpu) for slot in move.target for gpu in slot.gpus}
        if source != job.place:
            yield f"the move of {move.job} does not start where the job is"
        if target != _gpus(view.of_job.get(move.job, ())):
            yield f"the move of {move.job} does not end where the job is placed"


def stops_are_all_listed(view: _View) -> Iterable[str]:
    """The stops are exactly the running jobs that have to wait."""
    listed = Counter(stop.job for stop in view.plan.stops)
    stopped = {job.id for job in view.problem.jobs if job.at and job.id not in view.of_job}
    for name in sorted(stopped - set(listed)):
        yield f"job {name} has to wait but is not listed as a stop"
    for name in sorted(set(listed) - stopped):
        yield f"job {name} is listed as a stop but does not stop"
    for stop in view.plan.stops:
        source = {(slot.server, gpu) for slot in stop.source for gpu in slot.gpus}
        if source != view.problem.job_of[stop.job].place:
            yield f"the stop of {stop.job} does not start where the job is"


def moves_within_limit(view: _View) -> Iterable[str]:
    """No more jobs move than `max_moves`."""
    limit = view.problem.max_moves
    if limit is not None and len(_moved(view)) > limit:
        yield f"{len(_moved(view))} jobs move, at most {limit} may"


def moves_can_be_carried_out(view: _View) -> Iterable[str]:
    """In the order of steps nobody needs a GPU that is still taken, unless by the partner to be."""
    leaves: dict[str, int] = {stop.job: stop.step for stop in view.plan.stops}
    leaves |= {move.job: 0 if move.held else move.step for move in view.plan.moves}
    users: dict[Gpu, list[str]] = {}
    for job in view.problem.jobs:
        for place in job.place:
            users.setdefault(place, []).append(job.id)
    for move in view.plan.moves:
        for slot in move.target:
            for gpu in slot.gpus:
                here = (slot.server, gpu)
                staying = {p.job for p in view.on_gpu.get(here, ())}
                for other in users.get(here, ()):
                    if other in (move.job,) or (other in staying and other not in leaves):
                        continue
                    if leaves.get(other, move.step) >= move.step:
                        yield (
                            f"the move of {move.job} in step {move.step} needs GPU {gpu} of "
                            f"{slot.server}, which {other} has not left"
                        )


def switches_are_all_listed(view: _View) -> Iterable[str]:
    """Servers with jobs or `keep_on` are on, all others off, and `servers` lists the changes."""
    listed = {switch.id: switch.action for switch in view.plan.servers}
    if len(listed) != len(view.plan.servers):
        yield "a server is switched twice"
    for name in sorted(set(listed) - set(view.problem.server_of)):
        yield f"server {name} is switched but does not exist"
    for server in view.problem.servers:
        on = server.keep_on or server.id in _used(view)
        wanted = None if on == server.on else ("on" if on else "off")
        if listed.get(server.id) != wanted:
            yield (
                f"server {server.id} has to be {'on' if on else 'off'} and is "
                f"{'on' if server.on else 'off'}, but the plan says {listed.get(server.id)}"
            )


def power_cap_is_kept(view: _View) -> Iterable[str]:
    """The cluster draws no more than the power cap."""
    cap = view.problem.power_cap_w
    power_w = _spent(view).power_w
    if cap is not None and power_w > cap + TOLERANCE * (1 + cap):
        yield f"the plan draws {power_w:.1f} W, the cap is {cap:g} W"


def cost_is_right(view: _View) -> Iterable[str]:
    """The stated cost and each of its parts are what the problem's formula gives."""
    spent = _spent(view)
    if not _close(spent.cost_w, view.plan.cost_w):
        yield f"cost_w is {view.plan.cost_w}, the problem's formula gives {spent.cost_w}"
    for name, stated in view.plan.spent.items():
        real = getattr(spent, name, None)
        if real is not None and not _close(real, stated, abs(spent.cost_w)):
            yield f"spent on {name} is {stated}, the problem's formula gives {real}"


def bound_is_proven(view: _View) -> Iterable[str]:
    """The bound follows from the certificate, is not above the cost, and the gap is theirs."""
    plan = view.plan
    try:
        proven = bound_of(view.problem, plan.certificate)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        yield f"the certificate cannot be read: {type(error).__name__}: {error}"
        return
    scale = 1 + abs(plan.cost_w)
    if plan.bound_w > proven + TOLERANCE * scale:
        yield f"bound_w is {plan.bound_w}, the certificate proves only {proven}"
    if plan.bound_w > plan.cost_w + TOLERANCE * scale:
        yield f"bound_w {plan.bound_w} is above cost_w {plan.cost_w}"
    expected = gap_of(plan.cost_w, plan.bound_w)
    if abs(expected - plan.gap) > 1e-6 * (1 + abs(expected)):
        yield f"gap is {plan.gap}, cost and bound give {expected}"


def problem_is_the_same(view: _View) -> Iterable[str]:
    """The plan was made for this problem."""
    stated = view.plan.versions.get("problem_sha256")
    if stated is not None and stated != view.problem.sha256:
        yield "the plan was made for another problem (problem_sha256 differs)"


RULES: tuple[Callable[[_View], Iterable[str]], ...] = (
    problem_is_the_same,
    at_most_two_share,
    partners_share_the_same_gpus,
    sharing_is_consented,
    gangs_hold_together,
    spread_within_limit,
    options_exist,
    requirements_are_met,
    drained_servers_are_empty,
    pinned_jobs_stay,
    quotas_are_kept,
    moves_are_all_listed,
    stops_are_all_listed,
    moves_within_limit,
    moves_can_be_carried_out,
    switches_are_all_listed,
    power_cap_is_kept,
    cost_is_right,
    bound_is_proven,
)


# --- the cost -----------------------------------------------------------------------------------


def gap_of(cost_w: float, bound_w: float) -> float:
    """(cost - bound) / bound; a bound that is not positive is measured by its size."""
    if abs(cost_w - bound_w) <= 1e-9 * (1 + abs(cost_w)):
        return 0.0
    return (cost_w - bound_w) / (abs(bound_w) or 1.0)


def _close(a: float, b: float, scale: float = 0.0) -> bool:
    return abs(a - b) <= TOLERANCE * (1 + max(abs(a), abs(b), scale))


def _used(view: _View) -> set[str]:
    return {server for server, _ in view.on_gpu}


def _spent(view: _View) -> Spent:
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
    moved = _moved(view)
    for job in problem.jobs:
        placements = view.of_job.get(job.id)
        if not placements:
            spent.waiting_w += job.priority * problem.waiting_penalty_w
            if job.at:
                spent.stops_w += job.move_cost_j / problem.window_s
            continue
        if job.id in moved:
            spent.moves_w += job.move_cost_j / problem.window_s
        surplus = sum(p.throughput for p in placements) - job.required_throughput
        spent.surplus_w += job.surplus_j_per_step * surplus
    return spent
