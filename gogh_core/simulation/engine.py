"""Runs a world under a policy: events, windows, orders, and what is measured on the way.

One runner for everything that goes from event to event: replays, comparisons, the scoreboard. A run
can be saved to a file every so often; the next one that is given the same file resumes it and ends
with the same figures, because saving only reads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from gogh_core.errors import ActionFailed
from gogh_core.simulation import actions
from gogh_core.simulation.board import Board, Order, Policy
from gogh_core.simulation.floor import Spot
from gogh_core.simulation.mirror import Mirror
from gogh_core.simulation.rates import EPSILON
from gogh_core.simulation.records import JobRecord, ServerRecord
from gogh_core.simulation.runfile import RunFile
from gogh_core.simulation.segments import Observer, Segment, Watch
from gogh_core.simulation.world import World

__all__ = ["Observer", "Run", "Segment", "carry_out", "run"]

_REPORT_S = 3600.0
_SAVE_S = 60.0


def run(
    world: World,
    policy: Policy,
    horizon_s: float,
    *,
    to_the_end: bool = False,
    observer: Observer | None = None,
    report: Callable[[float, int], None] | None = None,
    saved: Path | None = None,
    save_every_s: float = _SAVE_S,
) -> Board:
    """Run to the horizon; the policy acts at its windows and, if it likes, on every event.

    With `to_the_end` it stops when the last job has gone. `report` is told the hours gone by and
    the jobs that are through. `saved` is a file that keeps the run, written after `save_every_s`
    seconds of work; where it is there already, `world` has to be a fresh one made in the same way.
    """
    one = Run(world, policy, observer=observer)
    if saved is not None:
        one.keep_in(RunFile(saved), save_every_s)
    return one.until(horizon_s, to_the_end=to_the_end, report=report)


class Run:
    """A world, a policy, and how far they are."""

    def __init__(self, world: World, policy: Policy, *, observer: Observer | None = None) -> None:
        self.world = world
        self.policy = policy
        self.window_s: float | None = None
        """The last window at which the policy was asked, or would have been."""
        self.wake_s: float | None = None
        """When the policy wants to be asked again, whatever happens."""
        self.events = 0
        """How often something happened."""
        self.decisions = 0
        """How often the policy was asked."""
        self.watch = Watch(world, observer) if observer is not None else None
        self._file: RunFile | None = None
        self._save_every_s = _SAVE_S
        world.go_by_events()
        world.changed = True
        self._begin()

    def _begin(self) -> None:
        self.mirror = Mirror(self.world)
        self.world.listener = self
        self._through = len(self.world.ended)

    def keep_in(self, file: RunFile, every_s: float = _SAVE_S) -> None:
        """Save the run there every so often; resume the one that is there already."""
        self._file, self._save_every_s = file, every_s
        if file.exists:
            file.resume(self)
            self._begin()

    @property
    def board(self) -> Board:
        """What the policy sees."""
        return self.mirror.board

    def until(
        self,
        horizon_s: float,
        *,
        to_the_end: bool = False,
        report: Callable[[float, int], None] | None = None,
    ) -> Board:
        """Go on to the horizon, or to the last job's end."""
        world = self.world
        told_s, kept = world.now_s, time.monotonic()
        while world.now_s < horizon_s - EPSILON:
            self._settle()
            if to_the_end and world.coming is None and not world.jobs:
                break
            self._decide()
            if self._file is not None and time.monotonic() - kept >= self._save_every_s:
                self._file.save(self)
                kept = time.monotonic()
            world.step(world.next_event_s(self._next_window_s(horizon_s)))
            self.events += 1
            if report is not None and world.now_s - told_s >= _REPORT_S:
                told_s = world.now_s
                report(world.now_s / 3600, len(world.ended))
        self._settle()
        world.count_all()
        if self.watch is not None:
            self.watch.cut()
        self.mirror.changed(world.jobs.values(), ())
        self.mirror.update()
        return self.board

    def _settle(self) -> None:
        world = self.world
        world.settle()
        for record in world.ended[self._through :]:
            world.jobs.pop(record.id, None)
        self._through = len(world.ended)

    def _decide(self) -> None:
        world, policy = self.world, self.policy
        at_window = self._at_window()
        due = self.wake_s is not None and world.now_s >= self.wake_s - EPSILON
        if (at_window or due) and self.watch is not None:
            self.watch.cut()
        if at_window and getattr(policy, "only_if_changed", False):
            at_window = world.changed
        event = world.changed and policy.on_events
        if not (at_window or due or event):
            return
        self.mirror.update()
        policy.act(self.board, "window" if at_window else "event" if event else "check")
        self.decisions += 1
        orders = self.board.take_orders()
        self.board.refused = carry_out(orders, world)
        self.mirror.ordered(orders)
        world.decided()
        self._settle()
        world.changed = False
        if hasattr(policy, "wake_s"):
            self.mirror.update()
            self.wake_s = policy.wake_s(self.board)

    def _at_window(self) -> bool:
        """Whether a window begins now; once for each."""
        every_s, now_s = self.policy.every_s, self.world.now_s
        if every_s is None:
            return False
        begun_s = round(now_s / every_s) * every_s
        if abs(now_s - begun_s) > 1e-3 or begun_s == self.window_s:
            return False
        self.window_s = begun_s
        return True

    def _next_window_s(self, horizon_s: float) -> float:
        every_s = self.policy.every_s
        if every_s is None:
            return horizon_s if self.wake_s is None else min(horizon_s, self.wake_s)
        if self.wake_s is not None:
            horizon_s = min(horizon_s, self.wake_s)
        return min(horizon_s, (math.floor(self.world.now_s / every_s + 1e-9) + 1) * every_s)

    # -- what the world tells --------------------------------------------------------------

    def changed(self, jobs: Iterable[JobRecord], servers: Iterable[ServerRecord]) -> None:
        """These were worked out anew."""
        self.mirror.changed(jobs, servers)
        if self.watch is not None:
            self.watch.changed(jobs)

    def evicted(self, record: JobRecord, spot: Spot, partner: JobRecord | None) -> None:
        """A job was thrown out because memory did not suffice."""
        if self.watch is not None:
            self.watch.evicted(record, spot, partner)


def carry_out(orders: Iterable[Order], world: World) -> list[str]:
    """Orders in their order; what the world refuses is told and does not stop the others."""
    refused = []
    for order in orders:
        try:
            if order.do == "place":
                actions.place(world, order.target, order.slots, power_limit_w=order.limit_w)
            elif order.do == "move":
                actions.move(world, order.target, order.slots, power_limit_w=order.limit_w)
            elif order.do == "stop":
                actions.hold(world, order.target)
            else:
                actions.switch(world, order.target, on=order.do == "on")
        except ActionFailed as error:
            refused.append(str(error))
    return refused
