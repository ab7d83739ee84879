"""Carrying a plan out: the plan becomes true, or the journal says exactly how far it got.

`carry_out` decides whether the plan may be carried out at all (mode, dry run, approval, pause,
how much of it still fits), writes every action to the journal before the first one is sent, and
hands over to `Run` (`running.py`). Calling it again for the same plan goes on where it stopped and
sends nothing that is settled. One process carries out at a time; a crash frees the way.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, cast

from gogh_core.cluster.actions import Action, Kind, actions_of, not_capable
from gogh_core.cluster.approvals import approval_of, ask_approval, paused
from gogh_core.cluster.fit import Now, came_true, misfit
from gogh_core.cluster.guards import effective_mode, guarded, needs_approval, require_password
from gogh_core.cluster.journal import ActionRecord, ActionState, Journal
from gogh_core.cluster.manager import ClusterManager, PlanTaker
from gogh_core.cluster.running import Run, patiently
from gogh_core.domain import ClusterState, Plan
from gogh_core.errors import ClusterError, ClusterUnavailable, InvalidPlan
from gogh_core.settings import Settings
from gogh_core.store import Store

__all__ = ["ExecutionReport", "ExecutionState", "carry_out"]

ExecutionState = Literal[
    "done",
    "delivered",
    "advised",
    "dry_run",
    "waiting",
    "rejected",
    "paused",
    "abandoned",
    "interrupted",
    "superseded",
]
_FINAL = ("done", "rejected", "abandoned", "superseded")


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """What became of a plan."""

    plan_id: str
    cycle_id: str
    state: ExecutionState
    detail: str
    records: tuple[ActionRecord, ...]
    not_capable: tuple[str, ...]
    """What the plan asks for and the manager cannot do."""
    seconds: float

    @property
    def replan(self) -> bool:
        """Whether the plan did not fit any more and a new one is needed."""
        return self.state == "abandoned"

    def count(self, state: str) -> int:
        """How many actions are in that state."""
        return sum(1 for record in self.records if record.state == state)

    @property
    def confirmed(self) -> int:
        """Actions that came true."""
        return self.count("confirmed")

    @property
    def failed(self) -> int:
        """Actions that did not come true."""
        return self.count("failed")

    @property
    def skipped(self) -> int:
        """Actions that were not sent on purpose."""
        return self.count("skipped")

    def summary(self) -> str:
        """One line for people."""
        counts = Counter(record.state for record in self.records)
        parts = [f"{counts[name]} {name}" for name in _STATES if counts[name]]
        line = f"{self.state.replace('_', ' ')}: {', '.join(parts) or 'no actions'}"
        return f"{line} ({self.detail})" if self.detail else line


_STATES: tuple[ActionState, ...] = ("confirmed", "failed", "skipped", "sent", "intended")


def carry_out(
    plan: Plan,
    basis: ClusterState,
    *,
    manager: ClusterManager,
    store: Store,
    settings: Settings,
    cycle_id: str,
    now: datetime,
    ask: tuple[str, ...] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> ExecutionReport:
    """Carry the plan out, made for `basis`; `now` is the cluster's time at the call.

    `ask` has reasons to ask a person first, beside those of the guards.
    What the cluster refuses, or what no longer fits, is in the report and the journal; an error is
    raised only where the store itself fails, or where the settings forbid to act at all.
    """
    require_password(settings)
    started = time.monotonic()

    def clock() -> datetime:
        return now + timedelta(seconds=time.monotonic() - started)

    with _alone(settings):
        journal = Journal(store, plan.id, cycle_id, manager.name, clock)
        task = _Task(plan, basis, journal, manager, store, settings, now, ask, sleep)
        state, detail = _refused(task) or _proceed(task)
        journal.mark(state, detail, basis=basis)
        records = journal.records()
    return ExecutionReport(
        plan.id,
        cycle_id,
        state,
        detail,
        records,
        not_capable(plan, manager.capabilities),
        time.monotonic() - started,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """One call of `carry_out`."""

    plan: Plan
    basis: ClusterState
    journal: Journal
    manager: ClusterManager
    store: Store
    settings: Settings
    now: datetime
    ask: tuple[str, ...]
    sleep: Callable[[float], None]


Outcome = tuple[ExecutionState, str]


def _refused(task: _Task) -> Outcome | None:
    """Why the plan is not carried out now, or None when it may be."""
    before = task.journal.before
    outcome: Outcome | None = None
    if before is not None and before.state in _FINAL:
        outcome = (cast(ExecutionState, before.state), before.detail)
    elif task.journal.newer is not None:
        outcome = ("superseded", f"the newer plan {task.journal.newer} runs")
    elif task.plan.status == "infeasible":
        outcome = ("rejected", "the plan is infeasible: " + "; ".join(task.plan.notes))
    elif effective_mode(task.settings, task.manager) == "advise":
        outcome = ("advised", "nothing was sent: the mode is advise")
    elif task.settings.guards.dry_run:
        outcome = ("dry_run", "nothing was sent: dry run")
    else:
        outcome = _unapproved(task)
    switch = paused(task.settings)
    if outcome is None and switch is not None:
        outcome = ("paused", f"paused by {switch.who}: {switch.why}")
    return outcome


def _unapproved(task: _Task) -> Outcome | None:
    """A plan over the guards' thresholds, or that was asked about, waits for a person's word."""
    reasons = (*task.ask, *needs_approval(task.plan, task.basis, task.settings.guards))
    if reasons:
        ask_approval(task.store, task.plan.id, reasons, task.now)
    timeout_s = task.settings.guards.approval_timeout_s
    word = approval_of(task.store, task.plan.id, now=task.now, timeout_s=timeout_s)
    if word is None or word.decision == "approved":
        return None
    if word.decision == "asked":
        return "waiting", f"waits for approval: {word.why}"
    said = f"{word.decision} by {word.who}: {word.why}"
    return ("superseded" if word.decision == "superseded" else "rejected"), said


def _proceed(task: _Task) -> Outcome:
    """Begin, or go on where it stopped."""
    manager = task.manager
    try:
        records = task.journal.records()
        if not records:
            timeout_s = manager.capabilities.action_timeout_s
            current = patiently(manager.state, timeout_s, task.sleep)
            abandoned = _begin(task, current)
            if abandoned is not None:
                return "abandoned", abandoned
            records = task.journal.records()
        run = Run(records, task.journal, manager, task.settings, task.sleep)
        if isinstance(manager, PlanTaker):
            return _deliver(task.plan, run, manager)
        return run.to_the_end()
    except ClusterUnavailable as error:
        return "interrupted", str(error)


def _begin(task: _Task, current: ClusterState) -> str | None:
    """Write the journal's first page; with the reason when the plan no longer fits at all."""
    capabilities = task.manager.capabilities
    try:
        actions = actions_of(task.plan, task.basis, capabilities)
    except InvalidPlan as error:
        return str(error)
    skipped = guarded(actions, current, task.settings.guards)
    stale = _stale(actions, Now(current, capabilities), skipped)
    why = None
    if len(stale) > task.settings.guards.max_stale_share * len(actions):
        why = f"{len(stale)} of {len(actions)} actions no longer fit the cluster"
    elif skipped and isinstance(task.manager, PlanTaker):
        why = f"guards forbid {len(skipped)} of its actions, and a plan file is whole"
    rest = {}
    if why is not None:
        rest = {action.id: f"the plan was abandoned: {why}" for action in actions}
    skipped = {**rest, **stale, **skipped}
    task.journal.begin(actions, skipped, task.basis, abandoned=why is not None)
    return why


