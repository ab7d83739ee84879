"""Who moves, who stops, which servers are switched, and in what order: one function is one rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gogh_core.allocation.problem import Gpu
from gogh_core.allocation.verify_view import View, gpus_of

__all__ = ["CHANGES", "moved", "used_servers"]


def moved(view: View) -> set[str]:
    """Running jobs that change their GPUs."""
    found = set()
    for job in view.problem.jobs:
        there = gpus_of(view.of_job.get(job.id, ()))
        if job.at and there and there != job.place:
            found.add(job.id)
    return found


def moves_are_all_listed(view: View) -> Iterable[str]:
    """The moves are exactly the running jobs that change GPUs, from here to there."""
    listed = Counter(move.job for move in view.plan.moves)
    changed = moved(view)
    for name in sorted(changed - set(listed)):
        yield f"job {name} changes its GPUs but is not listed as a move"
    for name in sorted(set(listed) - changed):
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
        if target != gpus_of(view.of_job.get(move.job, ())):
            yield f"the move of {move.job} does not end where the job is placed"


def stops_are_all_listed(view: View) -> Iterable[str]:
    """The stops are exactly the running jobs that have to wait."""
    listed = Counter(stop.job for stop in view.plan.stops)
    stopped = {job.id for job in view.problem.jobs if job.at and job.id not in view.of_job}
    for name in sorted(stopped - set(listed)):
        yield f"job {name} has to wait but is not listed as a stop"
    for name in sorted(set(listed) - stopped):
        yield f"job {name} is listed as a stop but does not stop"
    for name, count in sorted(listed.items()):
        if count > 1:
            yield f"job {name} is stopped {count} times"
    for stop in view.plan.stops:
        source = {(slot.server, gpu) for slot in stop.source for gpu in slot.gpus}
        if source != view.problem.job_of[stop.job].place:
            yield f"the stop of {stop.job} does not start where the job is"


def moves_within_limit(view: View) -> Iterable[str]:
    """No more jobs move than `max_moves`."""
    limit = view.problem.max_moves
    if limit is not None and len(moved(view)) > limit:
        yield f"{len(moved(view))} jobs move, at most {limit} may"


def moves_can_be_carried_out(view: View) -> Iterable[str]:
    """In the order of steps nobody needs a GPU that is still taken, unless by the partner to be.

    A partner that moves counts as gone only afterwards, unless it is a replica that stays there.
    """
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
                    stays = other not in leaves or view.problem.job_of[other].mode == "spread"
                    if other == move.job or (other in staying and stays):
                        continue
                    if leaves.get(other, move.step) >= move.step:
                        yield (
                            f"the move of {move.job} in step {move.step} needs GPU {gpu} of "
                            f"{slot.server}, which {other} has not left"
                        )


def switches_are_all_listed(view: View) -> Iterable[str]:
    """Servers with jobs or `keep_on` are on, all others off, and `servers` lists the changes."""
    listed = {switch.id: switch.action for switch in view.plan.servers}
    if len(listed) != len(view.plan.servers):
        yield "a server is switched twice"
    for name in sorted(set(listed) - set(view.problem.server_of)):
        yield f"server {name} is switched but does not exist"
    used = used_servers(view)
    for server in view.problem.servers:
        on = server.keep_on or server.id in used
        wanted = None if on == server.on else ("on" if on else "off")
        if listed.get(server.id) != wanted:
            yield (
                f"server {server.id} has to be {'on' if on else 'off'} and is "
                f"{'on' if server.on else 'off'}, but the plan says {listed.get(server.id)}"
            )


def used_servers(view: View) -> set[str]:
    """Servers with jobs after the plan."""
    return {server for server, _ in view.on_gpu}


CHANGES = (
    moves_are_all_listed,
    stops_are_all_listed,
    moves_within_limit,
    moves_can_be_carried_out,
    switches_are_all_listed,
)
