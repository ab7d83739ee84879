"""Gavel's heterogeneity-aware max-min fairness, alone and with packed pairs.

Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads"
(OSDI 2020). At each round a linear program (`fairness`) gives every job a share of its time on each
GPU type so that the smallest normalised throughput is as large as possible; a job's priority for a
type is its share over the time that it had there, and the highest priorities run in the next round.
The packed form adds pairs of single-GPU jobs that share. Simplified: a job asks for the smallest
number of GPUs with which it can keep its promise, and only for types on which it does; time counts
from arrival, as the program is solved anew each round; a job's present place counts for more, since
a move costs a fifth of a round here; between rounds free GPUs go to waiting jobs in order of
arrival; only jobs that share with everybody are packed. Services come first and are never
preempted, nor are jobs that may not be moved; idle servers are switched off.
"""

from __future__ import annotations

from gogh_core.domain import Mode
from gogh_core.simulation.board import Board, Entry, Rates, Why
from gogh_core.simulation.policies.common import Desk
from gogh_core.simulation.policies.fairness import Group, Share, fair_shares
from gogh_core.simulation.policies.rounds import Want, bound, carry_out, free_for, place_of
from gogh_core.simulation.policies.ways import Way, thriftiest

__all__ = ["Gavel"]

_LEVELS = 8
"""Promises of jobs that are packed as one group differ by at most this part of their best rate."""
_STAYS = 4.0
"""The priority of a job for the GPU type that it has counts this many times."""
_Column = tuple[str, str | None]
"""GPU type, and the class of the partner if there is one."""


class Gavel:
    """Rounds of `every_s`; on events free GPUs are filled."""

    on_events = True

    def __init__(
        self, rates: Rates, *, every_s: float, packed: bool = False, name: str = "gavel"
    ) -> None:
        self.name = name
        self.every_s: float | None = every_s
        self._packed = packed
        self._desk = Desk(rates, thriftiest)
        self._had_s: dict[str, dict[_Column, float]] = {}
        self._counted_s = 0.0

    def act(self, board: Board, why: Why) -> None:
        """At a round, share the GPUs out anew; between rounds, fill what is free."""
        self._desk.open(board)
        self._count(board)
        self._desk.serve_first()
        if why == "window":
            groups = self._groups(board)
            capacity = free_for(self._desk)
            shares = fair_shares(self._desk.beliefs, groups, capacity, packed=self._packed)
            carry_out(self._desk, self._choose(shares, capacity))
        if self._desk.floor.any_free():
            self._desk.place_all(self._desk.hopeful())
        board.idle_off()

    def _count(self, board: Board) -> None:
        """Add the time since the last act to what each job had where it is."""
        span_s, self._counted_s = board.now_s - self._counted_s, board.now_s
        known, self._had_s = self._had_s, {}
        for name, entry in board.jobs.items():
            had = self._had_s[name] = known.get(name, {})
            if entry.slots and entry.job.mode is Mode.GANG:
                # What it had before it was placed does not count; a start in between does little.
                partner = next(iter(board.partners(entry)), None)
                other = board.jobs[partner].job.job_class if partner else None
                column = (place_of(board, entry)[0], other)
                had[column] = had.get(column, 0.0) + min(span_s, board.now_s - entry.since_s)

    def _groups(self, board: Board) -> list[Group]:
        """Jobs that are alike to the program."""
        found: dict[tuple[object, ...], Group] = {}
        for entry in board.jobs.values():
            if entry.job.mode is Mode.SPREAD or bound(entry):
                continue
            ways = self._desk.beliefs.ways(entry, thriftiest)
            if not ways:
                continue
            gpus = min(way.gpus for way in ways)
            mine = {way.gpu_type: way for way in ways if way.gpus == gpus}
            packs = self._packed and gpus == 1 and entry.job.shareable is True
            key = (entry.job.job_class, gpus, tuple(sorted(mine)), *_level(entry, mine, packs))
            group = found.get(key)
            if group is None:
                rates = {kind: way.rate for kind, way in mine.items()}
                group = found[key] = Group(entry.job.job_class, gpus, rates, packs)
            group.jobs.append(entry)
            group.need = max(group.need, entry.job.required_throughput)
        return list(found.values())

    def _choose(self, shares: list[Share], capacity: dict[str, int]) -> list[Want]:
        """Who runs in this round: the highest priorities first, as far as there are GPUs."""
        offers = [
            (self._priority(entry, share, side), number, side, entry)
            for number, share in enumerate(shares)
            for side in range(len(share.groups))
            for entry in share.groups[side].jobs
        ]
        offers.sort(key=lambda offer: (-offer[0], offer[3].arrived_s, offer[3].job.id, offer[1]))
        best_partner: dict[tuple[int, int], list[Entry]] = {}
        for _, number, side, entry in offers:
            best_partner.setdefault((number, side), []).append(entry)
        left, taken, wants = dict(capacity), set[str](), []
        for _, number, side, entry in offers:
            share = shares[number]
            kind, gpus = share.gpu_type, share.groups[0].gpus
            if entry.job.id in taken or left.get(kind, 0) < gpus:
                continue
            jobs = [entry]
            if len(share.groups) == 2:
                others = best_partner[number, 1 - side]
                other = next((e for e in others if e.job.id not in taken and e is not entry), None)
                if other is None:
                    continue
                jobs.append(other)
            left[kind] -= gpus
            taken.update(job.job.id for job in jobs)
            wants.append(Want(tuple(jobs), kind, gpus))
        return wants

    def _priority(self, entry: Entry, share: Share, side: int) -> float:
        """The share over the part of its time that the job had there, or would have at once."""
        partner = share.groups[1 - side].job_class if len(share.groups) == 2 else None
        board = self._desk.board
        had_s = self._had_s[entry.job.id].get((share.gpu_type, partner), 0.0)
        age_s = max(board.now_s - entry.arrived_s, 1.0)
        stays = place_of(board, entry) == (share.gpu_type, share.groups[side].gpus)
        part = max(had_s, self.every_s or 0.0) / age_s
        return share.of(side) * (_STAYS if stays else 1.0) / part


def _level(entry: Entry, ways: dict[str, Way], packs: bool) -> tuple[object, ...]:
    if not packs:
        return (False,)
    best = max(way.rate for way in ways.values())
    return True, round(_LEVELS * entry.job.required_throughput / best + 0.5)