def _stale(actions: tuple[Action, ...], now: Now, skipped: dict[str, str]) -> dict[str, str]:
    """Actions that no longer fit the cluster, with the reason, before anything was done."""
    going = [action for action in actions if action.id not in skipped]
    leaving = frozenset(a.job for a in going if a.job and a.kind in (Kind.MOVE, Kind.HOLD))
    starting = frozenset(a.server for a in going if a.server and a.kind is Kind.ON)
    stale: dict[str, str] = {}
    # The second half of a held job's move is looked at when its first half is done.
    held = {action.job for action in going if action.kind is Kind.HOLD}
    for action in going:
        if action.kind is Kind.PLACE and action.job in held:
            continue
        if came_true(action, now):
            continue
        # Whether GPUs are free is known when the actions that free them are settled.
        reason = misfit(action, now, leaving=leaving, starting=starting)
        if reason is not None:
            stale[action.id] = reason
    return stale


def _deliver(plan: Plan, run: Run, manager: PlanTaker) -> Outcome:
    """Hand the whole plan over; what the cluster already shows is confirmed."""
    run.send_all()
    try:
        answer = manager.deliver(plan, key=plan.id)
    except ClusterUnavailable:
        raise
    except ClusterError as error:
        run.fail_all(f"the site refused the plan: {error}")
        return "done", str(error)
    run.settle_shown()
    return ("delivered" if run.unsettled else "done"), answer


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """One process carries out at a time; the kernel opens the way when it dies."""
    path = settings.home / "carry-out.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # Whoever carries a plan out is done within a cycle's time.
    deadline = time.monotonic() + max(settings.store.lock_timeout_s, settings.cycle.budget_s)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ClusterError(
                        "another process is carrying out a plan", todo="wait for it to end"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)
