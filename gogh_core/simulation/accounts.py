"""What is added up: for each job when something happens to it, for the room as time goes by.

A job's figures (steps, checkpoints, seconds waited, promised and kept, GPU-seconds) follow from its
rate and its standing, which stay the same until it is touched; so they are counted up to now just
before that. The room's totals grow by counters (how many jobs wait, run, have a promise, have it
kept, and why not) times the seconds that went by. Every unkept promised job-second has one cause.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gogh_core.domain import JobKind, JobState, Mode, PowerState
from gogh_core.simulation import life
from gogh_core.simulation.arrivals import CHECKPOINT_S
from gogh_core.simulation.rates import EPSILON
from gogh_core.simulation.records import CAUSES, JobRecord, ServerRecord, Totals

if TYPE_CHECKING:
    from gogh_core.simulation.world import World

__all__ = ["Tally", "count", "count_gpus", "finish", "save", "standing_of"]

_KEPT_SHARE = 0.95  # a promise counts as kept from this share on: what noise alone takes away
NO_PROMISE, KEPT = -2, -1
"""What became of a promise; from 0 on, the number of the cause in `CAUSES`."""
_WINDOW, _PLANNED, _SWITCHING, _STARTING, _MOVING, _SLOW = range(len(CAUSES))


class Tally:
    """How many jobs there are of each standing."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0
        self.promised = 0
        self.kept = 0
        self.causes = [0] * len(CAUSES)

    def restand(self, record: JobRecord, standing: tuple[int, int] | None) -> None:
        """A job is from now on counted under another standing; None: it is gone."""
        if standing == record.standing:
            return
        if record.standing is not None:
            self._add(record.standing, -1)
        if standing is not None:
            self._add(standing, 1)
        record.standing = standing

    def _add(self, standing: tuple[int, int], one: int) -> None:
        gpus, promise = standing
        if gpus:
            self.running += one
        else:
            self.waiting += one
        if promise == NO_PROMISE:
            return
        self.promised += one
        if promise == KEPT:
            self.kept += one
        else:
            self.causes[promise] += one

    def add_to(self, totals: Totals, span_s: float) -> None:
        """Let so many seconds go by."""
        totals.running_s += self.running * span_s
        totals.waiting_s += self.waiting * span_s
        totals.promised_s += self.promised * span_s
        totals.attained_s += self.kept * span_s
        window, planned, switching, starting, moving, slow = self.causes
        totals.unkept_window_s += window * span_s
        totals.unkept_planned_s += planned * span_s
        totals.unkept_switching_s += switching * span_s
        totals.unkept_starting_s += starting * span_s
        totals.unkept_moving_s += moving * span_s
        totals.unkept_slow_s += slow * span_s


def standing_of(world: World, record: JobRecord) -> tuple[int, int] | None:
    """How the job stands now: its GPUs, and whether or why not its promise is kept."""
    if not record.active:
        return None
    gpus = sum(len(place.gpus) for place in record.places)
    if record.required <= 0:
        return gpus, NO_PROMISE
    if record.rate >= _KEPT_SHARE * record.required:
        return gpus, KEPT
    return gpus, _cause_of(world, record)


def _cause_of(world: World, record: JobRecord) -> int:
    """Why the promise is not kept now, as a number of `CAUSES`."""
    if not record.places:
        return _PLANNED if record.decided else _WINDOW
    late = [place for place in record.places if place.ready_s > world.now_s + EPSILON]
    if record.pending is None and not late:
        return _SLOW
    if any(world.servers[place.server].power is not PowerState.ON for place in record.places):
        return _SWITCHING
    return _MOVING if record.pending == "moved" else _STARTING


def count(world: World, record: JobRecord, noise: float = 1.0) -> None:
    """Count a job's figures up to now, at the rate and standing it has had since last time."""
    span_s = world.now_s - record.at_s
    record.at_s = world.now_s
    if record.standing is None or span_s <= 0:
        return
    gpus, promise = record.standing
    if gpus:
        record.gpu_s += gpus * span_s
    else:
        record.waited_s += span_s
    if promise != NO_PROMISE:
        record.promised_s += span_s
        if promise == KEPT:
            record.attained_s += span_s
    if record.rate > 0:
        _progress(world, record, span_s * noise)


def _progress(world: World, record: JobRecord, span_s: float) -> None:
    gained = record.rate * span_s
    record.steps += gained
    if record.demand.job.mode is Mode.SPREAD:
        for place, rate in zip(record.places, record.rates, strict=True):
            place.steps += rate * span_s
    if record.demand.base_rate is not None:  # beyond what is asked for it is only backlog
        gained = min(gained, record.required * span_s)
    world.totals.work_s += gained / world.middling(record)


def finish(world: World, record: JobRecord) -> None:
    """Count a job whose end has come: what rounding left of its last step is done too."""
    count(world, record)
    total = record.demand.job.total_steps
    if total is None or total - record.steps > 2 * EPSILON * record.rate + 1e-9 * total:
        return
    world.totals.work_s += (total - record.steps) / world.middling(record)
    record.steps = total


def save(world: World, record: JobRecord) -> None:
    """Write the checkpoints that were due since the last one; the job was counted up to now."""
    if record.state is not JobState.RUNNING:
        return
    gone_s = world.now_s - record.saved_s
    if gone_s >= CHECKPOINT_S - EPSILON:
        record.saved_s += CHECKPOINT_S * math.floor((gone_s + EPSILON) / CHECKPOINT_S)
        record.saved = max(
            record.saved, record.steps - record.rate * (world.now_s - record.saved_s)
        )
        if record.demand.job.descriptors.kind is JobKind.TRAINING:
            life.tell(world, record, "checkpointed")


def count_gpus(server: ServerRecord, now_s: float) -> None:
    """Count the energy of a server's GPUs up to now."""
    span_s = now_s - server.at_s
    server.at_s = now_s
    if span_s > 0:
        server.energy_j = [
            energy_j + power_w * span_s
            for energy_j, power_w in zip(server.energy_j, server.gpu_w, strict=True)
        ]
