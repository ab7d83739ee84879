"""What a plan may not do: the mode, the guards of the settings, and when a person has to agree.

`effective_mode` says whether a plan is carried out or only shown. `guarded` names, for each action
that a guard forbids, the guard; the rest of the plan goes on without it. `needs_approval` lists
why a plan has to wait for a person.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from gogh_core.cluster.actions import Action, Kind
from gogh_core.cluster.manager import ClusterManager
from gogh_core.domain import ClusterState, JobState, JobStatus, Plan
from gogh_core.settings import GuardSettings, Settings

__all__ = ["effective_mode", "guarded", "needs_approval"]


_THERE = (JobState.RUNNING, JobState.MOVING)


def effective_mode(settings: Settings, manager: ClusterManager) -> Literal["advise", "act"]:
    """`auto` acts on an embedded cluster and only advises on a real one."""
    mode = settings.cluster.mode
    if mode == "auto":
        return "advise" if manager.real else "act"
    return mode


def needs_approval(plan: Plan, guards: GuardSettings) -> tuple[str, ...]:
    """Why this plan waits for a person; empty when it does not."""
    reasons = []
    if guards.approve_moves is not None and len(plan.moves) > guards.approve_moves:
        reasons.append(f"{len(plan.moves)} moves, more than {guards.approve_moves}")
    if guards.approve_stops is not None and len(plan.stops) > guards.approve_stops:
        reasons.append(f"{len(plan.stops)} stops, more than {guards.approve_stops}")
    return tuple(reasons)


def guarded(
    actions: Sequence[Action], state: ClusterState, guards: GuardSettings, now: datetime
) -> dict[str, str]:
    """For each forbidden action, the reason; moves are allowed in the order of the actions."""
    jobs = {status.job.id: status for status in state.jobs}
    # A move that a circle split in two is one move, counted at its first half.
    circle = {a.job for a in actions if a.kind is Kind.HOLD} & {
        a.job for a in actions if a.kind is Kind.PLACE
    }
    running = Counter(s.job.owner for s in state.jobs if s.state in _THERE)
    moved: Counter[str] = Counter()
    refused: dict[str, str] = {}
    moves = switches = 0
    for action in actions:
        if action.kind in (Kind.ON, Kind.OFF):
            if switches >= guards.max_switches:
                refused[action.id] = f"guard: {guards.max_switches} servers switched per cycle"
            else:
                switches += 1
            continue
        is_move = action.kind is Kind.MOVE or (action.kind is Kind.HOLD and action.job in circle)
        status = jobs.get(action.job or "")
        if not is_move or status is None or status.state not in _THERE:
            continue
        owner = status.job.owner
        reason = _young(status, guards, now)
        if reason is None and moves >= guards.max_moves:
            reason = f"guard: {guards.max_moves} moves per cycle"
        if reason is None and moved[owner] >= math.floor(guards.max_owner_share * running[owner]):
            share = f"{guards.max_owner_share:.0%}"
            reason = f"guard: not more than {share} of {owner or 'an owner'}'s jobs move at once"
        if reason is not None:
            refused[action.id] = reason
            if action.job in circle:
                refused[f"place:{action.job}"] = reason
            continue
        moves += 1
        moved[owner] += 1
    return refused


def _young(status: JobStatus, guards: GuardSettings, now: datetime) -> str | None:
    if status.since is not None:
        runs_s = (now - status.since).total_seconds()
        if runs_s < guards.min_runtime_s:
            return f"guard: runs for {runs_s:.0f} s, not yet {guards.min_runtime_s:.0f} s"
    if status.moved_at is not None:
        ago_s = (now - status.moved_at).total_seconds()
        if ago_s < guards.cooldown_s:
            return f"guard: moved {ago_s:.0f} s ago, not yet {guards.cooldown_s:.0f} s"
    return None
