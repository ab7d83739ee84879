"""Carries out what a policy wants for a round: who stays, who moves, who stops, who starts.

A want names GPU type and count, not GPUs: whoever runs there already stays. The others move as soon
as there is room for them; where moves wait for each other in a circle, one of them stops first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gogh_core.domain import Mode, PowerState, Slot
from gogh_core.simulation.board import Board, Entry
from gogh_core.simulation.policies.common import Desk

__all__ = ["Want", "bound", "carry_out", "free_for", "place_of"]


@dataclass(frozen=True, slots=True)
class Want:
    """One job, or two that share, on so many GPUs of a type."""

    jobs: tuple[Entry, ...]
    gpu_type: str
    gpus: int


def place_of(board: Board, entry: Entry) -> tuple[str, int]:
    """GPU type and count where a gang is; ("", 0) where it waits."""
    if not entry.slots:
        return "", 0
    return board.machines[entry.slots[0].server].server.gpu_type, entry.gpus


def bound(entry: Entry) -> bool:
    """Whether a placed job has to be left where it is."""
    return bool(entry.slots) and (entry.job.mode is Mode.SPREAD or not entry.job.movable)


def carry_out(desk: Desk, wants: Sequence[Want]) -> None:
    """Make the board as wanted, as far as GPUs of one server can be found for each gang."""
    board = desk.board
    wanted = {entry.job.id for want in wants for entry in want.jobs}
    for entry in list(board.jobs.values()):
        if entry.slots and entry.job.id not in wanted and not bound(entry):
            desk.stop(entry)
    pending = [want for want in wants if not _stands(board, want)]
    pending.sort(key=lambda want: -want.gpus)
    while pending:
        left = [want for want in pending if not _seat(desk, want)]
        if len(left) == len(pending):
            held = _in_the_way(board, left)
            if held is None:
                return
            desk.stop(held)
        pending = left


def _stands(board: Board, want: Want) -> bool:
    """Whether these jobs are there, together, and with nobody else."""
    first = want.jobs[0]
    if place_of(board, first) != (want.gpu_type, want.gpus):
        return False
    return board.partners(first) == {entry.job.id for entry in want.jobs[1:]}


def _in_the_way(board: Board, left: Sequence[Want]) -> Entry | None:
    """A job that cannot go yet, and sits on GPUs of a type for which others wait."""
    for want in left:
        for entry in want.jobs:
            kind = place_of(board, entry)[0]
            needed = any(other.gpu_type == kind for other in left if other is not want)
            if entry.slots and needed and not bound(entry):
                return entry
    return None


def _seat(desk: Desk, want: Want) -> bool:
    """Bring the jobs of a want together; False: later, or not at all."""
    board = desk.board
    if _stands(board, want):
        return True
    names = {entry.job.id for entry in want.jobs}
    there = next(
        (
            entry
            for entry in want.jobs
            if place_of(board, entry) == (want.gpu_type, want.gpus)
            and board.partners(entry) <= names
        ),
        None,
    )
    slots = there.slots if there else desk.floor.seat(board, want.gpu_type, want.gpus)
    if not slots:
        return False
    for entry in want.jobs:
        if entry is not there:
            _bring(desk, entry, slots)
    return True


def _bring(desk: Desk, entry: Entry, slots: tuple[Slot, ...]) -> None:
    if entry.slots:
        desk.move(entry, slots)
    else:
        desk.place(entry, slots)


def free_for(desk: Desk) -> dict[str, int]:
    """GPUs by type that a round may share out: all but dead ones and those of jobs that are bound.

    They are the same whoever else runs on them now.
    """
    board = desk.board
    capacity: dict[str, int] = {}
    for machine in board.machines.values():
        kind = machine.server.gpu_type
        capacity.setdefault(kind, 0)
        if machine.drain or machine.power is PowerState.DOWN:
            continue
        for gpu, users in enumerate(machine.users):
            kept = any(bound(board.jobs[user]) for user in users)
            capacity[kind] += int(gpu not in machine.dead and not kept)
    return capacity
