"""Work that waits by choice: which running jobs may be stopped for cheaper hours, and the words.

Jobs that wait already wait on. Running ones are stopped only as far as that needs no person's word
(`guards.approve_stops`, `guards.approve_stop_share`): a price that jumps must not leave a plan
waiting for approval. Pinned, resting and unmovable jobs run on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from gogh_core.domain import JobState, JobStatus, Plan
from gogh_core.planning.objectives import Later, Outlook, work_of, worth
from gogh_core.planning.ways import Ways
from gogh_core.settings import GuardSettings

__all__ = ["may_stop", "rests", "told_why"]


def rests(status: JobStatus, guards: GuardSettings, now: datetime) -> bool:
    """Whether the guards leave the job alone: it runs or was moved too short a time ago."""
    young = (
        bool(status.slots)
        and status.since is not None
        and (now - status.since).total_seconds() < guards.min_runtime_s
    )
    return young or (
        status.moved_at is not None and (now - status.moved_at).total_seconds() < guards.cooldown_s
    )


def may_stop(
    running: Mapping[str, JobStatus],
    stay: Collection[str],
    ways: Ways,
    outlook: Outlook,
    guards: GuardSettings,
) -> frozenset[str]:
    """Running jobs that may be stopped for cheaper hours, but for those that `stay`.

    Where they are too many for one plan, those that wait longest go first.
    """
    if outlook.price is None:
        return frozenset()
    few = max(guards.approve_stops, math.floor(guards.approve_stop_share * len(running)))
    waits: list[tuple[float, str]] = []
    for name, status in running.items():
        moving = status.state is JobState.MOVING
        fixed = name in stay or moving or not status.job.movable
        if fixed or rests(status, guards, outlook.now):
            continue
        work = work_of(status, ways, outlook, most=math.inf)
        later = worth(outlook, work).later
        if later is not None:
            waits.append((-later.wait_s, name))
    return frozenset(name for _, name in sorted(waits)[: min(few, guards.max_moves)])


def told_why(plan: Plan, later: Mapping[str, Later]) -> Plan:
    """The plan with the hours that jobs wait for as their reason to wait or stop."""
    if not later:
        return plan
    why = {name: hours.reason for name, hours in later.items()}
    return replace(
        plan,
        stops=tuple(replace(stop, reason=why.get(stop.job, stop.reason)) for stop in plan.stops),
        waiting=tuple(replace(w, reason=why.get(w.job, w.reason)) for w in plan.waiting),
    )
