"""GOGH's own planner as a policy: a problem from the world, a plan, and the plan carried out.

It is given the same true mean throughputs as the simple policies, so that what is compared is the
planning alone.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations_with_replacement

from gogh_core import hardware
from gogh_core.allocation import Option, Problem, ProblemJob, ProblemServer, plan
from gogh_core.domain import JobState, Mode, Plan, PowerState, Slot
from gogh_core.errors import ActionFailed, SolverFailed
from gogh_core.simulation import actions
from gogh_core.simulation.policies import Policy
from gogh_core.simulation.world import World

__all__ = ["carry_over", "planned", "problem_of"]

_USABLE = (PowerState.ON, PowerState.SWITCHING_ON)


def planned(
    *, window_s: float, gap: float = 0.01, time_limit_s: float = 20.0, penalty_w: float = 10_000.0
) -> Policy:
    """A policy that plans each window with `gogh_core.allocation`."""

    def act(world: World) -> None:
        if not any(record.active for record in world.jobs.values()):
            carry_over(world, None)
            return
        answer = plan(
            problem_of(world, window_s=window_s, penalty_w=penalty_w),
            gap=gap,
            time_limit_s=time_limit_s,
        )
        if answer.status == "infeasible":
            raise SolverFailed(f"no plan at {world.now:%Y-%m-%d %H:%M}: {answer.notes}")
        carry_over(world, answer)

    return act


def problem_of(world: World, *, window_s: float, penalty_w: float) -> Problem:
    """The world as a problem, with the true mean throughputs."""
    servers = [record for record in world.servers.values() if record.power is not PowerState.DOWN]
    jobs = [record for record in world.jobs.values() if record.active]
    types = sorted({record.server.gpu_type for record in servers})
    counts: dict[str, set[int]] = {}
    for record in jobs:
        job = record.demand.job
        sizes = {1} if job.mode is Mode.SPREAD else set(job.gpu_counts)
        counts.setdefault(job.job_class, set()).update(sizes)
    options = _options(world, types, counts)
    worth = _worth(options)
    return Problem(
        window_s=window_s,
        waiting_penalty_w=penalty_w,
        gpu_types={name: hardware.get(name).idle_w for name in types},
        servers=[
            ProblemServer(
                id=record.server.id,
                gpu_type=record.server.gpu_type,
                gpus=record.server.gpus,
                base_w=record.server.base_w,
                on=record.power in _USABLE,
                off_w=record.server.off_w,
                switch_cost_j=record.server.switch_cost_j,
            )
            for record in servers
        ],
        jobs=[
            ProblemJob(
                id=record.id,
                job_class=record.demand.job.job_class,
                mode=record.demand.job.mode.value,
                gpu_counts=record.demand.job.gpu_counts,
                max_gpus=record.demand.job.max_gpus,
                required_throughput=world.required(record),
                priority=record.demand.job.priority,
                shareable=record.demand.job.shareable,
                at=tuple(place.slot for place in record.places),
                move_cost_j=record.demand.job.move_cost_j,
                owner=record.demand.job.owner,
                movable=record.demand.job.movable,
                surplus_j_per_step=worth.get(record.demand.job.job_class, 0.0)
                if record.demand.job.total_steps is not None
                else 0.0,
            )
            for record in jobs
        ],
        options=options,
    )


def _worth(options: list[Option]) -> dict[str, float]:
    """Joules per step where a class runs alone most efficiently.

    Work that has an end is done sooner when it runs faster: a step beyond the promise need not be
    done later, at this price at the least.
    """
    found: dict[str, float] = {}
    for option in options:
        if len(option.classes) == 1:
            joules = option.power_w / option.throughput[0]
            found[option.classes[0]] = min(joules, found.get(option.classes[0], joules))
    return found


def _options(world: World, types: list[str], counts: dict[str, set[int]]) -> list[Option]:
    found = []
    for gpu_type in types:
        for name in sorted(counts):
            for count in sorted(counts[name]):
                run = world.truth.run(gpu_type, count, (name,))
                if run is not None:
                    found.append(
                        Option(gpu_type, count, (name,), run.throughput, run.power_w * count)
                    )
        for first, second in combinations_with_replacement(sorted(counts), 2):
            for count in sorted(counts[first] & counts[second]):
                run = world.truth.run(gpu_type, count, (first, second))
                if run is not None:
                    rates = run.throughput
                    if first == second:
                        rates = (min(rates), min(rates))
                    found.append(
                        Option(gpu_type, count, (first, second), rates, run.power_w * count)
                    )
    return found


def carry_over(world: World, answer: Plan | None) -> None:
    """Make the world as the plan says, in the plan's order; what no longer fits waits."""
    wanted: dict[str, list[Slot]] = {}
    for placement in answer.placements if answer else ():
        wanted.setdefault(placement.job, []).extend(placement.slots)
    moves = sorted(answer.moves, key=lambda move: move.step) if answer else []
    stopped = [stop.job for stop in answer.stops] if answer else []
    for job in (*stopped, *(move.job for move in moves if move.held)):
        actions.hold(world, job)
    used = {slot.server for slots in wanted.values() for slot in slots}
    for server in sorted(used):
        if world.servers[server].power not in _USABLE:
            actions.switch(world, server, on=True)
    moved = [move.job for move in moves]
    for job in (*moved, *(job for job in wanted if job not in moved)):
        if {place.slot for place in world.jobs[job].places} != set(wanted[job]):
            _try(world, job, tuple(wanted[job]))
    busy = {place.server for record in world.jobs.values() for place in record.places}
    for server_id, record in world.servers.items():
        if server_id not in busy and record.power in _USABLE:
            actions.switch(world, server_id, on=False)


def _try(world: World, job: str, slots: tuple[Slot, ...]) -> None:
    """A place that died meanwhile is no place; the next plan knows."""
    with suppress(ActionFailed):
        if world.jobs[job].state is JobState.WAITING:
            actions.place(world, job, slots)
        else:
            actions.move(world, job, slots)
