"""What a plan may not do: the mode, the guards of the settings, and when a person has to agree.

`effective_mode` says whether a plan is carried out or only shown. `guarded` names, for each action
that a guard forbids, the guard; the rest of the plan goes on without it. `needs_approval` lists
why a plan has to wait for a person. `require_password` keeps `act` from clusters that anybody
could rule through Prefect's API.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from gogh_core.cluster.actions import Action, Kind
from gogh_core.cluster.manager import ClusterManager
from gogh_core.domain import ClusterState, JobState, Plan
from gogh_core.errors import InvalidSettings
from gogh_core.settings import GuardSettings, Settings

__all__ = ["effective_mode", "guarded", "needs_approval", "require_password"]


_THERE = (JobState.RUNNING, JobState.MOVING)


def effective_mode(settings: Settings, manager: ClusterManager) -> Literal["advise", "act"]:
    """`auto` acts on an embedded cluster and only advises on a real one."""
    mode = settings.cluster.mode
    if mode == "auto":
        return "advise" if manager.real else "act"
    return mode


def require_password(settings: Settings) -> None:
    """Refuse `mode = act` where the settings leave Prefect's API without a password."""
    if settings.cluster.mode != "act" or settings.prefect.guarded:
        return
    missing = "prefect.authentication = true"
    if settings.prefect.authentication:
        missing = "prefect.auth (GOGH_PREFECT__AUTH), the password of the server at prefect.url"
    raise InvalidSettings(
        "mode = act needs a password for Prefect's API", where="settings", todo=f"set {missing}"
    )


def needs_approval(plan: Plan, basis: ClusterState, guards: GuardSettings) -> tuple[str, ...]:
    """Why this plan, made for `basis`, waits for a person; empty when it does not."""
    reasons = []
    if guards.approve_moves is not None and len(plan.moves) > guards.approve_moves:
        reasons.append(f"{len(plan.moves)} moves, more than {guards.approve_moves}")
    running = sum(status.state in _THERE for status in basis.jobs)
    few = max(guards.approve_stops, math.floor(guards.approve_stop_share * running))
    if len(plan.stops) > few:
        reasons.append(f"{len(plan.stops)} of {running} running jobs stop, more than {few}")
    return tuple(reasons)


def guarded(
    actions: Sequence[Action], state: ClusterState, guards: GuardSettings
) -> dict[str, str]:
    """For each forbidden action, the reason; moves are allowed before stops, in their order.

    Whether a job may move at all is the plan's decision: only how much happens at once is checked.
    """
    jobs = {status.job.id: status for status in state.jobs}
    # A job that is held and placed again is disturbed once, counted when it is held.
    again = {a.job for a in actions if a.kind is Kind.PLACE}
    running = Counter(s.job.owner for s in state.jobs if s.state in _THERE)
    disturbed: Counter[str] = Counter()
    refused: dict[str, str] = {}
    switches = 0
    for action in sorted(actions, key=lambda a: a.kind is Kind.HOLD and a.job not in again):
        if action.kind in (Kind.ON, Kind.OFF):
            if switches >= guards.max_switches:
                refused[action.id] = f"guard: {guards.max_switches} servers switched per cycle"
            else:
                switches += 1
            continue
        status = jobs.get(action.job or "")
        if action.kind not in (Kind.MOVE, Kind.HOLD) or status is None:
            continue
        if status.state not in _THERE:
            continue
        owner = status.job.owner
        reason = None
        if disturbed.total() >= guards.max_moves:
            reason = f"guard: {guards.max_moves} moves and stops per cycle"
        elif disturbed[owner] >= math.floor(guards.max_owner_share * running[owner]):
            share, whose = f"{guards.max_owner_share:.0%}", owner or "an owner"
            reason = f"guard: not more than {share} of {whose}'s jobs move or stop at once"
        if reason is None:
            disturbed[owner] += 1
            continue
        refused[action.id] = reason
        if action.kind is Kind.HOLD and action.job in again:
            refused[f"place:{action.job}"] = reason
    return refused
