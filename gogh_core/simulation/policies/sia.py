"""Sia-like: at each round an integer program picks a GPU type and count for every job.

Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling" (SOSP
2023). Every configuration (type, count) of a job has a goodput, normalised by the job's slowest;
the program minimises the sum of goodput to the power p = -0.5 over the jobs that run plus 1.1 for
each that does not, within the GPUs of each type. For a running job all configurations but its own
are worth less by the restart factor (T - N S) / (T + S) for its age T, its N restarts and S seconds
for each. Simplified: goodput is the believed throughput, as batch sizes are fixed here; counts are
those that the job allows, and configurations that break its promise are left out where others keep
it; equal jobs are one integer variable; the solver stops at a number of nodes, never by the clock;
between rounds free GPUs go to waiting jobs in order of arrival. Services come first and are never
preempted, nor are jobs that may not be moved; idle servers are switched off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from gogh_core.domain import Mode
from gogh_core.simulation.board import Board, Entry, Rates, Why
from gogh_core.simulation.policies.common import Desk
from gogh_core.simulation.policies.rounds import Want, bound, carry_out, free_for, place_of
from gogh_core.simulation.policies.ways import Way, thriftiest

__all__ = ["Sia"]

_POWER = -0.5
_UNSERVED = 1.1
_RESTART_S = 90.0
"""What a restart costs: moving, and the work since the last checkpoint for some."""
_NODES = 200
_GAP = 1e-3
_Config = tuple[str, int]


@dataclass(slots=True)
class _Kind:
    """Jobs with the same configurations at the same cost."""

    ways: Sequence[Way]
    now: _Config
    factor: float
    jobs: list[Entry] = field(default_factory=list)

    def cost(self, way: Way) -> float:
        """Of running so: the slowest configuration costs 1 for each GPU that is the least."""
        slowest = min(other.rate for other in self.ways)
        goodput = min(other.gpus for other in self.ways) * way.rate / slowest
        if self.now[0] and self.now != (way.gpu_type, way.gpus):
            goodput *= self.factor
        return float(goodput**_POWER)


class Sia:
    """Rounds of `every_s`; on events free GPUs are filled."""

    on_events = True

    def __init__(self, rates: Rates, *, every_s: float, name: str = "sia") -> None:
        self.name = name
        self.every_s: float | None = every_s
        self._desk = Desk(rates, thriftiest)

    def act(self, board: Board, why: Why) -> None:
        """At a round, choose everybody's configuration; between rounds, fill what is free."""
        self._desk.open(board)
        self._desk.serve_first()
        if why == "window":
            kinds = self._kinds(board)
            wants = _choose(board, kinds, free_for(self._desk))
            if wants is not None:
                carry_out(self._desk, wants)
        if self._desk.floor.any_free():
            self._desk.place_all(self._desk.hopeful())
        board.idle_off()

    def _kinds(self, board: Board) -> list[_Kind]:
        found: dict[tuple[object, ...], _Kind] = {}
        for entry in board.jobs.values():
            if entry.job.mode is Mode.SPREAD or bound(entry):
                continue
            ways = self._desk.beliefs.ways(entry, thriftiest)
            if ways:
                now, factor = place_of(board, entry), round(restart_factor(board, entry), 2)
                key = (entry.job.job_class, tuple(ways), now, factor)
                found.setdefault(key, _Kind(ways, now, factor)).jobs.append(entry)
        return list(found.values())


def restart_factor(board: Board, entry: Entry) -> float:
    """How much less other configurations are worth to a running job; 1 for one that waits."""
    if not entry.slots:
        return 1.0
    begun_s = entry.since_s if entry.started_s is None else entry.started_s
    age_s = max(board.now_s - begun_s, 0.0)
    restarts = entry.moves + entry.stops
    return max((age_s - restarts * _RESTART_S) / (age_s + _RESTART_S), 0.05)


def _choose(board: Board, kinds: Sequence[_Kind], capacity: Mapping[str, int]) -> list[Want] | None:
    """What everybody gets; None where the solver found nothing."""
    columns = [
        (row, way)
        for row, kind in enumerate(kinds)
        for way in kind.ways
        if way.gpus <= capacity.get(way.gpu_type, 0)
    ]
    if not columns:
        return []
    counts = _solve(columns, kinds, capacity)
    if counts is None:
        return None
    wants = []
    left = {row: list(kind.jobs) for row, kind in enumerate(kinds)}
    for (row, way), count in zip(columns, counts, strict=True):
        for entry in left[row][:count]:
            wants.append(Want((entry,), way.gpu_type, way.gpus))
        left[row] = left[row][count:]
    return wants


def _solve(
    columns: Sequence[tuple[int, Way]], kinds: Sequence[_Kind], capacity: Mapping[str, int]
) -> list[int] | None:
    """How many jobs of each kind take each configuration."""
    types = {name: len(kinds) + row for row, name in enumerate(capacity)}
    costs, cells = [], []
    for index, (row, way) in enumerate(columns):
        costs.append(kinds[row].cost(way) - _UNSERVED)
        cells += [(row, index, 1.0), (types[way.gpu_type], index, float(way.gpus))]
    limits = [float(len(kind.jobs)) for kind in kinds] + [float(n) for n in capacity.values()]
    rows, cols, values = zip(*cells, strict=True)
    matrix = coo_matrix((values, (rows, cols)), shape=(len(limits), len(columns))).tocsr()
    answer = milp(
        np.array(costs),
        integrality=np.ones(len(columns)),
        bounds=Bounds(0, np.array([len(kinds[row].jobs) for row, _ in columns])),
        constraints=LinearConstraint(matrix, ub=np.array(limits)),
        options={"node_limit": _NODES, "mip_rel_gap": _GAP},
    )
    return None if answer.x is None else [round(value) for value in answer.x]
