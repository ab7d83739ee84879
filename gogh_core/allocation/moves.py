"""The order of moves: nobody needs a GPU that is still taken.

A move waits for the jobs that leave the GPUs it needs. Where moves wait for each other in a cycle
one job of it gives its GPUs up first and is held until its own step: the one that the most moves
wait for, and among equals the one that is cheapest to move. This is the one place that decides who
is held: `Move.held` carries it to whoever carries the plan out.
"""

from __future__ import annotations

from gogh_core.allocation.compiled import Compiled, Seats
from gogh_core.allocation.problem import Gpu
from gogh_core.domain import Move, Slot

__all__ = ["order_of_moves"]


def order_of_moves(compiled: Compiled, seats: Seats) -> tuple[tuple[Move, ...], list[str]]:
    """The moves with their steps, and the ids of jobs that have to be held."""
    c, jobs = compiled, compiled.problem.jobs
    target: dict[int, frozenset[Gpu]] = {}
    for j, entries in seats.items():
        there = frozenset().union(*(seat.gpus for seat in entries))
        if jobs[j].at and there != jobs[j].place:
            target[j] = there
    occupants: dict[Gpu, list[int]] = {}
    for j, there in target.items():
        # A replica that stays where it is holds nobody up; a gang starts again as a whole.
        for gpu in jobs[j].place - there if c.spread[j] else jobs[j].place:
            occupants.setdefault(gpu, []).append(j)
    waits = {
        j: {i for gpu in there for i in occupants.get(gpu, ()) if i != j}
        for j, there in target.items()
    }
    step_of, held = _steps(c, waits)
    moves = []
    for j, there in sorted(target.items(), key=lambda item: (step_of[item[0]], item[0])):
        reason = _reason(c, seats, j)
        if j in held:
            reason += "; held from step 0 on, because moves form a cycle"
        moves.append(
            Move(step_of[j], jobs[j].id, jobs[j].at, _slots(there), reason, held=j in held)
        )
    return tuple(moves), [jobs[j].id for j in sorted(held)]


def _steps(c: Compiled, waits: dict[int, set[int]]) -> tuple[dict[int, int], set[int]]:
    """A step for each move, after everything it waits for; no move waits for a held job."""
    left = {j: set(others) for j, others in waits.items()}
    waited_by: dict[int, set[int]] = {}
    for j, others in waits.items():
        for other in others:
            waited_by.setdefault(other, set()).add(j)
    step_of: dict[int, int] = {}
    held: set[int] = set()
    ready = sorted(j for j, others in left.items() if not others)
    step = 1
    while len(step_of) < len(waits):
        if not ready:
            # The held job frees its GPUs at once; it moves itself when its own place is free.
            victim = min(
                _in_cycles({j: left[j] for j in left if j not in step_of and j not in held}),
                key=lambda j: (-len(waited_by[j]), float(c.stated_move_w[j]), j),
            )
            held.add(victim)
            for other in waited_by[victim]:
                left[other].discard(victim)
            ready = sorted(j for j in left if j not in step_of and not left[j])
            continue
        for j in ready:
            step_of[j] = step
        for j in ready:
            if j not in held:
                for other in waited_by.get(j, ()):
                    left[other].discard(j)
        ready = sorted(j for j in left if j not in step_of and not left[j])
        step += 1
    return step_of, held


def _in_cycles(waits: dict[int, set[int]]) -> set[int]:
    """The moves of cycles and between them: whatever no other of them waits for is left out."""
    kept = set(waits)
    while True:
        awaited = {other for j in kept for other in waits[j]}
        if kept <= awaited:
            return kept
        kept &= awaited


def _slots(gpus: frozenset[Gpu]) -> tuple[Slot, ...]:
    by_server: dict[str, list[int]] = {}
    for server, gpu in sorted(gpus):
        by_server.setdefault(server, []).append(gpu)
    return tuple(Slot(server, tuple(indices)) for server, indices in by_server.items())


def _reason(c: Compiled, seats: Seats, j: int) -> str:
    """Why the job moves, in a sentence."""
    problem = c.problem
    job = problem.jobs[j]
    drained = sorted({s for s, _ in job.place if problem.server_of[s].drain})
    if drained:
        return f"server {', '.join(drained)} is to be drained"
    if c.stay_of(j) is None:
        return "it cannot run as required where it is"
    used = {server for entries in seats.values() for seat in entries for server, _ in seat.slots}
    emptied = sorted({s for s, _ in job.place} - used)
    if emptied:
        return f"server {', '.join(emptied)} can be switched off without it"
    return "the plan as a whole draws less power this way"
