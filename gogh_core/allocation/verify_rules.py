"""Where jobs may sit: one function is one rule, and its first line is the rule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from gogh_core.allocation.verify_view import TOLERANCE, View, gpus_of

__all__ = ["PLACES", "SHAPE"]

# --- shape: what has to hold before anything can be added up -----------------------------------


def numbers_are_finite(view: View) -> Iterable[str]:
    """Every number of the plan is one, and none that counts or measures is negative."""
    plan = view.plan
    for name in ("solve_s", "cost_w", "bound_w", "gap"):
        if not math.isfinite(getattr(plan, name)):
            yield f"{name} is {getattr(plan, name)}, not a number"
    if plan.solve_s < 0 or plan.gap < -TOLERANCE:
        yield f"solve_s is {plan.solve_s} and gap {plan.gap}, both have to be >= 0"
    for placement in plan.placements:
        if not (math.isfinite(placement.throughput) and placement.throughput >= 0):
            yield f"the throughput of {placement.job} is {placement.throughput}, not a number >= 0"
    for name, value in plan.spent.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and abs(value) < 1e300):
            yield f"spent on {name} is {str(value)[:40]!r}, not a number"
    steps = [(m.job, m.step) for m in plan.moves] + [(s.job, s.step) for s in plan.stops]
    for job, step in steps:
        if step < 0:
            yield f"the step of {job} is {step}, not a number from 0"


def jobs_are_known(view: View) -> Iterable[str]:
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


def gpus_exist(view: View) -> Iterable[str]:
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


def every_job_is_decided_once(view: View) -> Iterable[str]:
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


# --- rules --------------------------------------------------------------------------------------


def problem_is_the_same(view: View) -> Iterable[str]:
    """The plan was made for this problem."""
    stated = view.plan.versions.get("problem_sha256")
    if stated is not None and stated != view.problem.sha256:
        yield "the plan was made for another problem (problem_sha256 differs)"


def at_most_two_share(view: View) -> Iterable[str]:
    """A GPU has at most two jobs, and never the same job twice."""
    for (server, gpu), placements in sorted(view.on_gpu.items()):
        if len(placements) > 2:
            names = ", ".join(sorted(p.job for p in placements))
            yield f"GPU {gpu} of {server} has {len(placements)} jobs: {names}"
        elif len(placements) == 2 and placements[0].job == placements[1].job:
            yield f"GPU {gpu} of {server} has job {placements[0].job} twice"


def partners_share_the_same_gpus(view: View) -> Iterable[str]:
    """Who shares names the partner, and both sit on exactly the same GPUs at one limit."""
    for placement in view.plan.placements:
        here = gpus_of([placement])
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
            if gpus_of([other]) != here:
                yield f"jobs {placement.job} and {other.job} share only some of their GPUs"
            if other.power_limit_w != placement.power_limit_w:
                yield f"jobs {placement.job} and {other.job} share at different power limits"


def sharing_is_consented(view: View) -> Iterable[str]:
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


def gangs_hold_together(view: View) -> Iterable[str]:
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


def spread_within_limit(view: View) -> Iterable[str]:
    """A spread job takes at most its maximum number of GPUs."""
    for job in view.problem.jobs:
        count = len(view.of_job.get(job.id, ()))
        if job.mode == "spread" and count > job.max_gpus:
            yield f"spread job {job.id} has {count} GPUs, at most {job.max_gpus} are allowed"


def options_exist(view: View) -> Iterable[str]:
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


def requirements_are_met(view: View) -> Iterable[str]:
    """Every running job reaches the throughput it requires."""
    for job in view.problem.jobs:
        placements = view.of_job.get(job.id)
        if not placements:
            continue
        total = sum(p.throughput for p in placements)
        if total < job.required_throughput - 1e-9 * (1 + job.required_throughput):
            yield f"job {job.id} needs {job.required_throughput:g} but gets {total:g}"


def drained_servers_are_empty(view: View) -> Iterable[str]:
    """No job is on a server that is to be drained."""
    for server, gpu in sorted(view.on_gpu):
        if view.problem.server_of[server].drain:
            names = ", ".join(p.job for p in view.on_gpu[server, gpu])
            yield f"server {server} is to be drained but GPU {gpu} has {names}"


def pinned_jobs_stay(view: View) -> Iterable[str]:
    """A pinned job stays where it is; one that cannot move stays or stops."""
    for job in view.problem.jobs:
        there = gpus_of(view.of_job.get(job.id, ()))
        if job.pinned and there != job.place:
            yield f"job {job.id} is pinned but does not stay where it is"
        elif job.at and not job.movable and there and there != job.place:
            yield f"job {job.id} cannot move but is moved"


def quotas_are_kept(view: View) -> Iterable[str]:
    """The jobs of an owner hold no more GPUs than the owner's quota; sharing halves nothing."""
    used: Counter[str] = Counter()
    for job, placement in view.known():
        used[job.owner] += sum(len(slot.gpus) for slot in placement.slots)
    for owner, quota in view.problem.quotas.items():
        if used[owner] > quota:
            yield f"owner {owner!r} holds {used[owner]} GPUs, the quota is {quota}"


SHAPE = (numbers_are_finite, jobs_are_known, gpus_exist, every_job_is_decided_once)
"""What has to hold before anything can be added up."""
PLACES = (
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
)
