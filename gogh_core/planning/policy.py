"""The planner behind the protocol of policies: what GOGH decides, without store, flow or manager.

`Planner.act` makes of a board what a cycle makes of a cluster: state, options, problem, plan,
orders. It plans in full at each window, places waiting jobs on events in between, and plans in
full once more when an increment leaves a job waiting. What it believes of speeds and watts comes
from its `Knowledge`: learned from what was measured (`learning.Learned`), or the true means.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Literal, Protocol, runtime_checkable

import pyarrow as pa

from gogh_core.cluster import Capabilities
from gogh_core.domain import ClusterState, Cycle, Plan, Slot
from gogh_core.errors import ActionFailed
from gogh_core.planning.request import Request
from gogh_core.planning.steps import Estimated, allocate_step
from gogh_core.settings import Settings

__all__ = ["Knowledge", "Planner"]

_ALL = Capabilities(True, True, True, True)


class Knowledge(Protocol):
    """What is believed of every way to run the jobs of a state."""

    version: str

    def options(self, state: ClusterState, *, fresh: bool) -> pa.Table:
        """A table as `ways` describes it; `fresh`: with everything measured up to now."""
        ...


@runtime_checkable
class Keepable(Protocol):
    """Knowledge that grows, and is kept with a saved run."""

    def to_dict(self) -> dict[str, Any]:
        """Everything known so far."""
        ...

    def restore(self, raw: Mapping[str, Any]) -> None:
        """Go on where `to_dict` was called."""
        ...


class Board(Protocol):
    """What the planner needs of a board of the simulation."""

    def state(self) -> ClusterState:
        """Everything a cluster manager would tell."""
        ...

    def too_slow(self, after_s: float) -> list[str]:
        """Jobs that report less than their promise."""
        ...

    def next_check_s(self, after_s: float) -> float | None:
        """When the next promised job will have run for so long."""
        ...

    def place(self, job: str, slots: tuple[Slot, ...], limit_w: float | None = None) -> None:
        """Start a waiting job."""
        ...

    def move(self, job: str, slots: tuple[Slot, ...], limit_w: float | None = None) -> None:
        """Move a placed job."""
        ...

    def stop(self, job: str) -> None:
        """Take a job off its GPUs."""
        ...

    def switch(self, server: str, *, on: bool) -> None:
        """Switch a server."""
        ...


class Planner:
    """GOGH as a policy."""

    def __init__(
        self, settings: Settings, knowledge: Knowledge, *, name: str = "gogh", events: bool = True
    ) -> None:
        self.name = name
        self.every_s: float | None = float(settings.cycle.window_s)
        self.on_events = events
        self.plans: list[Plan] = []
        """Every plan made since they were last taken away."""
        self._settings = settings
        self._knowledge = knowledge
        self._revision = 0
        self._replanned_s = 0.0
        self._known_slow: set[str] = set()
        self.check_s = 60.0

    def wake_s(self, board: Board) -> float | None:
        """When it wants to look at jobs that have just begun."""
        return board.next_check_s(self.check_s) if self.check_s else None

    def act(self, board: Board, why: Literal["window", "event", "check"]) -> None:
        """Plan and give the plan's orders."""
        whole = why == "window"
        slow: set[str] = set()
        if why == "check":
            slow = set(board.too_slow(self.check_s)) - self._known_slow
            if not slow:
                return
        self._known_slow = set() if whole else self._known_slow | slow
        state = board.state()
        fresh = whole or bool(slow)
        plan = self._plan(board, state, Request(increment=not whole), fresh=fresh)
        at_s = state.at.timestamp()
        if whole:
            self._replanned_s = at_s
        elif self._unsettled(plan, slow) and self._calm(at_s):
            self._replanned_s = at_s
            request = Request(reason="jobs still wait or are too slow")
            self._plan(board, board.state(), request, fresh=False)

    def _calm(self, at_s: float) -> bool:
        return at_s - self._replanned_s >= self._settings.prefect.damper_s

    def _unsettled(self, plan: Plan, slow: Collection[str]) -> bool:
        """Whether an increment left jobs waiting, or too slow where they were."""
        moved = {move.job for move in plan.moves}
        return bool(plan.waiting) or any(job not in moved for job in slow)

    def _plan(self, board: Board, state: ClusterState, request: Request, *, fresh: bool) -> Plan:
        window_s = self._settings.cycle.window_s
        self._revision = 0 if request == Request() else self._revision + 1
        made = allocate_step(
            state,
            Estimated(self._knowledge.options(state, fresh=fresh), self._knowledge.version),
            self._settings,
            request,
            state.at,
            cycle=Cycle.at(state.at + timedelta(milliseconds=1), window_s, self._revision),
            capabilities=_ALL,
        )
        self.plans.append(made.plan)
        carry_out(made.plan, state, board)
        return made.plan

    def to_dict(self) -> dict[str, Any]:
        """What a resumed run needs, with what was learned."""
        known = self._knowledge
        return {
            "revision": self._revision,
            "replanned_s": self._replanned_s,
            "known_slow": sorted(self._known_slow),
            "knowledge": known.to_dict() if isinstance(known, Keepable) else None,
        }

    def restore(self, raw: Mapping[str, Any]) -> None:
        """Go on where `to_dict` was called."""
        self._revision, self._replanned_s = int(raw["revision"]), float(raw["replanned_s"])
        self._known_slow = set(raw["known_slow"])
        if isinstance(self._knowledge, Keepable) and raw["knowledge"] is not None:
            self._knowledge.restore(raw["knowledge"])


def carry_out(plan: Plan, state: ClusterState, board: Board) -> list[str]:
    """Give a plan's orders in its own order; what the board refuses is told."""
    refused: list[str] = []
    if plan.status == "infeasible":
        return list(plan.notes)
    wanted: dict[str, list[Slot]] = {}
    limits: dict[str, float | None] = {}
    for placement in plan.placements:
        wanted.setdefault(placement.job, []).extend(placement.slots)
        limits[placement.job] = placement.power_limit_w
    moves = sorted(plan.moves, key=lambda move: move.step)
    for job in (*(stop.job for stop in plan.stops), *(move.job for move in moves if move.held)):
        board.stop(job)
    now = {status.job.id: status for status in state.jobs}
    moved = [move.job for move in moves]
    for job in (*moved, *(job for job in wanted if job not in moved)):
        slots, before = tuple(wanted[job]), now[job]
        held = any(move.job == job and move.held for move in moves)
        if set(before.slots) == set(slots) and before.power_limit_w == limits[job]:
            continue
        try:
            if before.slots and not held:
                board.move(job, slots, limits[job])
            else:
                board.place(job, slots, limits[job])
        except ActionFailed as error:
            refused.append(str(error))
    for change in plan.servers:
        try:
            board.switch(change.id, on=change.action == "on")
        except ActionFailed as error:
            refused.append(str(error))
    return refused
